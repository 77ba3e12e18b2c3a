"""Trials: single runs of an experiment without learning, in this process or in workers, always in the same order."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import numpy as np

from fairlag.errors import FairlagError, InputError, StrategyError
from fairlag.execute import children
from fairlag.fleet.clients import Fleet
from fairlag.lab.experiment import Experiment
from fairlag.runtime import virtual
from fairlag.server import Server
from fairlag.types import Aggregation, Ended, Floats, Integers, Record, Stop

Result = TypeVar("Result")
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Trial:
    """One run: which strategy of the experiment, which seed, how long, and who throttles itself how much."""

    strategy: int
    seed: int
    aggregations: int | None
    until_time: float | None
    client: int = 0
    throttle: float = 1.0


@dataclass(frozen=True, slots=True)
class Observation:
    """What a trial showed, per client and in all."""

    updates: Integers
    weights: Floats
    staleness: Integers
    histogram: tuple[Integers, ...]
    """For each group, how many of its updates had staleness 0, 1, 2 …"""
    lightest: float
    heaviest: float
    virtual_time: float
    aggregations: int
    partial: int
    refused: int
    lost: int
    reason: str


def influence(experiment: Experiment, trial: Trial) -> tuple[float, int]:
    """The share of all weight that the trial's client got, and for how many updates."""
    server, _, _ = _run(experiment, trial, None)
    view = server.view
    total = float(view.weight_sums.sum())
    share = float(view.weight_sums[trial.client]) / total if total else 0.0
    return share, int(view.update_counts[trial.client])


def observe(experiment: Experiment, trial: Trial) -> Observation:
    """Everything that an audit wants to know of a trial."""
    senders: list[int] = []
    late: list[Integers] = []
    heavy: list[Floats] = []

    def record(row: Aggregation | Ended) -> None:
        if isinstance(row, Aggregation):
            senders.extend([task[1] for task in row.tasks])
            late.append(row.staleness)
            heavy.append(row.weights)

    server, fleet, stop = _run(experiment, trial, record)
    view, counts = server.view, server.counts
    label = experiment.strategies[trial.strategy].label
    if not view.version:
        raise InputError(f"{label} made no version before its run ended: {stop.reason}")
    weights, staleness = np.concatenate(heavy), np.concatenate(late)
    if weights.min() < 0 or not 0 < view.weight_sums.sum() < np.inf:
        raise StrategyError(f"{label} cannot be audited: its weights must not be negative, nor all 0 or endless")
    groups = fleet.group_of[senders]
    return Observation(
        updates=view.update_counts.copy(),
        weights=view.weight_sums.copy(),
        staleness=view.staleness_sums.copy(),
        histogram=tuple(np.bincount(staleness[groups == group]) for group in range(len(experiment.clients))),
        lightest=float(weights.min()),
        heaviest=float(weights.max()),
        virtual_time=view.time,
        aggregations=view.version,
        partial=server.partial,
        refused=counts["refused"],
        lost=counts["lost"],
        reason=stop.reason,
    )


def _run(experiment: Experiment, trial: Trial, record: Record | None) -> tuple[Server, Fleet, Stop]:
    fleet = experiment.fleet(trial.seed)
    if trial.throttle != 1:
        fleet = fleet.throttled(trial.client, trial.throttle)
    server = Server(
        experiment.strategy(experiment.strategies[trial.strategy]),
        clients=fleet.clients,
        seed=trial.seed,
        aggregations=trial.aggregations,
        until_time=trial.until_time,
        record=record,
    )
    return server, fleet, virtual.run(server, fleet)


class Bench:
    """Runs trials, in this process or in several; results come in the order of the trials, whatever finishes first."""

    def __init__(self, experiment: Experiment, *, workers: int = 1) -> None:
        self._experiment = experiment
        self._pool: ProcessPoolExecutor | None = None
        self._others = set(multiprocessing.active_children())
        if workers > 1:
            children.check_that_it_travels(experiment)
            self._pool = ProcessPoolExecutor(workers, children.CONTEXT, initializer=children.settle_in)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._pool is not None:
            if error is not None:
                for process in set(multiprocessing.active_children()) - self._others:
                    process.terminate()
            self._pool.shutdown(cancel_futures=True)

    def map(
        self, ask: Callable[[Experiment, Trial], Result], trials: Sequence[Trial], progress: Progress | None = None
    ) -> list[Result]:
        """Asks the same of every trial; `progress` is told after each."""
        task = partial(ask, self._experiment)
        answers: Iterator[Result] = map(task, trials)
        if self._pool is not None:
            with children.interrupts_held_back():
                answers = self._pool.map(task, trials, chunksize=2)
        results = []
        try:
            for result in answers:
                results.append(result)
                if progress is not None:
                    progress(1)
        except BrokenProcessPool:
            raise FairlagError("a worker process died, perhaps for want of memory: try one worker") from None
        return results
