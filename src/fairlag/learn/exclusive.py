"""Torch has one number of threads and one random generator per process: only one task at a time may use them."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch

_LOCK = RLock()


@contextmanager
def exclusive(seed: int) -> Iterator[None]:
    """Makes torch compute with one thread and draw from this seed; restores both afterwards.

    The bits of a result depend on both, and all threads of a process share them, so a second thread waits.

    >>> before = torch.get_num_threads(), torch.get_rng_state()
    >>> with exclusive(7):
    ...     first = torch.rand(3)
    >>> with exclusive(7):
    ...     torch.equal(torch.rand(3), first), torch.get_num_threads()
    (True, 1)
    >>> torch.get_num_threads() == before[0], torch.equal(torch.get_rng_state(), before[1])
    (True, True)
    """
    with _LOCK:
        threads, state = torch.get_num_threads(), torch.default_generator.get_state()
        if threads != 1:
            torch.set_num_threads(1)
        # Not torch.manual_seed, which also searches for every kind of device, each time.
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            torch.default_generator.set_state(state)
            if threads != 1:
                torch.set_num_threads(threads)
