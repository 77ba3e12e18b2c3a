"""The audit of an experiment: who the model would listen to, how stale updates would be, who would gain by cheating."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, isnan, prod
from statistics import fmean
from typing import Any

import numpy as np

from fairlag import fairness
from fairlag.analyse import theory
from fairlag.analyse.effort import Compiling, enough_seeds
from fairlag.analyse.incentives import FACTORS, REPLICATIONS, Incentive, judge
from fairlag.analyse.trial import Bench, Observation, Trial, added, influence, observe
from fairlag.lab.experiment import Experiment
from fairlag.strategy import Strategy
from fairlag.types import Floats, Integers

INCENTIVE_UPDATES = 180_000
"""How many updates the incentive part simulates per strategy by default, so that a preset answers in seconds."""

_HANDFUL = 5

Progress = Callable[[str, int, int], None]
"""Told the part of the audit, how many trials of it are done, and of how many."""


@dataclass(frozen=True, slots=True)
class GroupAudit:
    """What one group of clients gets under one strategy, averaged over seeds."""

    name: str
    clients: int
    share: float
    influence: float
    fair: float
    staleness: float
    staleness_predicted: float
    share_predicted: float
    throttle_predicted: float
    histogram: Integers
    incentive: Incentive


@dataclass(frozen=True, slots=True)
class StrategyAudit:
    """What one strategy does on the fleet, averaged over seeds."""

    label: str
    use: str
    updates: int
    virtual_time: float
    aggregations: int
    buffer: float
    shares: Floats
    """Per client: its part of all updates."""
    influences: Floats
    """One row per seed, one column per client: its part of all weight."""
    staleness: Floats
    """Per client: the mean of its updates, not a number where it sent none."""
    groups: tuple[GroupAudit, ...]
    weights: tuple[float, float]
    """The lightest and the heaviest weight of an update."""
    partial: int
    lost: int
    refused: int
    reasons: tuple[str, ...]
    unseen: bool
    """Does it depend on what only training shows, such as updates or losses? Here these are all alike."""
    incentive_aggregations: int
    """How long, about, the runs were in which clients throttled themselves."""

    @property
    def influence(self) -> Floats:
        """Per client: its part of all weight, the mean over seeds."""
        return np.asarray(self.influences.mean(axis=0))

    def over_seeds(self, measure: Callable[[Floats], float]) -> list[float]:
        """A measure of evenness for each seed."""
        return [measure(row) for row in self.influences]

    @property
    def jain(self) -> float:
        """The mean of each seed's Jain index, as in `fairlag compare`."""
        return fmean(self.over_seeds(fairness.jain))

    @property
    def welfare(self) -> float:
        """The mean of each seed's welfare objective."""
        return fmean(self.over_seeds(fairness.welfare))

    @property
    def largest_deviation(self) -> float:
        """The mean of each seed's largest deviation from a fair share."""
        return fmean(self.over_seeds(fairness.largest_deviation))

    @property
    def whole_buffer(self) -> int:
        """The mean number of updates per version, to the nearest buffer size."""
        return max(1, round(self.buffer))

    def as_json(self) -> dict[str, Any]:
        """The part of it that `fairlag audit --json` promises."""
        return {
            "label": self.label,
            "use": self.use,
            "updates": self.updates,
            "virtual_time": round(self.virtual_time, 6),
            "jain": round(self.jain, 6),
            "groups": {
                group.name: {
                    "clients": group.clients,
                    "share": round(group.share, 6),
                    "influence": round(group.influence, 6),
                    "fair": round(group.fair, 6),
                    "staleness": round(group.staleness, 6),
                    "staleness_predicted": None if isnan(late := group.staleness_predicted) else round(late, 6),
                    "best_throttle": group.incentive.best_throttle,
                    "throttle_gain": round(group.incentive.throttle_gain, 6),
                    "truthful": group.incentive.truthful,
                }
                for group in self.groups
            },
        }


