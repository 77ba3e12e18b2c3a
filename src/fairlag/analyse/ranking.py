"""Ranking strategies by one metric on each experiment, from their comparisons; no run is read again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Any, NamedTuple

from fairlag.analyse.compare import Comparison, GroupComparison, Reached, groups_scored
from fairlag.analyse.metrics import Better, Judged, Metric, Scope, criteria
from fairlag.analyse.significance import Test, holm, told_apart
from fairlag.analyse.spread import Spread
from fairlag.errors import InputError, nearest


class Ranked(NamedTuple):
    """A strategy and its rank."""

    rank: int
    """One more than the number of better strategies. Equals share a rank, and so do all that lack the metric.

    Strategies whose means differ by less than one test example are equals.
    """
    comparison: Comparison
    group: GroupComparison | None
    """The results of the least served group, if the strategy's fleet has that group."""

    @property
    def reached(self) -> Reached | None:
        """When it reached the first target, if there is one."""
        return next(iter(self.comparison.leading.reached), None)

    @property
    def partly(self) -> bool:
        """Did some of its seeds reach that target, but not all?"""
        return self.reached is not None and 0 < self.reached.virtual_time.seeds < len(self.comparison.seeds)


@dataclass(frozen=True, slots=True)
class Ranking:
    """The strategies on one experiment, best first."""

    experiment: str
    by: str
    metric: Metric
    """The metric that they are ranked by."""
    group: str | None
    """The least served group, which every row shows; None if no client has sent an update yet."""
    rows: tuple[Ranked, ...]
    floor: float = 0.0
    """The smallest difference that counts: that of one test example, if the metric is a share of examples."""

    @property
    def uneven(self) -> bool:
        """Are clients entitled to different shares under some strategy, for instance because they join and leave?"""
        return any(row.comparison.comes_and_goes for row in self.rows)

    @property
    def groups_scored(self) -> bool:
        """Are there scores for client groups?"""
        return groups_scored([row.comparison for row in self.rows])

    @property
    def judged(self) -> Judged:
        """The metrics that models are judged by, the leading one first."""
        return self.rows[0].comparison.judged

    def as_json(self) -> list[dict[str, Any]]:
        """The comparisons as `fairlag compare --json` prints them, with ranks and tests against the first."""
        tests = {id(row): test.as_json() for row, test in self.rivals()}
        return [
            {"rank": row.rank, **row.comparison.as_json(), "against_first": tests.get(id(row))} for row in self.rows
        ]

    def knows(self, row: Ranked) -> bool:
        """Does the strategy have the metric that is ranked by?"""
        return _key(self.metric, row.comparison, row.group) is not None

    def rivals(self, place: int = 0) -> list[tuple[Ranked, Test]]:
        """The other strategies that have the metric, each with a test against the one at `place`.

        The difference is its own value − that of the one at `place`. The p-values are corrected for all pairs of the
        ranking, not only for these: which strategy is at `place` follows from the same numbers.
        """
        known = [row for row in self.rows if self.knows(row)]
        if not known:
            return []
        found = [self._by_seed(row) for row in known]
        pairs = list(combinations(range(len(known)), 2))
        tests = holm([told_apart(found[two], found[one], self.floor) for one, two in pairs])
        mine = range(len(known))[place]
        return [
            (known[two], test) if one == mine else (known[one], test._replace(difference=-test.difference))
            for (one, two), test in zip(pairs, tests, strict=True)
            if mine in (one, two)
        ]

    def _by_seed(self, row: Ranked) -> Mapping[int, float]:
        """The number that is ranked by, per seed."""
        spread = spread_of(self.metric, row.comparison, row.group)
        if self.metric.better is not Better.FAIR or row.group is None:
            return spread.by_seed
        return {seed: abs(each - row.group.due) for seed, each in spread.by_seed.items()}


def ranked(comparisons: Iterable[Comparison], by: str | None = None) -> list[Ranking]:
    """One ranking per experiment. Equals keep their order, and strategies that lack the metric come last.

    By a metric of the model, by default the leading one, or by the leading metric of the least served "group": the best
    first. By "influence" of that group: the closest to its fair share first. By "jain": the highest index first. By
    "time" to the first target: the shortest first, but strategies that reached it with every seed come before those
    that reached it with some, because a mean over some leaves out the seeds that failed.
    """
    together: dict[str, list[Comparison]] = {}
    for each in comparisons:
        together.setdefault(each.experiment, []).append(each)
    return [_ranking(experiment, strategies, by) for experiment, strategies in together.items()]


def least_served(strategies: Sequence[Comparison]) -> str | None:
    """The group with the fewest updates per client, averaged over all strategies; the first of equals.

    A client's share of all updates is measured in units of 1/n, so that fleets of different sizes are comparable.
    """
    parts: dict[str, list[float]] = {}
    for group in (group for each in strategies for group in each.groups):
        if group.share.mean is not None and group.fair:
            parts.setdefault(group.name, []).append(group.share.mean / group.fair)
    return min(parts, key=lambda name: fmean(parts[name]), default=None)


def spread_of(metric: Metric, found: Comparison, group: GroupComparison | None) -> Spread:
    """A metric of a strategy, or of one of its groups; without a value if the fleet does not have that group."""
    if metric.scope is not Scope.GROUP:
        return found.metrics[metric.name]
    return Spread(None, None, 0) if group is None else group.metrics[metric.name]


def _ranking(experiment: str, strategies: Sequence[Comparison], by: str | None) -> Ranking:
    name = least_served(strategies)
    judged = strategies[0].judged
    known = criteria(uneven=any(each.comes_and_goes for each in strategies), judged=judged)
    if not groups_scored(strategies):
        del known["group"]
    by = judged[0].name if by is None else by
    if by not in known:
        raise InputError(f"cannot rank the strategies of {experiment!r} by {by!r}: {nearest(by, known)}")
    metric = known[by]
    found = [_key(metric, each, each.group(name)) for each in strategies]
    keys = [(key is None, key or ()) for key in found]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    floor = _floor(metric, strategies, name)
    rows = (
        Ranked(
            1 + sum(_better(key, keys[place], floor) for key in keys), strategies[place], strategies[place].group(name)
        )
        for place in order
    )
    return Ranking(experiment, by, metric, name, tuple(rows), floor)


def _floor(metric: Metric, strategies: Sequence[Comparison], group: str | None) -> float:
    """What one test example changes in the metric; 0 if the metric is not a share of test examples."""
    if metric.name not in {each.name for each in strategies[0].judged if each.rate}:
        return 0.0
    scored = (each if metric.scope is Scope.RUN else each.group(group) for each in strategies)
    return max((1 / each.leading.examples for each in scored if each and each.leading.examples), default=0.0)


_Key = tuple[bool, tuple[float, ...]]


def _better(one: _Key, other: _Key, floor: float) -> bool:
    """Does the first come before the second, by at least the floor?"""
    if one[0] or other[0] or not floor:
        return one < other
    return other[1][0] - one[1][0] > floor * (1 - 1e-9)


def _key(metric: Metric, found: Comparison, group: GroupComparison | None) -> tuple[float, ...] | None:
    """A sort key, smaller for the better strategy; None if it does not have the metric."""
    spread = spread_of(metric, found, group)
    if spread.mean is None:
        return None
    if metric.better is Better.FAIR and group is not None:
        return (abs(spread.mean - group.due),)
    if metric.scope is Scope.TARGET:
        return (spread.seeds < len(found.seeds), spread.mean)
    return (-spread.mean if metric.better is Better.HIGHER else spread.mean,)
