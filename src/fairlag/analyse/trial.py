"""Trials: single runs of an experiment without learning, in this process or in workers, with results in order."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import numpy as np

from fairlag.analyse.tally import Tally
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Floats, Integers, Presence, Row
from fairlag.errors import InputError, StalledError, StrategyError
from fairlag.execute.crew import Crew
from fairlag.fleet.clients import Fleet
from fairlag.fleet.timing import Timing
from fairlag.lab.executors import usable
from fairlag.lab.experiment import Experiment
from fairlag.runtime import virtual
from fairlag.runtime.compiled.spec import plan_if_available

if TYPE_CHECKING:
    from fairlag.runtime.compiled.timeline import Timeline

_PAGE = 8192
"""The approximate number of updates that the compiled loop merges at a time."""

_QUARTERS = 4

NO_MARKS = sys.maxsize
"""A stride that no trial reaches."""

Result = TypeVar("Result")
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Trial:
    """One run: its strategy, seed and length, the client whose influence is measured, and the plans of clients."""

    strategy: int
    seed: int
    aggregations: int | None
    until_time: float | None
    client: int = 0
    """The client whose influence is measured."""
    plans: tuple[tuple[int, Timing], ...] = ()
    """The clients that follow their own plan, and the plan."""
    stride: int = NO_MARKS
    """The influence so far is noted at every version that is a multiple of this."""
    compiled: bool = False
    """May the compiled loop run it, if it supports the strategy and the fleet? The results are the same."""
    squares: bool = False
    """Are the squares of clients' weights summed, too?"""


@dataclass(frozen=True, slots=True)
class Observation:
    """The results of a trial, per client and in total."""

    updates: Integers
    weights: Floats
    staleness: Integers
    histogram: tuple[Integers, ...]
    """Per group: the number of its updates with staleness 0, 1, 2 …"""
    lightest: float
    heaviest: float
    virtual_time: float
    aggregations: int
    partial: int
    refused: int
    lost: int
    cancelled: int
    reason: str
    marks: Floats
    """The marks of :class:`Tally`, one at every multiple of the trial's stride."""
    busy: float
    """Seconds of work in updates that were merged."""
    wasted: float
    """Seconds of work in tasks that ended without being merged."""
    under_way: float
    """Seconds of work in tasks that were running at the end."""
    entitled: Floats
    """Per client: the versions that it was entitled to; clients that were present share each version."""
    presence: Floats
    """Per client: the seconds that it was present."""
    unmerged: Integers
    """Per client: its tasks that ended without being merged."""
    uploaded: Integers
    """Per client: its tasks that sent an update, which was refused."""
    squares: Floats
    """Per client: the square of its weight in a version, summed over versions; zeros if the trial does not ask."""


class Heard(NamedTuple):
    """What a trial shows about its client, without the warm-up."""

    before: float
    """Its share of all weight in the second quarter of the trial."""
    share: float
    """Its share of all weight in the second half, or in the whole trial if there are no marks."""
    updates: float
    """The number of its updates in the same time."""
    cost: int
    """The number of updates that the whole trial merged."""


def influence(experiment: Experiment, trial: Trial) -> Heard:
    """The influence of the trial's client; a trial with a stride must be four strides long.

    A client that leaves again and again may prevent all versions. Its influence is then 0.
    """
    try:
        seen = _seen(experiment, trial)
    except StalledError:
        if all(plan.leaves is None for _, plan in trial.plans):
            raise
        return Heard(0.0, 0.0, 0.0, 0)
    cost, total = int(seen.updates.sum()), float(seen.weights.sum())
    if len(seen.marks) < _QUARTERS:
        share = float(seen.weights[trial.client]) / total if total else 0.0
        return Heard(share, share, float(seen.updates[trial.client]), cost)
    first, half, _, end = seen.marks[:_QUARTERS]
    return Heard(_share(half - first), _share(end - half), float(end[2] - half[2]), cost)


def _share(mark: Floats) -> float:
    """The client's share of all weight, from the difference of two marks."""
    total = float(mark[3:].sum())
    return float(mark[1]) / total if total else 0.0


def observe(experiment: Experiment, trial: Trial) -> Observation:
    """All results of a trial, for an audit."""
    seen, label = _seen(experiment, trial), experiment.strategies[trial.strategy].label
    if not seen.aggregations:
        raise InputError(f"{label} made no version before its run ended: {seen.reason}")
    if seen.lightest < 0 or not 0 < seen.weights.sum() < np.inf:
        raise StrategyError(f"{label} cannot be audited: its weights must not be negative, nor all 0 or infinite")
    return seen


def _seen(experiment: Experiment, trial: Trial) -> Observation:
    return simulated(*_world(experiment, trial), trial)


def simulated(strategy: Strategy, fleet: Fleet, trial: Trial) -> Observation:
    """The results of the trial with this strategy on this fleet, by the compiled loop if it may and can run it."""
    return (_quickly(strategy, fleet, trial) if trial.compiled else None) or _by_the_server(strategy, fleet, trial)


def _world(experiment: Experiment, trial: Trial) -> tuple[Strategy, Fleet]:
    fleet = experiment.fleet(trial.seed)
    if trial.plans:
        fleet = fleet.planned(dict(trial.plans))
    return experiment.strategy(experiment.strategies[trial.strategy]), fleet