def audit(
    experiment: Experiment,
    *,
    seeds: int | None = None,
    workers: int = 1,
    incentive_updates: int = INCENTIVE_UPDATES,
    compiled: bool | None = None,
    progress: Progress | None = None,
) -> list[StrategyAudit]:
    """Simulates every strategy of an experiment without learning, and what throttling would do for a client.

    The incentive part simulates about `incentive_updates` updates per strategy, so it may be shorter than the rest.
    More than one worker starts processes: a script that asks for them needs the usual `if __name__ == "__main__":`.
    With the extra `fast`, long audits go through the compiled loop as far as it knows their strategies; `compiled`
    says whether short ones shall, or none. The numbers are the same.

    >>> from fairlag.lab.experiment import load
    >>> first, *_ = audit(load("demo").checked(aggregations=20), seeds=1, incentive_updates=10_000)
    >>> first.label, first.updates
    ('Buffered FedAvg', 100)
    """
    seeds = seeds or enough_seeds(experiment)
    compiling = Compiling(experiment, seeds=seeds, incentive_updates=incentive_updates, wanted=compiled)
    with Bench(experiment, workers=workers, keep_compiled=compiling.here) as bench:
        return _audit(experiment, bench, seeds, incentive_updates, compiling.strategies, progress)


def _audit(
    experiment: Experiment, bench: Bench, seeds: int, budget: int, compiled: list[bool], progress: Progress | None
) -> list[StrategyAudit]:
    strategies = range(len(experiment.strategies))
    whole = Trial(0, experiment.seed, experiment.aggregations, experiment.until_time)
    trials = [
        replace(whole, strategy=number, seed=experiment.seed + each, compiled=compiled[number])
        for number in strategies
        for each in range(seeds)
    ]
    seen = bench.map(observe, trials, _counter(progress, "fairness", len(trials)))
    observations = [seen[number * seeds : (number + 1) * seeds] for number in strategies]
    parts = [_incentive_part(experiment, observations[number], budget) for number in strategies]
    replications = max(seeds, REPLICATIONS)
    throttled = [
        replace(trial, compiled=compiled[number])
        for number in strategies
        for trial in _throttling(experiment, number, replications, parts[number])
    ]
    measured = iter(bench.map(influence, throttled, _counter(progress, "incentives", len(throttled))))
    shape = (len(experiment.clients), replications, len(FACTORS), 2)
    table = [
        np.array([next(measured) for _ in range(prod(shape[:-1]))]).reshape(shape) if part else np.zeros(shape)
        for part in parts
    ]
    return [
        _summary(
            experiment,
            number,
            observations[number],
            [judge(one[..., 0], one[..., 1].mean(axis=0)) for one in table[number]],
            parts[number],
        )
        for number in strategies
    ]


def _counter(progress: Progress | None, part: str, total: int) -> Callable[[int], None] | None:
    if progress is None:
        return None
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        progress(part, done, total)

    return count


def _incentive_part(experiment: Experiment, observations: list[Observation], budget: int) -> float:
    """How long the incentive trials of a strategy are, as a part of the others: within the budget, at most as long.

    Zero, that is none at all, where a client would send less than a handful of updates: that would show nothing.
    """
    updates = float(np.mean([observation.updates.sum() for observation in observations]))
    part = min(1.0, _updates_each(experiment, len(observations), budget) / updates)
    return part if part * updates >= _HANDFUL * experiment.population else 0.0


def _updates_each(experiment: Experiment, seeds: int, budget: int) -> float:
    """How many updates each of the incentive trials of a strategy may have."""
    return budget / (len(experiment.clients) * len(FACTORS) * max(seeds, REPLICATIONS))


def is_tried(experiment: Experiment, *, seeds: int = 1, incentive_updates: int = INCENTIVE_UPDATES) -> bool:
    """May an audit find out what throttling gains? Not where the budget has less than a handful of updates a client.

    >>> from fairlag.lab.experiment import load
    >>> is_tried(load("demo")), is_tried(load("million"))
    (True, False)
    """
    return _updates_each(experiment, seeds, incentive_updates) >= _HANDFUL * experiment.population


