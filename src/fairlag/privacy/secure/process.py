"""The keeper as a process: it listens, answers one pinned server over TLS, and logs lines without secrets."""

import os
import ssl
from collections.abc import Callable
from pathlib import Path
from socket import AF_INET, AF_INET6, create_server, socket
from threading import BoundedSemaphore, Lock, Thread

from fairlag.errors import InputError, RefusedError
from fairlag.privacy.secure.frames import TooLongError, context, receive, send
from fairlag.privacy.secure.keeper import Keeper, Policy
from fairlag.privacy.secure.keys import USED, allowed_clients, certificate, keeper_key
from fairlag.privacy.secure.used import UsedOnDisk
from fairlag.privacy.secure.wire import MOST_REQUEST, Terms, read_reply, refusal

_HANDSHAKE, _IDLE, _STOP = 10.0, 60.0, 10.0
"""The seconds that a handshake, a frame, and the last answers at the end may take."""

_CONNECTIONS = 32
"""The most connections at once; more are closed."""

Log = Callable[[str], None]


def keep(listen: str, key: Path, server: Path, clients: Path, terms: Terms, log: Log) -> None:
    """Runs a keeper with keys and a list of clients from files, until an interrupt is raised."""
    sealed_to, allowed = keeper_key(key), allowed_clients(clients)
    policy = Policy(terms.run, terms.size, terms.least, terms.bound, allowed)
    if len(allowed) < policy.least:
        raise InputError(f"{str(clients)!r} lists {len(allowed)} clients, but a sum needs at least {policy.least}")
    used = UsedOnDisk(key.with_suffix(USED))
    try:
        # The secret of the blur is new at every start and never written: nothing needs it again.
        process = KeeperProcess(Keeper(policy, sealed_to, used, os.urandom(32)), listen, key, server, log)
        log(
            f"keeper of run {policy.run!r}: {policy.size:,} parameters, at least {policy.least} of {len(allowed):,} "
            f"clients in a sum, each with at most {policy.bound} of the weight; {len(used):,} seeds are used up"
        )
        log(f"listening on {process.address}; stop with Ctrl-C")
        process.serve()
    finally:
        used.close()


class KeeperProcess:
    """Listens for the server whose certificate is pinned. Every connection has a thread; a bad one ends alone."""

    def __init__(self, keeper: Keeper, listen: str, key: Path, server: Path, log: Log) -> None:
        self._keeper, self._log = keeper, log
        self._context = context(ssl.PROTOCOL_TLS_SERVER, key, server)
        self._context.num_tickets = 0  # every connection shows its certificate
        self._pinned = certificate(server)
        self._free = BoundedSemaphore(_CONNECTIONS)
        self._answering = Lock()  # one answer at a time, so that memory is bounded
        self._listener = _listener(listen)

    @property
    def address(self) -> str:
        """Where it listens, with the port that the system chose if 0 was asked for."""
        host, port = self._listener.getsockname()[:2]
        return f"{host}:{port}"

    def serve(self) -> None:
        """Accepts connections until an interrupt is raised; then lets the present answer finish."""
        try:
            while True:
                try:
                    raw, (host, port, *_) = self._listener.accept()
                except ConnectionError:
                    continue  # it ended before it was accepted
                if not self._free.acquire(blocking=False):
                    raw.close()
                    self._log(f"{host}:{port}: closed, because {_CONNECTIONS} connections are open")
                    continue
                Thread(target=self._attend, args=(raw, f"{host}:{port}"), daemon=True).start()
        finally:
            self._listener.close()
            self._answering.acquire(timeout=_STOP)

    def _attend(self, raw: socket, peer: str) -> None:
        """One connection, whatever happens on it."""
        try:
            with raw:
                self._talk(raw, peer)
        except OSError as error:  # TLS errors and time-outs among them
            self._log(f"{peer}: {error}")
        except Exception as error:  # a mistake in this program: no detail, because it could be secret
            self._log(f"{peer}: closed after an error of type {type(error).__name__}")
        finally:
            self._free.release()

    def _talk(self, raw: socket, peer: str) -> None:
        raw.settimeout(_HANDSHAKE)
        with self._context.wrap_socket(raw, server_side=True) as connection:
            if connection.getpeercert(binary_form=True) != self._pinned:
                self._log(f"{peer}: closed, because its certificate is not the pinned one")
                return
            send(connection, bytes(self._keeper.policy), _IDLE)
            while self._replied(connection, peer):
                pass

    def _replied(self, connection: socket, peer: str) -> bool:
        """Replies to the next request on a connection, unless there is none."""
        try:
            request = receive(connection, MOST_REQUEST, _IDLE)
        except TooLongError as error:
            send(connection, refusal(str(error)), _IDLE)
            raise
        if request is None:
            return False
        with self._answering:
            reply = self._keeper.answer(request)
            self._log(f"{peer}: {_verdict(reply, self._keeper.policy.size)}")
            send(connection, reply, _IDLE)
        return True


def _verdict(reply: bytes, size: int) -> str:
    try:
        read_reply(reply, size)
    except RefusedError as reason:
        return str(reason)
    return "answered"


def _listener(listen: str) -> socket:
    host, port = address(listen)
    try:
        return create_server((host, port), family=AF_INET6 if ":" in host else AF_INET)
    except (OSError, OverflowError) as error:
        raise InputError(f"cannot listen on {listen!r}: {error}") from None


def address(text: str) -> tuple[str, int]:
    """The host and port of "host:port".

    >>> address("127.0.0.1:4321"), address("[::1]:4321")
    (('127.0.0.1', 4321), ('::1', 4321))
    """
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) < 2**16):
        raise InputError(f"the address is {text!r}, it must be HOST:PORT, such as 127.0.0.1:4321")
    return host.removeprefix("[").removesuffix("]"), int(port)
