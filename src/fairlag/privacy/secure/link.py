"""The server's connection to the keeper's process."""

import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import create_connection, socket
from time import sleep

from fairlag.errors import KeeperError
from fairlag.privacy.secure.frames import context, receive, send
from fairlag.privacy.secure.keys import certificate
from fairlag.privacy.secure.process import address
from fairlag.privacy.secure.wire import MOST_GREETING, Terms, most_reply

_PAUSE = 0.1
"""Seconds before the second attempt to connect; each further pause is twice as long."""


class KeeperLink:
    """Asks the keeper at an address. `key` is the file server.key, `keeper` the file keeper.pub, which is pinned.

    Connecting is tried `attempts` times. A request that was sent is never sent again: the keeper may have used up its
    seeds, and would refuse it. Every step may take `seconds`.
    """

    def __init__(
        self, listen: str, key: Path, keeper: Path, size: int, *, attempts: int = 8, seconds: float = 300.0
    ) -> None:
        self._listen, self._address = listen, address(listen)
        self._context = context(ssl.PROTOCOL_TLS_CLIENT, key, keeper)
        self._pinned = certificate(keeper)
        self._most, self._attempts, self._seconds = most_reply(size), attempts, seconds

    def ask(self, request: bytes) -> bytes:
        """The keeper's reply to a request; raises KeeperError if there is none."""
        with self._connected() as (connection, _):
            try:
                send(connection, request, self._seconds)
                reply = receive(connection, self._most, self._seconds)
            except OSError as error:
                raise KeeperError(
                    f"the keeper at {self._listen} did not reply ({error}): the seeds of this request may be used up"
                ) from None
        if reply is None:
            raise KeeperError(f"the keeper at {self._listen} closed the connection without a reply")
        return reply

    def terms(self) -> Terms:
        """What the keeper says of itself: its run, number of parameters, least clients, and bound."""
        with self._connected() as (_, terms):
            return terms

    @contextmanager
    def _connected(self) -> Iterator[tuple[socket, Terms]]:
        """A connection on which the keeper has greeted, so that it has accepted this server."""
        connection, terms = self._tried()
        with connection:
            yield connection, terms

    def _tried(self) -> tuple[socket, Terms]:
        for attempt in range(self._attempts):
            try:
                return self._opened()
            except OSError as error:
                reason = error
            if attempt < self._attempts - 1:
                sleep(_PAUSE * 2**attempt)
        raise KeeperError(f"cannot reach the keeper at {self._listen} in {self._attempts} attempts: {reason}")

    def _opened(self) -> tuple[socket, Terms]:
        """Connects once. Raises OSError if it may work later, and KeeperError if it will not."""
        with ExitStack() as stack:
            raw = stack.enter_context(create_connection(self._address, self._seconds))
            try:
                connection = stack.enter_context(self._context.wrap_socket(raw))
                greeting = receive(connection, MOST_GREETING, self._seconds)
            except ssl.SSLCertVerificationError:
                raise self._stranger() from None
            except ssl.SSLError as error:
                if "ALERT" not in (error.reason or ""):
                    raise
                raise KeeperError(
                    f"the keeper at {self._listen} does not accept this server ({error}): was it started with this "
                    "server's certificate, server.pub?"
                ) from None
            if connection.getpeercert(binary_form=True) != self._pinned:
                raise self._stranger()
            if greeting is None:
                raise ConnectionAbortedError("it closed the connection")
            terms = Terms.read(greeting)
            stack.pop_all()  # from here on, the caller closes it
            return connection, terms

    def _stranger(self) -> KeeperError:
        return KeeperError(f"what answers at {self._listen} is not the keeper whose certificate is pinned")
