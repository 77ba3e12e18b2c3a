"""What other tests share with test_analyse_evidence.py."""

from pathlib import Path

import numpy as np

from fairlag.core.types import Aggregation, Dispatch
from fairlag.lab.run import Run
from fairlag.lab.store import Store

LEAN = {
    "name": "lean",
    "aggregations": 300,
    "clients": [
        {"group": "fast", "count": 4, "delay": "uniform(1, 2)"},
        {"group": "slow", "count": 2, "delay": "uniform(8, 12)"},
    ],
    "strategies": [{"use": "fedbuff", "concurrency": 3, "buffer": 2}],
}


def shuffled(folder: Path, *, clients: int = 4, tasks: int = 8) -> Run:
    """Clients of two groups in turn; the tasks of each follow one another and last a second, each makes a version."""
    store = Store.create(
        folder,
        {"experiment": "demo", "label": "Turns", "use": "fedavg", "seed": 3, "aggregations": tasks},
        experiment='{"name": "demo"}',
        groups=["even", "odd"],
        group_of=np.arange(clients) % 2,
        examples=np.ones(clients, int),
    )
    with store:
        for place in range(tasks):
            ordinal, client = divmod(place, clients)
            task = Dispatch(place, client, place // 2, ordinal, float(ordinal))
            stale, weight = np.array([place - place // 2]), np.array([1.0])
            store.record(Aggregation(place + 1, ordinal + 1.0, (task,), [ordinal + 1.0], stale, weight, False))
        store.finish({}, "done")
    return Run(folder)
