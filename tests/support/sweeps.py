"""Small sweeps on digits, whose test examples can be replaced by nonsense."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlag.data.load import load
from fairlag.lab.executors import ExecutorChoice
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.sweep.make import make
from fairlag.lab.sweep.plan import SweepPlan
from fairlag.lab.sweep.result import RESULT
from tests.support.experiments import three_on_digits

nonsense = False
"""Are the test examples nonsense?"""

BUFFERED = {"use": "buffered_fedavg", "buffer": 2}
FEDBUFF = {"use": "fedbuff", "buffer": 2, "concurrency": 2}


def digits() -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The digits with an official test part of 300."""
    found = load("digits", {})
    inputs, labels = found.inputs.astype(np.float32) / 16, found.labels
    test, answers = inputs[-300:], labels[-300:]
    if nonsense:
        test, answers = test[:, ::-1] * 7, (answers + 3) % 10
    return inputs[:-300], labels[:-300], test, answers


def swept(*uses: dict[str, Any], data: dict[str, Any] | None = None, **sweep: Any) -> Experiment:
    """A sweep of two values of two keys, unless asked otherwise."""
    tables = three_on_digits("swept", slow="uniform(4, 6)", model="logistic", lr=0.05)
    table = {"over": {"lr": [0.5, 1.0], "local": {"lr": [0.02, 0.2]}}, "seeds": 2, "tests": 2, **sweep}
    if data is not None:
        tables["data"] = data
    evaluate = {"every": 4, "sample": 100}
    return parse(
        {**tables, "evaluate": evaluate, "aggregations": 24, "strategies": uses or (BUFFERED, FEDBUFF), "sweep": table}
    )


def quiet(part: str, done: int, total: int) -> None:
    """Reports no progress."""


def made(experiment: Experiment, folder: Path, workers: int = 1) -> SweepPlan:
    """A finished sweep in a new folder."""
    plan = SweepPlan(experiment, folder)
    make(plan, ExecutorChoice(workers=workers), quiet, new=True)
    return plan


def outcome(folder: Path) -> bytes:
    """The bytes of what came of all trials."""
    return (folder / RESULT).read_bytes()
