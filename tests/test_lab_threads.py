"""Runs from several threads of one process at once: the same bytes as alone, and the process is left as it was."""

import gc
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch

from fairlag.lab.simulate import simulate
from fairlag.runtime.virtual import few_collections
from tests.support.experiments import DROPPING


def made(out: Path, seed: int) -> tuple[list[bytes], list[float]]:
    """The bytes of a run of a model that draws from torch's generator, which threads share."""
    run = simulate(DROPPING, seed=seed, executor="serial", out=out / str(seed))
    return [array.tobytes() for _, array in sorted(run.tensors().items())], run.evaluations["loss"].tolist()


def around() -> tuple[object, ...]:
    """What a process has one of."""
    state = torch.get_rng_state().numpy().tobytes()
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    return gc.get_threshold(), torch.get_num_threads(), state, np.geterr(), handlers, dict(os.environ)


def test_threads_at_once_make_the_same_bytes_and_leave_the_process_as_it_was(tmp_path: Path) -> None:
    alone = [made(tmp_path / "alone", seed) for seed in range(6)]
    before = around()
    with ThreadPoolExecutor(6) as several:
        assert list(several.map(partial(made, tmp_path / "together"), range(6))) == alone
    assert around() == before


def test_the_collector_is_restored_whoever_leaves_first() -> None:
    before = gc.get_threshold()
    first, second = few_collections(young_too=True), few_collections(young_too=False)
    with first:
        young, middle, old = gc.get_threshold()
        assert (young, middle, old) == (100 * before[0], before[1], 1000 * before[2])
        second.__enter__()
        assert gc.get_threshold() == (before[0], middle, old)  # training leaves cycles that are large
    assert gc.get_threshold() == (before[0], middle, old)
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_the_collector_is_not_asked_for_more_than_it_can_count() -> None:
    before = gc.get_threshold()
    gc.set_threshold(2**30, 10, 2**30)
    try:
        with few_collections(young_too=True), few_collections(young_too=True):
            assert gc.get_threshold() == (2**31 - 1, 10, 2**31 - 1)
        assert gc.get_threshold() == (2**30, 10, 2**30)
    finally:
        gc.set_threshold(*before)
