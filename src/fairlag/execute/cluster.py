"""The Ray cluster that actors live on: one of our own, on this machine alone, or one that was there before us."""

import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from fairlag.errors import InputError, WorkerError
from fairlag.execute import children

FOLDER = ".ray"
"""Inside the folder of the runs: where Ray keeps its sockets and logs while it runs."""

_WAY = "way"
"""Inside that folder: a link to the one in /tmp by which Ray finds it."""
_SHORT = 43
"""How many bytes a path may have to which Ray adds up to 64 for its sockets: a socket's may have 107."""
_REFUSED = 5.0
"""How many seconds a port may take to answer at all."""
_SILENT = 60.0
"""How many seconds a cluster may take to let us in; Ray itself would wait for minutes."""
_GONE = 5.0
"""How many seconds Ray's processes may take to leave their folder alone."""

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""No usage statistics; and Ray leaves the choice of devices alone, instead of warning that one day it will."""
_PROMPT = {"RAY_worker_niceness": "0"}
"""Ray's workers would yield to every other process of the machine, and hardly start on one that is busy."""
_ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_gcs_rpc_server_reconnect_timeout_s": "10", **_PROMPT}
"""Of our own cluster's processes: they stay on loopback, as by default on those systems; and where this process is
killed, none of them waits longer for a head that will never come back."""
_JOINING: dict[str, Any] = {"log_to_driver": False, "logging_level": "critical"}

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


def check(address: str | None) -> None:
    """Refuses, within a bounded time, to compute where there is no Ray, or at an address where no cluster answers."""
    ray = library()
    if address is None or ray.is_initialized():
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


_LOCK = threading.Lock()
_members: "list[Cluster]" = []
"""Threads that simulate at once share the one cluster that a process can be in: whoever leaves last, closes it."""


class Cluster:
    """What actors are made on; whoever closes it leaves a cluster that is not ours as it was."""

    _address: str | None
    _left: ExitStack

    def __init__(self, address: str | None, cpus: int, folder: Path) -> None:
        """The cluster at the address; where there is none, a new one with so many CPUs, whose files are in the folder.

        A process can be in one cluster only: if it is in one already, that is it.
        """
        self.ray = library()
        with _LOCK:
            if _members and address == _members[0]._address:
                self._left = _members[0]._left  # of another thread
            elif self.ray.is_initialized():
                if address is not None:
                    raise InputError(f"this process is in a Ray cluster already: leave out the address {address!r}")
                return
            else:
                self._left = ExitStack()
                try:
                    self._enter(address, cpus, folder)
                except BaseException:
                    self._left.close()
                    raise
            self._address = address
            _members.append(self)

    def _enter(self, address: str | None, cpus: int, folder: Path) -> None:
        self._left.enter_context(_sigterm_restored())
        if address is None:
            self._begin(cpus, folder)
        else:
            _knock(address)
            self._join(address=address)

    @property
    def cpus(self) -> int:
        """How many CPUs there are in it."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    def close(self) -> None:
        """Leaves the cluster if no other thread is in it, and ends it if it is ours."""
        with _LOCK:
            if self in _members:
                _members.remove(self)
                if not _members:
                    self._left.close()

    def _begin(self, cpus: int, folder: Path) -> None:
        place = self._left.enter_context(_temporary(folder / FOLDER))
        with _on_loopback():
            try:
                self._join(address="local", num_cpus=cpus, include_dashboard=False, _temp_dir=place)
            except (OSError, RuntimeError, ValueError, AssertionError) as error:
                raise WorkerError(f"Ray does not start here: {' '.join(str(error).split())}") from error

    def _join(self, **how: Any) -> None:
        self._left.callback(self._leave)
        with _environment(_QUIET), children.interrupts_held_back(), _untidiness():
            self.ray.init(**how, **_JOINING)

    def _leave(self) -> None:
        with _untidiness():
            self.ray.shutdown()


@contextmanager
def _untidiness() -> Iterator[None]:
    """Ray leaves it to the garbage collector to close what it opened for its processes, and to bury them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed file .*/dev/null", ResourceWarning)
        warnings.filterwarnings("ignore", "subprocess .* is still running", ResourceWarning)
        yield
        gc.collect()  # now, while nobody minds


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
def _on_loopback() -> Iterator[None]:
    """Ray refuses to be given a loopback address, but takes it by itself where it believes to be alone.

    Its processes believe what the variable says when they begin; this one has already read it.
    """
    constants: Any = import_module("ray._private.ray_constants")
    before = getattr(constants, "ENABLE_RAY_CLUSTER", None)
    constants.ENABLE_RAY_CLUSTER = False
    try:
        with _environment(_ALONE):
            yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


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


@contextmanager
def _temporary(folder: Path) -> Iterator[str]:
    """A folder that is ours alone, and gone afterwards; the path to it is short enough for Ray's sockets.

    Where the path of the folder is not, as under many a home, one in the folder for temporary files leads there.
    Ray opens what it makes to everyone, so it is given a folder inside ours.
    """
    folder = folder.absolute()
    _removed(folder)  # left by a run that was killed
    folder.mkdir(mode=0o700, parents=True)
    place = folder / "t"
    try:
        if len(os.fsencode(place)) > _SHORT:
            place.mkdir()
            short = Path(tempfile.mkdtemp(prefix="fl-", dir="/tmp" if os.path.isdir("/tmp") else None))
            (folder / _WAY).symlink_to(short)
            (short / "t").symlink_to(place)
            place = short / "t"
        yield str(place)
    finally:
        until = monotonic() + _GONE
        while not _removed(folder) and monotonic() < until:  # somebody still writes a last line
            sleep(0.05)


def _removed(folder: Path) -> bool:
    """Removes Ray's folder and the short way to it, if they are there; was that possible?"""
    try:
        short = (folder / _WAY).readlink()
        if (short / "t").readlink() == folder / "t":
            (short / "t").unlink()
            short.rmdir()
    except OSError:
        pass
    with suppress(OSError):
        shutil.rmtree(folder)
    return not folder.exists()
