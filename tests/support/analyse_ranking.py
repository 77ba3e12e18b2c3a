"""What other tests share with test_analyse_ranking.py."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fairlag.core.types import Aggregation, Dispatch
from fairlag.lab.run import Run
from fairlag.lab.store import Score, Store


def played(
    folder: Path,
    label: str,
    *,
    right: tuple[int, int] = (50, 50),
    influence: Sequence[float] = (0.25, 0.25, 0.5),
    time: float = 1.0,
    sent: Sequence[int] = (0, 1, 0, 1, 2),
    seed: int = 0,
    finished: bool = True,
    groups: tuple[str, str] = ("fast", "slow"),
) -> Run:
    """One aggregation at a time of what these clients sent: 0 and 1 are fast, 2 is slow; then so many right of 100."""
    meta = {"experiment": "demo", "label": label, "seed": seed, "aggregations": 1}
    group_of, examples = np.array([0, 0, 1]), np.array([1, 1, 1])
    with Store.create(folder, meta, experiment="", groups=groups, group_of=group_of, examples=examples) as store:
        tasks = tuple(Dispatch(task, client, 0, 0, 0.0) for task, client in enumerate(sent))
        weights = np.array([influence[client] / sent.count(client) for client in sent])
        if sent:
            ended = [time] * len(sent)
            store.record(Aggregation(1, time, tasks, ended, np.zeros(len(sent), int), weights, False))
        scores = [Score("group", name, 100, count, 1.0, True) for name, count in zip(groups, right, strict=True)]
        store.evaluated(1, time, [Score("all", "", 200, sum(right), 1.0, True), *scores])
        if finished:
            store.finish({"bias": np.ones(2, np.float32)}, "1 aggregation was made")
        else:
            store.commit({}, "", 1)
    return Run(folder)
