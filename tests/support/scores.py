"""Scores of a classification, from what was counted; and runs that are judged by an error, of which less is better."""

from collections.abc import Mapping
from math import nan
from pathlib import Path

import numpy as np

from fairlag.core.types import Aggregation, Dispatch
from fairlag.lab.run import Run
from fairlag.lab.store import Score, Store

MSE = {"name": "mse", "higher": False, "rate": False}
R2 = {"name": "r2", "higher": True, "rate": False}


def scored(scope: str, name: str, examples: int, correct: int, loss: float, whole: bool = False) -> Score:
    """So many of the examples were right, and this is their mean loss."""
    return Score(scope, name, examples, {"accuracy": correct / examples if examples else nan, "loss": loss}, whole)


def regressed(
    folder: Path, *errors: float, label: str = "A", seed: int = 0, parts: Mapping[tuple[str, str], float] | None = None
) -> Run:
    """A run that is judged by its mean squared error, one version per number; `parts` have so many times that error.

    A fast client sends two updates, a slow one sends one.
    """
    clients = np.array([0, 1])
    meta = {"metrics": [MSE, R2], "experiment": "x", "label": label, "seed": seed}
    every = {("all", ""): 1.0, **(parts or {})}
    with Store.create(
        folder, meta, experiment="", groups=["fast", "slow"], group_of=clients, examples=clients
    ) as store:
        tasks = (Dispatch(0, 0, 0, 0, 0.0), Dispatch(1, 0, 0, 1, 0.0), Dispatch(2, 1, 0, 0, 0.0))
        store.record(Aggregation(1, 2.0, tasks, [1.0, 2.0, 2.0], np.zeros(3, int), np.full(3, 1 / 3), False))
        for version, error in enumerate(errors):
            found = [(key, {"loss": error, "mse": error * times, "r2": nan}) for key, times in every.items()]
            store.evaluated(version, 2.0 * version, [Score(*key, 10, values) for key, values in found])
        last = [(key, {"loss": 1.0, "mse": errors[-1] * times, "r2": 0.5}) for key, times in every.items()]
        store.evaluated(len(errors) - 1, 9.0, [Score(*key, 40, values, True) for key, values in last])
        store.finish({}, "done")
    return Run(folder)
