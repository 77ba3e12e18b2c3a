"""Ends a process cleanly on SIGTERM, and says in a sentence what the system has run out of."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_TERMINATED = 128 + signal.SIGTERM


@contextmanager
def terminated_cleanly() -> Iterator[None]:
    """Inside, SIGTERM ends the process as `sys.exit` does: temporary folders are removed, workers are ended.

    What already handles it otherwise, or ignores it, stays as it is.
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
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending: a second one could only spoil the tidying
    raise SystemExit(_TERMINATED)


def shortage(error: BaseException) -> str | None:
    """What the system could not give, in a sentence; None if the error is another one.

    >>> shortage(MemoryError())
    'the system has no more memory to give: close other programs, or take fewer --workers'
    >>> shortage(KeyError("x"))
    """
    words = str(error)
    if isinstance(error, MemoryError) or any(sign in words for sign in _NO_MEMORY):
        return "the system has no more memory to give: close other programs, or take fewer --workers"
    if isinstance(error, RuntimeError) and "can't start new thread" in words:
        return "the system lets no further thread start: it has too many, or too little memory; take fewer --workers"
    return None


_NO_MEMORY = ("failed to map segment from shared object", "annot allocate memory", "can't allocate memory")
"""What the loader of libraries, the system and torch say of it."""
