"""The audit of an experiment: how much influence clients have, how stale updates are, and what cheating would gain."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from math import ceil, isnan, nan
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from fairlag.analyse import fairness, theory
from fairlag.analyse.bounds import Bounds, bounds
from fairlag.analyse.case import Case
from fairlag.analyse.cheating import Cheating, cheating
from fairlag.analyse.deployment import MARKS, Deployment, GroupDeployment, by_group, deployment
from fairlag.analyse.effort import Compiling, enough_seeds
from fairlag.analyse.identities import Identities
from fairlag.analyse.incentives import WANTED, Incentive
from fairlag.analyse.metrics import Measured, Scope, Shown, select
from fairlag.analyse.predictions import predicted
from fairlag.analyse.progress import Progress, counter
from fairlag.analyse.settling import Equilibrium, Untried, equilibria, priced
from fairlag.analyse.spread import Spread
from fairlag.analyse.tally import added
from fairlag.analyse.throttling import Throttling
from fairlag.analyse.timings import Found, Timings
from fairlag.analyse.totals import Totals
from fairlag.analyse.trial import Bench, Observation, Trial, observe
from fairlag.core.types import Floats, Integers
from fairlag.errors import InputError
from fairlag.execute.child import stop_if_started_again
from fairlag.fleet.clients import Fleet
from fairlag.lab.experiment import Experiment, given
from fairlag.lab.worth import expected_updates, updates_per_version

MOST_SEEDS = 10_000


@dataclass(frozen=True, slots=True)
class GroupAudit(Measured[float]):
    """The results of one client group under one strategy, averaged over seeds."""

    name: str
    clients: int
    metrics: Mapping[str, float]
    staleness_predicted: float
    share_predicted: float
    throttle_predicted: float
    histogram: Integers
    incentive: Incentive
    """What constant throttling gains one of its clients, in the long run."""
    cheat: Found
    """The timing that gains one of its clients most, including constant throttling."""
    identities: Identities
    deployment: GroupDeployment

    @property
    def due(self) -> float:
        """The share of all versions that one of its clients is entitled to, on average."""
        return self.entitled / self.clients

    def as_json(self, *, tried: bool) -> dict[str, Any]:
        """The fields of `fairlag audit --json`; those of throttling are None if they are not known."""
        incentive, tried = self.incentive, tried and self.incentive.heard
        found = {
            **{_JSON.get(name, name): value for name, value in self.metrics.items()},
            "staleness_predicted": self.staleness_predicted,
            **asdict(self.deployment),
            "throttle_gain": incentive.throttle_gain if tried else None,
            "throttle_gain_error": incentive.gain_error if tried and not incentive.truthful else None,
            "throttle_gain_at_most": incentive.largest_gain if tried and incentive.truthful else None,
        }
        return {
            "clients": self.clients,
            **_rounded(found),
            "best_throttle": incentive.best_throttle if tried else None,
            **self.cheat.as_json(),
            "identities": self.identities.as_json(),
        }


@dataclass(frozen=True, slots=True)
class StrategyAudit(Measured[float]):
    """The results of one strategy on the fleet, averaged over seeds."""

    label: str
    use: str
    metrics: Mapping[str, float]
    """Each metric, averaged over seeds as in `fairlag compare`."""
    updates: int
    virtual_time: float
    aggregations: int
    buffer: float
    shares: Floats
    """Per client: its share of all updates."""
    influences: Floats
    """One row per seed, one column per client: its share of all weight."""
    entitlements: Floats
    """One row per seed, one column per client: the share of all versions that it is entitled to."""
    staleness: Floats
    """Per client: the mean over its updates; NaN if it sent none."""
    groups: tuple[GroupAudit, ...]
    weights: tuple[float, float]
    """The lightest and the heaviest weight of an update."""
    partial: int
    lost: int
    refused: int
    cancelled: int
    reasons: tuple[str, ...]
    unseen: bool
    """Does it depend on what only training shows, such as updates or losses? In an audit these are all alike."""
    deployment: Deployment
    throttling: Throttling
    timings: Timings
    bounds: Bounds | None
    """The bounds of its weights, if they are capped."""
    rest: Equilibrium | Untried | None = None
    """The state in which the fleet settles, if updates have a cost."""

    @property
    def influence(self) -> Floats:
        """Per client: its share of all weight, averaged over seeds."""
        return np.asarray(self.influences.mean(axis=0))

    def over_seeds(self, measure: Callable[[Floats], float]) -> list[float]:
        """A measure of evenness, one value per seed."""
        return [measure(row) for row in self.influences]

    @property
    def jains_entitled(self) -> list[float]:
        """Jain's index of influence ÷ entitlement, one value per seed."""
        return list(map(fairness.jain_entitled, self.influences, self.entitlements))

    @property
    def comes_and_goes(self) -> bool:
        """Are clients entitled to different shares, because they were not always present, or by `importance`?"""
        return fairness.comes_and_goes(self.entitlements.mean(axis=0))

    @property
    def welfare(self) -> float:
        """The welfare objective, averaged over seeds."""
        return fmean(self.over_seeds(fairness.welfare))

    @property
    def largest_deviation(self) -> float:
        """The largest deviation from a fair share, averaged over seeds."""
        return fmean(self.over_seeds(fairness.largest_deviation))

    @property
    def whole_buffer(self) -> int:
        """The mean number of updates per version, rounded to a whole number of at least 1."""
        return max(1, round(self.buffer))

    def as_json(self) -> dict[str, Any]:
        """The fields of `fairlag audit --json`."""
        return {
            "label": self.label,
            "use": self.use,
            "updates": self.updates,
            "virtual_time": round(self.virtual_time, 6),
            **_rounded(self.metrics),
            "cap_needed": None if self.bounds is None else round(self.bounds.cap_needed, 6),
            **_rounded(asdict(self.deployment)),
            "throttling": self.throttling.as_json(),
            "timings": self.timings.as_json(),
            "groups": {group.name: group.as_json(tried=self.throttling.tried) for group in self.groups},
            **({} if self.rest is None else {"equilibrium": self.rest.as_json()}),
        }