def _by_the_server(strategy: Strategy, fleet: Fleet, trial: Trial) -> Observation:
    """The results by the reference: the server in virtual time."""
    tally = Tally(fleet, trial.client, strategy.account, squares=trial.squares)

    def record(row: Row) -> None:
        tally.add(row)
        if isinstance(row, Aggregation) and not row.version % trial.stride:
            tally.mark(row.time, server.view.weight_sums, server.view.update_counts)

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
    tally.flush()
    view, counts = server.view, server.counts
    return Observation(
        updates=view.update_counts.copy(),
        weights=view.weight_sums.copy(),
        staleness=view.staleness_sums.copy(),
        histogram=tuple(tally.histogram),
        lightest=tally.lightest,
        heaviest=tally.heaviest,
        virtual_time=view.time,
        aggregations=view.version,
        partial=server.partial,
        refused=counts["refused"],
        lost=counts["lost"],
        cancelled=counts["cancelled"],
        reason=stop.reason,
        marks=tally.marks,
        busy=tally.busy,
        wasted=tally.wasted,
        under_way=sum(view.time - task.time for task in server.running.values()),
        entitled=tally.attendance.entitled(view.version),
        presence=tally.attendance.seconds(view.time),
        unmerged=tally.unmerged,
        uploaded=tally.refused,
        squares=tally.squares,
    )


def _timeline(strategy: Strategy, fleet: Fleet, trial: Trial) -> "Timeline | None":
    """The compiled loop, ready to begin; None if it cannot simulate the strategy on this fleet."""
    known = plan_if_available(strategy, fleet)
    if known is None:
        return None
    # Imported here, because it imports numba, which may be missing and takes as long to import as a small audit.
    from fairlag.runtime.compiled.timeline import Timeline

    page = None if trial.stride >= NO_MARKS else known.buffer * _page(trial.stride, known.buffer)
    return Timeline(
        known, fleet, seed=trial.seed, aggregations=trial.aggregations, until_time=trial.until_time, page=page
    )


def _page(stride: int, buffer: int) -> int:
    """The number of versions that are made at a time: about a page, such that every mark is at the end of a page."""
    parts = max(1, ceil(stride * buffer / _PAGE))
    return next(stride // count for count in range(parts, stride + 1) if not stride % count) if stride > 1 else 1


def quarter(versions: float) -> int:
    """A quarter of a trial with this number of versions, rounded up to a number that the compiled loop divides well.

    >>> quarter(4_000), quarter(40_004)
    (1024, 10240)
    """
    stride = ceil(versions / 4)
    unit = 1 << max(0, stride.bit_length() - 4)
    return -(-stride // unit) * unit


def _quickly(strategy: Strategy, fleet: Fleet, trial: Trial) -> Observation | None:
    """The results by the compiled loop; None if it does not support all of this."""
    timeline = _timeline(strategy, fleet, trial)
    if timeline is None:
        return None
    from fairlag.runtime.compiled.moment import running
    from fairlag.runtime.compiled.weights import Fallback

    tally = Tally(fleet, trial.client, strategy.account, squares=trial.squares)
    tally.add(Presence(0.0, 0, range(fleet.clients), True))
    try:
        for merges in timeline:
            tally.count(merges.clients.ravel(), merges.staleness.ravel(), merges.weights.ravel())
            tally.work((merges.arrivals - merges.given_at).ravel())
            if trial.squares:
                versions = np.repeat(np.arange(len(merges.clients)), merges.clients.shape[1])
                tally.square(versions, merges.clients.ravel(), merges.weights.ravel())
            if not timeline.version % trial.stride:
                tally.mark(float(merges.times[-1]), timeline.weights, timeline.updates)
    except Fallback:
        return None
    refused, cancelled = timeline.refused, timeline.cancelled
    return Observation(
        updates=timeline.updates,
        weights=timeline.weights,
        staleness=timeline.staleness,
        histogram=tuple(tally.histogram),
        lightest=tally.lightest,
        heaviest=tally.heaviest,
        virtual_time=timeline.time,
        aggregations=timeline.version,
        partial=0,
        refused=int(refused.sum()),
        lost=0,
        cancelled=int(cancelled.sum()),
        reason=timeline.reason,
        marks=tally.marks,
        busy=tally.busy,
        wasted=timeline.wasted,
        under_way=sum(timeline.time - task.time for _, task in running(timeline)),
        entitled=tally.attendance.entitled(timeline.version),
        presence=tally.attendance.seconds(timeline.time),
        unmerged=refused + cancelled,
        uploaded=refused,
        squares=tally.squares,
    )


class Bench:
    """Runs trials in this process or in several. Results are in the order of the trials, whatever finishes first."""

    def __init__(self, experiment: Experiment, *, workers: int = 1, keep_compiled: bool = False) -> None:
        """`workers` is the number of processes. With `keep_compiled`, this process runs trials of the compiled loop."""
        self._experiment = experiment
        self._keep_compiled = keep_compiled
        self._is_compiled = False
        self._crew = Crew(experiment, workers) if (workers := usable(workers)) > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._crew is not None:
            self._crew.close()

    def map(
        self, ask: Callable[[Experiment, Trial], Result], trials: Sequence[Trial], progress: Progress | None = None
    ) -> list[Result]:
        """Calls `ask` for every trial, and `progress` after each."""
        task = partial(ask, self._experiment)
        elsewhere = [trial for trial in trials if self._sends(trial)]
        answers: Iterator[Result] = iter(())
        if self._crew is not None and elsewhere:
            self._compile(elsewhere)
            answers = self._crew.answers(ask, elsewhere)
        results = []
        for trial in trials:
            results.append(next(answers) if self._sends(trial) else task(trial))
            if progress is not None:
                progress(1)
        return results

    def _compile(self, trials: Sequence[Trial]) -> None:
        """Compiles the loop once, in this process, which can say if it takes long; workers then load it."""
        first = next((trial for trial in trials if trial.compiled), None)
        if first is not None and not self._is_compiled:
            _timeline(*_world(self._experiment, first), first)
            self._is_compiled = True

    def _sends(self, trial: Trial) -> bool:
        """Does another process run this trial?"""
        return self._crew is not None and not (trial.compiled and self._keep_compiled)
