"""Torch has one number of threads and one random generator per process: they are used by one task at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch

_LOCK = RLock()


@contextmanager
def exclusive(seed: int) -> Iterator[None]:
    """Torch computes with one thread and draws from this seed; afterwards both are as they were.

    The bits of a result depend on both, and threads of a process share them: whoever comes second waits.

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
        # Not torch.manual_seed, which also looks for every kind of device, each time.
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            torch.default_generator.set_state(state)
            if threads != 1:
                torch.set_num_threads(threads)
