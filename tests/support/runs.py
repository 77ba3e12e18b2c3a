"""Runs for tests that read them: written into a store by hand, or simulated without training."""

from collections.abc import Sequence
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairlag.core.types import Aggregation, Dispatch, Ended, Outcome
from fairlag.lab.experiment import parse
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.runs import runs
from fairlag.lab.simulate import execute
from fairlag.lab.store import Score, Store
from tests.support.scores import scored


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
        store.evaluated(0, 0.0, [scored("group", "slow", 0, 0, 0.0)])
        store.commit({}, "", 0)
    return Run(folder)


def curve(times: list[float], accuracies: list[float]) -> pd.DataFrame:
    """An evaluation every ten aggregations."""
    versions = 10 * np.arange(len(times))
    return pd.DataFrame({"time": times, "version": versions, "accuracy": accuracies, "standard_error": 0.01})


def shuffled(folder: Path, *, clients: int = 4, tasks: int = 8) -> Run:
    """Clients of two groups, in turn. Each task lasts one second, follows the last one, and makes one version."""
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
    """One aggregation of updates from these clients (0 and 1 are fast, 2 is slow); then `right` of 100 are correct."""
    meta = {"experiment": "demo", "label": label, "seed": seed, "aggregations": 1}
    group_of, examples = np.array([0, 0, 1]), np.array([1, 1, 1])
    with Store.create(folder, meta, experiment="", groups=groups, group_of=group_of, examples=examples) as store:
        tasks = tuple(Dispatch(task, client, 0, 0, 0.0) for task, client in enumerate(sent))
        weights = np.array([influence[client] / sent.count(client) for client in sent])
        if sent:
            ended = [time] * len(sent)
            store.record(Aggregation(1, time, tasks, ended, np.zeros(len(sent), int), weights, False))
        scores = [scored("group", name, 100, count, 1.0, True) for name, count in zip(groups, right, strict=True)]
        store.evaluated(1, time, [scored("all", "", 200, sum(right), 1.0, True), *scores])
        if finished:
            store.finish({"bias": np.ones(2, np.float32)}, "1 aggregation was made")
        else:
            store.commit({}, "", 1)
    return Run(folder)


def strategies(folder: Path, **rights: list[int]) -> list[Run]:
    """One run per seed: how many of a hundred were right in the end."""
    return [
        played(folder / f"{label}{seed}", label, right=(right, right), seed=seed)
        for label, values in rights.items()
        for seed, right in enumerate(values)
    ]


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
    """Two fast clients and a slow one, two versions; `gain` more are correct at the end, `first` at the beginning."""
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
    halves = [scored("group", "fast", 50, right // 2, 1.0, whole), scored("group", "slow", 50, right // 2, nan, whole)]
    return [scored("all", "", 100, right, inf, whole), *halves]


def runs_of(folder: Path, experiment: dict[str, Any], *seeds: int) -> list[Run]:
    """The runs of an experiment, one per strategy and seed."""
    execute(Plan(parse(experiment), seeds or (0,), folder), new=True, workers=1)
    return runs(folder)


NOISE = {"clip": 1.0, "noise": 2.0, "delta": 1e-5}


def noisy(
    folder: Path,
    use: str = "buffered_fedavg",
    *,
    privacy: dict[str, Any] | None = NOISE,
    aggregations: int = 250,
) -> Run:
    """A run without training of four fast and two slow clients; `privacy` is its table of that name."""
    tables = {
        "name": "noisy",
        "aggregations": aggregations,
        "clients": [
            {"group": "fast", "count": 4, "delay": "uniform(1, 2)"},
            {"group": "slow", "count": 2, "delay": "uniform(3, 6)"},
        ],
        "strategies": [{"use": use, "buffer": 2}],
    }
    (run,) = runs_of(folder, tables if privacy is None else {**tables, "privacy": privacy})
    return run
