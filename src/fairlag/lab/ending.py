"""Ends a process cleanly on SIGTERM, and explains in a sentence what the system has run out of."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_TERMINATED = 128 + signal.SIGTERM


@contextmanager
def terminated_cleanly() -> Iterator[None]:
    """Inside, SIGTERM ends the process like `sys.exit`: temporary folders are removed and workers are stopped.

    A process that already handles SIGTERM, or ignores it, is left alone.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # already exiting: a second signal could only disturb the cleanup
    raise SystemExit(_TERMINATED)


def shortage(error: BaseException) -> str | None:
    """What the system has run out of, in a sentence; None for any other error.

    >>> shortage(MemoryError())
    'the system is out of memory: close other programs, or use fewer --workers'
    >>> shortage(KeyError("x"))
    """
    words = str(error)
    if isinstance(error, MemoryError) or any(sign in words for sign in _NO_MEMORY):
        return "the system is out of memory: close other programs, or use fewer --workers"
    if isinstance(error, RuntimeError) and "can't start new thread" in words:
        return "the system cannot start another thread: it has too many, or too little memory; use fewer --workers"
    return None


_NO_MEMORY = ("failed to map segment from shared object", "annot allocate memory", "can't allocate memory")
"""How the library loader, the system and torch report it."""
