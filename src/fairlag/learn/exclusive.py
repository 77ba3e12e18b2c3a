"""Torch has one number of threads and one random generator per process: only one task at a time may use them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import RLock

import torch

from fairlag.learn.transfer import CPU

_LOCK = RLock()


@contextmanager
def exclusive(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """Makes torch compute with one thread and draw from this seed, also on the device; restores both afterwards.

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
            if device.type in ("cuda", "mps"):
                with _reproducible(device, seed):
                    yield
            else:
                yield
        finally:
            torch.default_generator.set_state(state)
            if threads != 1:
                torch.set_num_threads(threads)


@contextmanager
def _reproducible(device: torch.device, seed: int) -> Iterator[None]:
    """Makes an accelerator draw from this seed and use deterministic algorithms; torch warns if one has none."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, cuBLAS promises nothing
    own = torch.get_device_module(device)
    strict = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        state = own.get_rng_state()
        own.manual_seed(seed)
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(strict[0], warn_only=strict[1])
            own.set_rng_state(state)