def records(audits: Iterable[StrategyAudit]) -> list[dict[str, Any]]:
    """One record of plain values per strategy and group, for a file of numbers."""
    return [
        {"strategy": audit.label, "group": group.name}
        | {
            name: value
            for name, value in group.as_json(tried=audit.throttling.tried).items()
            if not isinstance(value, dict | list)
        }
        for audit in audits
        for group in audit.groups
    ]


_JSON = {"per_presence": "influence_per_presence"}
"""Metrics of groups that have a different name in JSON."""


def _rounded(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if value is None or isnan(value) else round(value, 6) for name, value in numbers.items()}


def audit(
    experiment: Experiment | Mapping[str, Any] | str | Path,
    *,
    seeds: int | None = None,
    workers: int = 1,
    incentive_updates: int | None = None,
    incentive_error: float = WANTED,
    compiled: bool | None = None,
    progress: Progress | None = None,
) -> list[StrategyAudit]:
    """Simulates every strategy of an experiment without learning, and measures what cheating would gain a client.

    `experiment` is an Experiment, its tables, a file or a preset. If its updates have a `cost`, the audit also computes
    the state in which the fleet settles.

    The runs that measure fairness are as long as the experiment. Those that measure throttling are as long as the
    wanted `incentive_error` of a relative gain requires. They merge at most `incentive_updates` updates per strategy;
    if that is not enough, `throttling.advice` names a number that is. The search for other timings may merge the same
    number again, and so may the trials of other identities.

    With the extra `fast`, long audits use the compiled loop for the strategies that it supports. `compiled=True` uses
    it for short audits too, `compiled=False` never. The numbers are the same, except that the compiled loop affords
    more updates by default.

    >>> from fairlag.lab.experiment import load
    >>> first, *_ = audit(load("demo").checked(aggregations=20), seeds=1, incentive_updates=10_000)
    >>> first.label, first.updates
    ('Buffered FedAvg', 100)
    >>> first.throttling.tried, first.throttling.advice
    (False, '--incentive-updates 17000000')
    """
    stop_if_started_again()
    experiment = given(experiment)
    _check_same_work(experiment)
    seeds = enough_seeds(experiment) if seeds is None else seeds
    if not 1 <= seeds <= MOST_SEEDS:
        raise InputError(f"the number of seeds of an audit is {seeds:,}, it must be from 1 to {MOST_SEEDS:,}")
    if not 0 < incentive_error < 1:
        raise InputError(f"the incentive error is {incentive_error}, it must be between 0 and 1, such as {WANTED}")
    compiling = Compiling(experiment, seeds=seeds, incentive_updates=incentive_updates, wanted=compiled)
    with Bench(experiment, workers=workers, keep_compiled=compiling.here) as bench:
        observations = _observed(experiment, bench, seeds, compiling.strategies, progress)
        cheated: list[Cheating] = []
        for number, seen in enumerate(observations):
            if (same := compiling.same_timeline(number)) is not None:
                cheated.append(cheated[same])
                continue
            case = Case(experiment, bench, number, seen, compiling.strategies[number], incentive_updates)
            cheated.append(cheating(case, wanted=incentive_error, progress=progress))
    found = [_summary(experiment, number, *each) for number, each in enumerate(zip(observations, cheated, strict=True))]
    if not priced(experiment):
        return found
    rests = equilibria(experiment, workers=workers, budget=incentive_updates, progress=progress)
    return [replace(each, rest=rest) for each, rest in zip(found, rests, strict=True)]


def _check_same_work(experiment: Experiment) -> None:
    """Refuses strategies whose tasks take a different amount of work: an audit gives all of them the same fleet."""
    for use in experiment.strategies:
        if own := {"steps", "epochs", "batch"} & set(use.local or ()):
            raise InputError(
                f"{use.label} has its own {min(own)} of [local], but an audit gives all strategies the same fleet: "
                f"audit it alone, with --set local.{min(own)}={(use.local or {})[min(own)]}"
            )


