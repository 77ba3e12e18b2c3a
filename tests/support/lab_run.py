"""What other tests share with test_lab_run.py."""

from math import inf, nan
from pathlib import Path

import numpy as np

from fairlag.core.types import Aggregation, Dispatch, Ended, Outcome
from fairlag.lab.run import Run
from fairlag.lab.store import Score, Store


def made(
    folder: Path,
    *,
    label: str = "FedAvg",
    seed: int = 0,
    gain: int = 0,
    finished: bool = True,
    first: int | None = None,
    **more: object,
) -> Run:
    """Two fast clients and a slow one, two versions; `gain` more are right in the end, and `first` in the beginning."""
    meta = {"experiment": "demo", "label": label, "use": "fedavg", "seed": seed, "aggregations": 2, **more}
    store = Store.create(
        folder,
        meta,
        experiment='{"name": "demo"}',
        groups=["fast", "slow"],
        group_of=np.array([0, 0, 1]),
        examples=np.array([10, 10, 20]),
    )
    with store:
        if first is not None:
            store.evaluated(0, 0.0, scores(whole=False, right=first))
        tasks = (Dispatch(0, 0, 0, 0, 0.0), Dispatch(1, 1, 0, 0, 0.0))
        store.record(Aggregation(1, 2.0, tasks, [1.0, 2.0], np.array([0, 0]), np.array([0.5, 0.5]), False))
        store.record(Ended(Dispatch(4, 1, 1, 1, 2.0), 3.0, Outcome.REFUSED, "too old"))
        store.evaluated(1, 2.0, scores(whole=False, right=50))
        store.commit({}, "", 1, refusals={"too old": 1})
        if finished:
            second = (Dispatch(2, 2, 0, 0, 0.0), Dispatch(3, 0, 1, 1, 2.0))
            store.record(Aggregation(2, 9.0, second, [8.0, 9.0], np.array([1, 0]), np.array([0.75, 0.25]), True))
            store.evaluated(2, 9.0, [*scores(whole=False, right=70 + gain), *scores(whole=True, right=64 + gain)])
            store.finish({"bias": np.ones(2, np.float32)}, "2 aggregations were made")
    return Run(folder)


def scores(*, whole: bool, right: int) -> list[Score]:
    halves = [Score("group", "fast", 50, right // 2, 1.0, whole), Score("group", "slow", 50, right // 2, nan, whole)]
    return [Score("all", "", 100, right, inf, whole), *halves]
