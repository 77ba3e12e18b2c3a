"""How processes of our own are started and settle in: Ctrl-C does not reach them, and they end with their parent."""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any

from fairlag.errors import InputError

# Spawned, not forked: a fork copies the locks of threads that it does not copy.
CONTEXT = multiprocessing.get_context("spawn")

_TUNABLES = "GLIBC_TUNABLES"


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """While processes are started: they inherit that Ctrl-C does not reach them, and here it arrives a moment later."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # or the first process that is started would start it, and let Ctrl-C through
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


@contextmanager
def large_pages() -> Iterator[None]:
    """While processes are started: their allocator asks Linux for large pages, unless the user has tuned it already.

    A step of a CNN is about a tenth faster with them; glibc reads this only when a process begins.
    """
    if _TUNABLES in os.environ or not sys.platform.startswith("linux"):
        yield
        return
    os.environ[_TUNABLES] = "glibc.malloc.hugetlb=1"
    try:
        yield
    finally:
        del os.environ[_TUNABLES]


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


def settle_in() -> None:
    """In a worker: what a user's rule prints must not mix with results, and nobody works for a parent that is gone."""
    sys.stdout = sys.stderr
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
