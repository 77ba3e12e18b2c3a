"""A small store, its content, and a process that writes until it is killed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fairlag.core.types import Aggregation, Dispatch
from fairlag.lab import folder as room
from fairlag.lab.store import Store

STATE = {"parameters": np.arange(3, dtype=np.float32), "clock": np.array(2.5), "counts": np.arange(6).reshape(2, 3).T}


def create(folder: Path, clients: int = 3, keep: int = 2) -> Store:
    meta = {"experiment": "demo", "label": "FedAvg", "use": "fedavg", "seed": 0, "aggregations": 2}
    groups = np.arange(clients) % 2
    names, examples = ["fast", "slow"], np.full(clients, 7)
    return Store.create(folder, meta, experiment="{}", groups=names, group_of=groups, examples=examples, keep=keep)


def aggregation(version: int) -> Aggregation:
    tasks = tuple(Dispatch(2 * version + place, place, version - 1, version, 0.5) for place in (0, 1))
    return Aggregation(
        version,
        float(version),
        tasks,
        [version - 0.25, float(version)],
        np.array([0, 1]),
        np.array([0.25, 0.75]),
        version == 2,
    )


def rows(folder: Path, table: str) -> list[tuple[object, ...]]:
    with room.reading(folder) as database:
        return database.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()


def alone(function: Callable[[Path], None], folder: Path) -> None:
    name = f"from {function.__module__} import {function.__name__} as do"
    code = f"from pathlib import Path; {name}; do(Path({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def write(folder: Path) -> None:
    """Commits forever, three versions at a time."""
    with Store.open(folder) if room.is_run(folder) else create(folder) as store:
        kept = store.checkpoint()
        version = int(kept[1]) if kept else 0
        while True:
            for _ in range(3):
                version += 1
                store.record(aggregation(version))
            store.commit(STATE, str(version), version)
