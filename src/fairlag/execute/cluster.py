"""The Ray cluster that actors run on. It existed before, and is left unchanged."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from fairlag.errors import InputError
from fairlag.extras import optional

_CONNECT_TIMEOUT = 5.0
"""Seconds to wait for a connection to the port."""
_JOIN_TIMEOUT = 60.0
"""Seconds to wait for joining a cluster; Ray itself would wait for minutes."""

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""No usage statistics; and Ray does not change the visible devices, and does not warn about it."""

_PROBE = """
import sys, ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="critical")
except Exception as error:
    sys.exit(print(" ".join(str(error).split())) or 1)
ray.shutdown()
"""


def library() -> Any:
    """Ray, imported only when it is used."""
    with _environment(_QUIET):
        return optional("ray", "ray", "the executor ray")


def check(address: str) -> None:
    """Refuses a missing Ray, or an address at which no cluster answers, within a bounded time."""
    ray = library()
    if ray.is_initialized():
        _check_same_cluster(ray, address)
        return
    _check_port(address)
    # In a separate process: if no cluster answers, Ray waits for minutes and then ends the process that asked.
    command = [sys.executable, "-c", _PROBE, address]
    try:
        asked = subprocess.run(
            command,
            env={**os.environ, **_QUIET},
            timeout=_JOIN_TIMEOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise _no_answer(address, f"no answer within {_JOIN_TIMEOUT:g} seconds") from None
    if asked.returncode:
        raise _no_answer(address, asked.stdout.decode(errors="replace").strip() or f"exit code {asked.returncode}")


def _check_port(address: str) -> None:
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:
        raise InputError(f"the address of a Ray cluster is HOST:PORT or auto, not {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT).close()
    except OSError as error:
        raise _no_answer(address, str(error)) from None


def _no_answer(address: str, why: str) -> InputError:
    return InputError(f"no Ray cluster answers at the address {address!r} ({why}): start one with `ray start --head`")


def _check_same_cluster(ray: Any, address: str) -> None:
    """Refuses a second cluster: a process can be in only one."""
    here = ray.get_runtime_context().gcs_address
    if address not in {"auto", here, *(each.address for each in _members)}:
        raise InputError(f"this process is already in the Ray cluster at {here}: it cannot join the one at {address!r}")


_LOCK = threading.Lock()
_members: "list[Cluster]" = []
"""The users of the process's one cluster: threads that simulate at the same time share it, the last one leaves it."""


class Cluster:
    """A membership in a Ray cluster."""

    _left: ExitStack
    """What to undo when the last member leaves."""

    def __init__(self, address: str) -> None:
        """Joins the cluster at the address, unless this process is in it already."""
        self.ray, self.address = library(), address
        with _LOCK:
            if self.ray.is_initialized():
                _check_same_cluster(self.ray, address)
                if not _members:
                    return  # the user's own code has joined it and will leave it
                self._left = _members[0]._left
            else:
                _check_port(address)
                self._left = self._joined(address)
            _members.append(self)

    @property
    def cpus(self) -> int:
        """The number of CPUs of the cluster."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    def close(self) -> None:
        """Leaves the cluster, unless another thread still uses it."""
        with _LOCK:
            if self in _members:
                _members.remove(self)
                if not _members:
                    self._left.close()

    def _joined(self, address: str) -> ExitStack:
        with ExitStack() as left:
            left.enter_context(_sigterm_restored())
            left.callback(self.ray.shutdown)
            with _environment(_QUIET):
                self.ray.init(address=address, log_to_driver=False, logging_level="critical")
            return left.pop_all()


@contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    """Sets these variables unless the user has; afterwards removes them, and those that Ray has set."""
    before = dict(os.environ)
    os.environ.update({name: value for name, value in settings.items() if name not in before})
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]


@contextmanager
def _sigterm_restored() -> Iterator[None]:
    """Restores the handler of SIGTERM, which Ray replaces with its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None:  # a handler that was not set by Python cannot be restored
            signal.signal(signal.SIGTERM, before)