def _observed(
    experiment: Experiment, bench: Bench, seeds: int, compiled: list[bool], progress: Progress | None
) -> list[list[Observation]]:
    """Observes each strategy in runs as long as the experiment, one per seed."""
    trials = []
    for number, use in enumerate(experiment.strategies):
        strategy = experiment.strategy(use)
        updates = expected_updates(experiment, strategy, experiment.fleet().mean_durations)
        whole = Trial(
            number,
            experiment.seed,
            experiment.aggregations,
            experiment.until_time,
            stride=ceil(min(updates / updates_per_version(strategy), sys.maxsize // 2) / MARKS),
            compiled=compiled[number],
        )
        trials += [replace(whole, seed=experiment.seed + each) for each in range(seeds)]
    seen = bench.map(observe, trials, counter(progress, "fairness", len(trials)))
    return [seen[number * seeds : (number + 1) * seeds] for number in range(len(experiment.strategies))]


def _summary(
    experiment: Experiment,
    number: int,
    observations: list[Observation],
    cheated: Cheating,
) -> StrategyAudit:
    use = experiment.strategies[number]
    influences, entitlements, presence = (
        np.array([fairness.normalised(getattr(each, name)) for each in observations])
        for name in ("weights", "entitled", "presence")
    )
    updates = np.sum([each.updates for each in observations], axis=0)
    late = np.sum([each.staleness for each in observations], axis=0)
    aggregations = sum(each.aggregations for each in observations)
    buffer = float(updates.sum() / aggregations)
    names = [table.group for table in experiment.clients]
    fleet = experiment.fleet().group_of
    rows = zip(observations, influences, entitlements, presence, strict=True)
    totals = [Totals(names, fleet, each.updates, heard, each.staleness, *parts) for each, heard, *parts in rows]
    return StrategyAudit(
        label=use.label,
        use=use.name,
        metrics={
            metric.name: fmean(metric.of(each, "") for each in totals) for metric in select(Shown.AUDIT, Scope.RUN)
        },
        updates=round(updates.sum() / len(observations)),
        virtual_time=float(np.mean([each.virtual_time for each in observations])),
        aggregations=round(aggregations / len(observations)),
        buffer=buffer,
        shares=updates / updates.sum(),
        influences=influences,
        entitlements=entitlements,
        staleness=_means(late, updates),
        groups=_groups(experiment, number, observations, totals, buffer, cheated),
        weights=(min(each.lightest for each in observations), max(each.heaviest for each in observations)),
        partial=sum(each.partial for each in observations),
        lost=sum(each.lost for each in observations),
        refused=sum(each.refused for each in observations),
        cancelled=sum(each.cancelled for each in observations),
        reasons=tuple(sorted({each.reason for each in observations})),
        unseen=not {"local", "admit", "weigh"}.isdisjoint(experiment.strategy(use).readers),
        deployment=deployment(experiment.fleet(), observations),
        throttling=cheated.throttling,
        timings=cheated.timings,
        bounds=bounds(experiment.strategy(use), experiment.fleet(), updates, entitlements.mean(axis=0), buffer),
    )


def _groups(
    experiment: Experiment,
    number: int,
    observations: list[Observation],
    totals: list[Totals],
    buffer: float,
    cheated: Cheating,
) -> tuple[GroupAudit, ...]:
    fleet, strategy = experiment.fleet(), experiment.strategy(experiment.strategies[number])
    staleness, share = predicted(strategy, fleet, buffer)
    devices = by_group(fleet, observations)
    return tuple(
        GroupAudit(
            name=name,
            clients=group.clients,
            metrics={
                metric.name: _mean(metric.of(each, name) for each in totals)
                for metric in select(Shown.AUDIT, Scope.GROUP)
            },
            staleness_predicted=float(staleness[fleet.members(place)[0]]),
            share_predicted=float(share[fleet.members(place)].sum()),
            throttle_predicted=_tempted(fleet, fleet.members(place)[0], buffer),
            histogram=added([each.histogram[place] for each in observations]),
            incentive=cheated.throttling.incentives[place],
            cheat=cheated.timings.found[place],
            identities=cheated.identities[place],
            deployment=devices[place],
        )
        for place, (name, group) in enumerate(totals[0].by_group.items())
    )


def _mean(values: Iterable[float]) -> float:
    """The mean over the seeds that have a value, as in `fairlag compare`; NaN if none has."""
    mean = Spread.of(values).mean
    return nan if mean is None else mean


def _tempted(fleet: Fleet, client: int, buffer: float) -> float:
    """The factor by which FedStaleWeight tempts the client to slow down, by the closed form; NaN if not steady."""
    if not fleet.steady:
        return nan
    rates = 1 / fleet.mean_durations
    return theory.incentive(rates, client, max(1, round(buffer))).throttle if fleet.clients > 1 else 1.0


def _means(sums: Integers, counts: Integers) -> Floats:
    means: Floats = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    return means
