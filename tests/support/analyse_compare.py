"""What other tests share with test_analyse_compare.py."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fairlag.core.types import Aggregation, Dispatch
from fairlag.lab.run import Run
from fairlag.lab.store import Score, Store


def bare(
    folder: Path,
    label: str = "FedAvg",
    planned: int | None = 2,
    weight: float | None = None,
    groups: Sequence[str] = ("fast", "slow"),
) -> Run:
    """A run without evaluations, and without updates unless one has a weight."""
    meta = {"experiment": "demo", "label": label, "seed": 0, "aggregations": planned}
    sizes = np.array([0, 0])
    group_of = np.array([0, len(groups) - 1])
    with Store.create(folder, meta, experiment="", groups=groups, group_of=group_of, examples=sizes) as store:
        if weight is not None:
            tasks = (Dispatch(0, 0, 0, 0, 0.0), Dispatch(1, 1, 0, 0, 0.0))
            store.record(Aggregation(1, 1.0, tasks, [1.0, 1.0], np.array([0, 0]), np.array([1.0, weight]), False))
        store.evaluated(0, 0.0, [Score("group", "slow", 0, 0, 0.0)])
        store.commit({}, "", 0)
    return Run(folder)
