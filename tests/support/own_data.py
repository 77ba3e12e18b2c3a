"""Runs whose clients were tested on their own data, written by hand."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fairlag.core.types import Aggregation, Dispatch
from fairlag.lab.run import Run
from fairlag.lab.store import Store
from fairlag.learn.evaluation import ClientScore
from tests.support.scores import scored

GROUPS = ("fast", "slow")


def run_with_tests(
    folder: Path,
    values: Sequence[float],
    personalised: Sequence[float] = (),
    *,
    label: str = "FedAvg",
    seed: int = 0,
    metric: str = "accuracy",
    finished: bool = True,
    able: int | None = None,
) -> Run:
    """Two fast clients and a slow one with these values, 10, 20 and 30 test examples; then after steps of their own."""
    meta = {"experiment": "demo", "label": label, "seed": seed, "aggregations": 1, "clients_with_tests": able}
    group_of, examples = np.array([0, 0, 1]), np.array([90, 180, 270])
    with Store.create(folder, meta, experiment="", groups=GROUPS, group_of=group_of, examples=examples) as store:
        tasks = tuple(Dispatch(client, client, 0, 0, 0.0) for client in range(3))
        store.record(Aggregation(1, 1.0, tasks, [1.0] * 3, np.zeros(3, int), np.full(3, 1 / 3), False))
        groups = [scored("group", name, 100, 50, 1.0, True) for name in GROUPS]
        store.evaluated(1, 1.0, [scored("all", "", 200, 100, 1.0, True), *groups])
        for steps, found in ((0, values), (5, personalised)):
            store.tested(
                1, steps, [ClientScore(place, 10 + 10 * place, {metric: each}) for place, each in enumerate(found)]
            )
        if finished:
            store.finish({"bias": np.ones(2, np.float32)}, "1 aggregation was made")
        else:
            store.commit({}, "", 1)
    return Run(folder)
