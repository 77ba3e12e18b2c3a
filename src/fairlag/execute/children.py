"""How processes of our own are started: Ctrl-C does not reach them, and they end with their parent. See child.py."""

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
"""Flags of the interpreter that a process of our own must have, too."""
_BOOT = """
import sys
from multiprocessing.connection import Connection
line = Connection(int(sys.argv[1]))
sys.path[:] = line.recv()
from fairlag.execute import child
child.live(line)
"""
"""Before fairlag can be imported, it must be known where it is."""


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """While processes are started: they inherit that Ctrl-C does not reach them, and here it arrives a moment later."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    # A thread of a library may still take the signal, and then Python calls the handler here.
    swapped = callable(handler) and threading.current_thread() is threading.main_thread()
    noted: list[int] = []
    if swapped:
        signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if swapped:
            signal.signal(signal.SIGINT, handler)
    if noted:
        signal.raise_signal(signal.SIGINT)


def started(target: Callable[..., None], *given: object, files: Sequence[int] = ()) -> tuple[Process, Connection]:
    """A new process that calls the function with a line to us and what is given; and our end of the line.

    It inherits these open files, under the same numbers. It does not run the user's script, unless what is given is
    made of the script's own functions: so a script need not protect itself by `if __name__ == "__main__"`.
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
    with suppress(OSError):  # if it has died already, its line says so
        here.send(sys.path)
        here.send(Setup(sys.argv, *script))
        here.send_bytes(pickle.dumps((target, given)))
    return process, here


def _environment() -> dict[str, str]:
    """Ours, and a mark; and the allocator asks Linux for large pages, unless the user has tuned it already.

    A step of a CNN is about a tenth faster with them; glibc reads this only when a process begins.
    """
    tuned = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"} if sys.platform.startswith("linux") else {}
    return {**tuned, **os.environ, "FAIRLAG_WORKER": "1"}


STOPPED = 5
"""At how many looks in a row a process must be found stopped: after Ctrl-Z and `fg`, it may wake after us."""


def replaced(pid: int) -> str:
    """What is said if a process is replaced because somebody has stopped it."""
    return f"worker process {pid} is stopped (SIGSTOP): another one replaces it and repeats its tasks"


def is_stopped(pid: int) -> bool:
    """Has somebody stopped the process, by SIGSTOP or Ctrl-Z? Only Linux says; a debugger that looks is no stop."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def check_that_it_travels(
    thing: object, dumps: Callable[[Any], bytes] = pickle.dumps, instead: str = "workers=1"
) -> None:
    """Refuses what cannot be sent to another process, before one is started."""
    try:
        dumps(thing)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"the experiment cannot be sent to other processes ({error}): "
            f"take {instead}, or name your function as 'module:function'"
        ) from None
