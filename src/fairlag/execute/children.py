"""How worker processes are started: Ctrl-C does not reach them, and they end with their parent. See child.py."""

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fairlag.errors import InputError
from fairlag.execute.child import Setup

Process = subprocess.Popen[bytes]

_FLAGS = {"optimize": "-O", "ignore_environment": "-E"}
"""Flags of the interpreter that a worker process needs too."""
_BOOT = """
import sys
from multiprocessing.connection import Connection
line = Connection(int(sys.argv[1]))
sys.path[:] = line.recv()
from fairlag.execute import child
child.main(line)
"""
"""The path must be set before fairlag can be imported."""


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Used while processes start: they inherit that Ctrl-C is ignored, and this process handles it a moment later."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    # A library's thread may still receive the signal; then Python calls this handler.
    swapped = callable(handler) and threading.current_thread() is threading.main_thread()
    signals: list[int] = []
    if swapped:
        signal.signal(signal.SIGINT, lambda number, frame: signals.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if swapped:
            signal.signal(signal.SIGINT, handler)
    if signals:
        signal.raise_signal(signal.SIGINT)


def started(target: Callable[..., None], *given: object, files: Sequence[int] = ()) -> tuple[Process, Connection]:
    """Starts a process that calls `target` with a connection and `given`; returns it and our end of the connection.

    The process inherits these open files, with the same numbers. It does not run the user's script unless `given`
    contains something that the script defines, so a script needs no `if __name__ == "__main__"`.
    """
    main = sys.modules["__main__"]
    script = getattr(main, "__file__", None), getattr(main, "__package__", None)
    flags = [flag for name, flag in _FLAGS.items() if getattr(sys.flags, name)]
    here, there = Pipe()
    with there:
        command = [sys.executable, *flags, "-P", "-c", _BOOT, str(there.fileno())]
        with interrupts_held_back():
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, env=_environment(), pass_fds=(there.fileno(), *files)
            )
    with suppress(OSError):  # if it has died already, reading the connection will show it
        here.send(sys.path)
        here.send(Setup(sys.argv, *script))
        here.send_bytes(pickle.dumps((target, given)))
    return process, here


def _environment() -> dict[str, str]:
    """Our environment, plus a mark, plus large pages for the allocator on Linux unless the user has tuned it already.

    They make a step of a CNN about a tenth faster; glibc reads this setting only when a process starts.
    """
    tuned = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"} if sys.platform.startswith("linux") else {}
    return {**tuned, **os.environ, "FAIRLAG_WORKER": "1"}


STOPPED = 5
"""How many checks in a row must find a process stopped: after Ctrl-Z and `fg`, it may resume after us."""


def replaced(pid: int) -> str:
    """The message if a process is replaced because it was stopped."""
    return f"worker process {pid} is stopped (SIGSTOP): another one replaces it and repeats its tasks"


def is_stopped(pid: int) -> bool:
    """Was the process stopped by SIGSTOP or Ctrl-Z? Known only on Linux; an attached debugger does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def check_picklable(thing: object, dumps: Callable[[Any], bytes] = pickle.dumps, instead: str = "workers=1") -> None:
    """Refuses an object that cannot be sent to another process, before one is started."""
    try:
        dumps(thing)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"the experiment cannot be sent to other processes ({error}): "
            f"use {instead}, or name your function as 'module:function'"
        ) from None
