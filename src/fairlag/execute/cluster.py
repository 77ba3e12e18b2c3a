"""The Ray cluster that actors live on: it was there before us, and stays as it was."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from fairlag.errors import InputError

_REFUSED = 5.0
"""How many seconds a port may take to answer at all."""
_SILENT = 60.0
"""How many seconds a cluster may take to let us in; Ray itself would wait for minutes."""

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""No usage statistics; and Ray leaves the choice of devices alone, instead of warning that one day it will."""

_PROBE = """
import sys, ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="critical")
except Exception as error:
    sys.exit(print(" ".join(str(error).split())) or 1)
ray.shutdown()
"""


def library() -> Any:
    """Ray, which is imported only where it is used."""
    try:
        with _environment(_QUIET):
            return import_module("ray")
    except ImportError as error:
        raise InputError(f"the executor ray needs Ray ({error}): pip install 'fairlag[ray]'") from None


def check(address: str) -> None:
    """Refuses, within a bounded time, to compute without Ray, or at an address where no cluster answers."""
    ray = library()
    if ray.is_initialized():
        _check_that_it_is_ours(ray, address)
        return
    _knock(address)
    # By a process of its own: where nobody answers, Ray waits for minutes and then ends the process that asked.
    command = [sys.executable, "-c", _PROBE, address]
    try:
        asked = subprocess.run(
            command, env={**os.environ, **_QUIET}, timeout=_SILENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise _nobody(address, f"no answer within {_SILENT:g} seconds") from None
    if asked.returncode:
        raise _nobody(address, asked.stdout.decode(errors="replace").strip() or f"exit code {asked.returncode}")


def _knock(address: str) -> None:
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:
        raise InputError(f"the address of a Ray cluster is HOST:PORT or auto, not {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REFUSED).close()
    except OSError as error:
        raise _nobody(address, str(error)) from None


def _nobody(address: str, why: str) -> InputError:
    return InputError(f"no Ray cluster answers at the address {address!r} ({why}): `ray start --head` begins one")


def _check_that_it_is_ours(ray: Any, address: str) -> None:
    """A process can be in one cluster only."""
    here = ray.get_runtime_context().gcs_address
    if address not in {"auto", here, *(each.address for each in _members)}:
        raise InputError(f"this process is in the Ray cluster at {here} already: it cannot join the one at {address!r}")


_LOCK = threading.Lock()
_members: "list[Cluster]" = []
"""Threads that simulate at once share the one cluster that a process can be in: the last one leaves it."""


class Cluster:
    """What actors are made on."""

    _left: ExitStack
    """What is undone when the last of us leaves."""

    def __init__(self, address: str) -> None:
        """Joins the cluster at the address, unless this process is in it already."""
        self.ray, self.address = library(), address
        with _LOCK:
            if self.ray.is_initialized():
                _check_that_it_is_ours(self.ray, address)
                if not _members:
                    return  # the user's own code has joined it, and leaves it
                self._left = _members[0]._left
            else:
                _knock(address)
                self._left = self._joined(address)
            _members.append(self)

    @property
    def cpus(self) -> int:
        """How many CPUs there are in it."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    def close(self) -> None:
        """Leaves the cluster if no other thread is in it."""
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
    """Meanwhile these variables are set, unless the user has; afterwards, those that Ray has set are gone, too."""
    before = dict(os.environ)
    os.environ.update({name: value for name, value in settings.items() if name not in before})
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]


@contextmanager
def _sigterm_restored() -> Iterator[None]:
    """Ray puts its own handler in place of whatever was there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None:  # one that was not set by Python cannot be set again
            signal.signal(signal.SIGTERM, before)
