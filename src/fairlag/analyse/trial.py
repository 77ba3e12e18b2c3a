"""Trials: single runs of an experiment without learning, in this process or in workers, always in the same order."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np

from fairlag.errors import FairlagError, InputError, StrategyError
from fairlag.execute import children
from fairlag.fleet.clients import Fleet
from fairlag.lab.experiment import Experiment
from fairlag.runtime import virtual
from fairlag.runtime.compiled.plan import plan
from fairlag.server import Server
from fairlag.strategy import Strategy
from fairlag.types import Aggregation, Ended, Floats, Integers

if TYPE_CHECKING:
    from fairlag.runtime.compiled.timeline import Timeline

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
    compiled: bool = False
    """May the compiled loop take it, where it knows the strategy and the fleet? It shows the same."""


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
    seen = _seen(experiment, trial)
    total = float(seen.weights.sum())
    share = float(seen.weights[trial.client]) / total if total else 0.0
    return share, int(seen.updates[trial.client])


def observe(experiment: Experiment, trial: Trial) -> Observation:
    """Everything that an audit wants to know of a trial."""
    seen, label = _seen(experiment, trial), experiment.strategies[trial.strategy].label
    if not seen.aggregations:
        raise InputError(f"{label} made no version before its run ended: {seen.reason}")
    if seen.lightest < 0 or not 0 < seen.weights.sum() < np.inf:
        raise StrategyError(f"{label} cannot be audited: its weights must not be negative, nor all 0 or endless")
    return seen


def _seen(experiment: Experiment, trial: Trial) -> Observation:
    strategy, fleet = _world(experiment, trial)
    return (_quickly(strategy, fleet, trial) if trial.compiled else None) or _by_the_server(strategy, fleet, trial)


def _world(experiment: Experiment, trial: Trial) -> tuple[Strategy, Fleet]:
    fleet = experiment.fleet(trial.seed)
    if trial.throttle != 1:
        fleet = fleet.throttled(trial.client, trial.throttle)
    return experiment.strategy(experiment.strategies[trial.strategy]), fleet


class _Updates:
    """What is counted of single updates."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.histogram: list[Integers] = [np.zeros(0, np.int64) for _ in fleet.groups]
        self.lightest, self.heaviest = np.inf, -np.inf

    def count(self, senders: Integers, staleness: Integers, weights: Floats) -> None:
        groups = self._fleet.group_of[senders]
        for group, before in enumerate(self.histogram):
            self.histogram[group] = added([before, np.bincount(staleness[groups == group])])
        self.lightest = min(self.lightest, float(weights.min(initial=np.inf)))
        self.heaviest = max(self.heaviest, float(weights.max(initial=-np.inf)))


def added(histograms: Sequence[Integers]) -> Integers:
    """The sum of histograms of any length.

    >>> added([np.array([1, 2]), np.array([1, 0, 5])]).tolist()
    [2, 2, 5]
    """
    total = np.zeros(max(map(len, histograms)), np.int64)
    for histogram in histograms:
        total[: len(histogram)] += histogram
    return total


def _by_the_server(strategy: Strategy, fleet: Fleet, trial: Trial) -> Observation:
    """By the reference: the server in virtual time."""
    senders: list[int] = []
    late: list[Integers] = [np.empty(0, np.int64)]
    heavy: list[Floats] = [np.empty(0)]

    def record(row: Aggregation | Ended) -> None:
        if isinstance(row, Aggregation):
            senders.extend([task[1] for task in row.tasks])
            late.append(row.staleness)
            heavy.append(row.weights)

    server = Server(
        strategy,
        clients=fleet.clients,
        seed=trial.seed,
        aggregations=trial.aggregations,
        until_time=trial.until_time,
        group_of=fleet.group_name,
        record=record,
    )
    stop = virtual.run(server, fleet)
    updates, view, counts = _Updates(fleet), server.view, server.counts
    updates.count(np.array(senders, np.int64), np.concatenate(late), np.concatenate(heavy))
    return Observation(
        updates=view.update_counts.copy(),
        weights=view.weight_sums.copy(),
        staleness=view.staleness_sums.copy(),
        histogram=tuple(updates.histogram),
        lightest=updates.lightest,
        heaviest=updates.heaviest,
        virtual_time=view.time,
        aggregations=view.version,
        partial=server.partial,
        refused=counts["refused"],
        lost=counts["lost"],
        reason=stop.reason,
    )


def _timeline(strategy: Strategy, fleet: Fleet, trial: Trial) -> "Timeline | None":
    """The compiled loop, ready to begin; None where it does not know the strategy or the fleet."""
    known = plan(strategy, fleet)
    if isinstance(known, str):
        return None
    # Here, because it imports numba, which need not be there, and takes as long as a small audit.
    from fairlag.runtime.compiled.timeline import Timeline

    return Timeline(known, fleet, seed=trial.seed, aggregations=trial.aggregations, until_time=trial.until_time)


def _quickly(strategy: Strategy, fleet: Fleet, trial: Trial) -> Observation | None:
    """By the compiled loop; None where it does not know all of this."""
    timeline = _timeline(strategy, fleet, trial)
    if timeline is None:
        return None
    from fairlag.runtime.compiled.weights import Doubt

    updates = _Updates(fleet)
    try:
        for merges in timeline:
            updates.count(merges.clients.ravel(), merges.staleness.ravel(), merges.weights.ravel())
    except Doubt:
        return None
    return Observation(
        updates=timeline.updates,
        weights=timeline.weights,
        staleness=timeline.staleness,
        histogram=tuple(updates.histogram),
        lightest=updates.lightest,
        heaviest=updates.heaviest,
        virtual_time=timeline.time,
        aggregations=timeline.version,
        partial=0,
        refused=timeline.refused,
        lost=0,
        reason=timeline.reason,
    )


class Bench:
    """Runs trials, in this process or in several; results come in the order of the trials, whatever finishes first."""

    def __init__(self, experiment: Experiment, *, workers: int = 1, keep_compiled: bool = False) -> None:
        """So many processes; with `keep_compiled`, trials of the compiled loop are run in this one anyway."""
        self._experiment = experiment
        self._keep_compiled = keep_compiled
        self._is_compiled = False
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
        elsewhere = [trial for trial in trials if self._sends(trial)]
        answers: Iterator[Result] = iter(())
        if self._pool is not None and elsewhere:
            self._compile(elsewhere)
            with children.interrupts_held_back():
                answers = self._pool.map(task, elsewhere, chunksize=2)
        results = []
        try:
            for trial in trials:
                results.append(next(answers) if self._sends(trial) else task(trial))
                if progress is not None:
                    progress(1)
        except BrokenProcessPool:
            raise FairlagError("a worker process died, perhaps for want of memory: try one worker") from None
        return results

    def _compile(self, trials: Sequence[Trial]) -> None:
        """Once, and here, where it is said if it takes long: workers then load it."""
        first = next((trial for trial in trials if trial.compiled), None)
        if first is not None and not self._is_compiled:
            _timeline(*_world(self._experiment, first), first)
            self._is_compiled = True

    def _sends(self, trial: Trial) -> bool:
        """Does another process run this trial?"""
        return self._pool is not None and not (trial.compiled and self._keep_compiled)