def _throttling(experiment: Experiment, number: int, replications: int, part: float) -> list[Trial]:
    if not part:
        return []
    fleet = experiment.fleet()
    aggregations = None if experiment.aggregations is None else ceil(experiment.aggregations * part)
    until_time = None if experiment.until_time is None else experiment.until_time * part
    return [
        Trial(number, experiment.seed + each, aggregations, until_time, fleet.members(group)[0], factor)
        for group in range(len(experiment.clients))
        for each in range(replications)
        for factor in FACTORS
    ]


def _summary(
    experiment: Experiment,
    number: int,
    observations: list[Observation],
    incentives: list[Incentive],
    incentive_part: float,
) -> StrategyAudit:
    use = experiment.strategies[number]
    influences = np.array([fairness.normalised(each.weights) for each in observations])
    updates = np.sum([each.updates for each in observations], axis=0)
    late = np.sum([each.staleness for each in observations], axis=0)
    aggregations = sum(each.aggregations for each in observations)
    buffer = float(updates.sum() / aggregations)
    names = [table.group for table in experiment.clients]
    measured = fairness.by_group(experiment.fleet().group_of, names, updates, influences.mean(axis=0), late)
    return StrategyAudit(
        label=use.label,
        use=use.name,
        updates=round(updates.sum() / len(observations)),
        virtual_time=float(np.mean([each.virtual_time for each in observations])),
        aggregations=round(aggregations / len(observations)),
        buffer=buffer,
        shares=updates / updates.sum(),
        influences=influences,
        staleness=_means(late, updates),
        groups=_groups(experiment, number, observations, measured, buffer, incentives),
        weights=(min(each.lightest for each in observations), max(each.heaviest for each in observations)),
        partial=sum(each.partial for each in observations),
        lost=sum(each.lost for each in observations),
        refused=sum(each.refused for each in observations),
        reasons=tuple(sorted({each.reason for each in observations})),
        unseen=not {"local", "admit", "weigh"}.isdisjoint(experiment.strategy(use).readers),
        incentive_aggregations=ceil(aggregations / len(observations) * incentive_part),
    )


def _groups(
    experiment: Experiment,
    number: int,
    observations: list[Observation],
    measured: list[fairness.GroupFairness],
    buffer: float,
    incentives: list[Incentive],
) -> tuple[GroupAudit, ...]:
    fleet, strategy = experiment.fleet(), experiment.strategy(experiment.strategies[number])
    durations = fleet.mean_durations
    staleness, share = predicted(strategy, durations, buffer)
    return tuple(
        GroupAudit(
            name=group.name,
            clients=group.clients,
            share=group.update_share,
            influence=group.influence,
            fair=group.fair,
            staleness=group.mean_staleness,
            staleness_predicted=float(staleness[fleet.members(place)[0]]),
            share_predicted=float(share[fleet.members(place)].sum()),
            throttle_predicted=_tempted(durations, fleet.members(place)[0], buffer),
            histogram=added([each.histogram[place] for each in observations]),
            incentive=incentives[place],
        )
        for place, group in enumerate(measured)
    )


def predicted(strategy: Strategy, durations: Floats, buffer: float) -> tuple[Floats, Floats]:
    """Staleness and share of each client by the closed forms, for clients that are always there; NaN: there is none."""
    if strategy.select.lag:  # rounds in which slow clients go on: nobody knows a closed form
        return np.full_like(durations, np.nan), np.full_like(durations, np.nan)
    if strategy.select.rounds:
        return np.zeros_like(durations), np.full_like(durations, 1 / len(durations))
    if strategy.select.places is not None and strategy.select.places < len(durations):
        rates = theory.concurrent_rates(durations, strategy.select.places)
        return theory.concurrent_staleness(durations, strategy.select.places, buffer), rates / rates.sum()
    return theory.expected_staleness(1 / durations, buffer), theory.expected_share(1 / durations)


def _tempted(durations: Floats, client: int, buffer: float) -> float:
    """By which factor FedStaleWeight would tempt the client to slow down, by the closed form."""
    return theory.incentive(1 / durations, client, max(1, round(buffer))).throttle if len(durations) > 1 else 1.0


def _means(sums: Integers, counts: Integers) -> Floats:
    means: Floats = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    return means
