"""Ranking strategies: who is best by one criterion, on each experiment; from comparisons, nothing is read anew."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from fairlag.analyse.compare import Comparison, GroupComparison, Reached, Spread
from fairlag.analyse.significance import Test, told_apart
from fairlag.errors import InputError, nearest


class Ranked(NamedTuple):
    """A strategy in its place."""

    rank: int
    """One more than how many are better: equals share it, and so do all that lack what is ranked by."""
    comparison: Comparison
    group: GroupComparison | None
    """What the least served group got, if the strategy's fleet has that group."""

    @property
    def reached(self) -> Reached | None:
        """When it reached the first target, if there is one."""
        return _first_goal(self.comparison)

    @property
    def partly(self) -> bool:
        """Did some of its seeds reach that target, but not all?"""
        return self.reached is not None and 0 < self.reached.virtual_time.seeds < len(self.comparison.seeds)

    def as_json(self) -> dict[str, Any]:
        """The comparison as `fairlag compare --json` prints it, with its rank."""
        return {"rank": self.rank, **self.comparison.as_json()}


@dataclass(frozen=True, slots=True)
class Ranking:
    """The strategies on one experiment, the best first."""

    experiment: str
    by: str
    group: str | None
    """The least served, which every row tells about; none while nobody has sent anything."""
    rows: tuple[Ranked, ...]

    def rivals(self, place: int = 0) -> list[tuple[Ranked, Test]]:
        """The other strategies that have the number, and whether seeds tell them from the one at a place."""
        known = [row for row in self.rows if CRITERIA[self.by](row.comparison, row.group) is not None]
        if not known:
            return []
        mine = known[place]
        found = _BY_SEED[self.by](mine.comparison, mine.group)
        others = [row for row in known if row is not mine]
        return [(row, told_apart(found, _BY_SEED[self.by](row.comparison, row.group))) for row in others]


def ranked(comparisons: Iterable[Comparison], by: str = "accuracy") -> list[Ranking]:
    """One ranking an experiment; equals keep their order, and what lacks the number comes last.

    By "accuracy" or that of the least served "group": the highest first. By "influence" of that group: the closest to
    its fair share first. By "jain": the highest index first. By "time" to the first target: the shortest first, but
    those that reached it with every seed before those that did with some, whose mean leaves out the seeds that failed.
    """
    check_criterion(by)
    together: dict[str, list[Comparison]] = {}
    for each in comparisons:
        together.setdefault(each.experiment, []).append(each)
    return [_ranking(experiment, strategies, by) for experiment, strategies in together.items()]


def check_criterion(by: str) -> None:
    """Refuses what strategies cannot be ranked by.

    >>> check_criterion("accurracy")
    Traceback (most recent call last):
    fairlag.errors.InputError: nothing is ranked by 'accurracy': did you mean 'accuracy'?
    """
    if by not in CRITERIA:
        raise InputError(f"nothing is ranked by {by!r}: {nearest(by, CRITERIA)}")


def least_served(strategies: Sequence[Comparison]) -> str | None:
    """The group whose clients send the fewest updates each, in the mean over all strategies; the first of equals.

    A client's part of all updates is taken in units of 1/n, so that fleets of other sizes count alike.
    """
    parts: dict[str, list[float]] = {}
    for group in (group for each in strategies for group in each.groups):
        if group.update_share.mean is not None and group.fair:
            parts.setdefault(group.name, []).append(group.update_share.mean / group.fair)
    return min(parts, key=lambda name: fmean(parts[name]), default=None)


def _ranking(experiment: str, strategies: Sequence[Comparison], by: str) -> Ranking:
    name = least_served(strategies)
    groups = [next((group for group in each.groups if group.name == name), None) for each in strategies]
    found = [CRITERIA[by](each, group) for each, group in zip(strategies, groups, strict=True)]
    keys = [(key is None, key or ()) for key in found]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    rows = (Ranked(1 + sum(key < keys[place] for key in keys), strategies[place], groups[place]) for place in order)
    return Ranking(experiment, by, name, tuple(rows))


Key = tuple[float, ...] | None
"""What is smaller for the better; None where it is not known."""


def _high(spread: Spread) -> Key:
    return None if spread.mean is None else (-spread.mean,)


def _by_influence(_: Comparison, group: GroupComparison | None) -> Key:
    return None if group is None or group.influence.mean is None else (abs(group.influence.mean - group.due),)


def _by_time(found: Comparison, _: GroupComparison | None) -> Key:
    goal = _first_goal(found)
    if goal is None or goal.virtual_time.mean is None:
        return None
    return (goal.virtual_time.seeds < len(found.seeds), goal.virtual_time.mean)


def _first_goal(found: Comparison) -> Reached | None:
    return next(iter(found.accuracy.reached), None)


CRITERIA: dict[str, Callable[[Comparison, GroupComparison | None], Key]] = {
    "accuracy": lambda found, _: _high(found.accuracy.final),
    "group": lambda _, group: None if group is None else _high(group.accuracy.final),
    "influence": _by_influence,
    "jain": lambda found, _: _high(found.evenness),
    "time": _by_time,
}
"""What strategies can be ranked by: of a comparison and what its least served group got."""

_BY_SEED: dict[str, Callable[[Comparison, GroupComparison | None], Mapping[int, float]]] = {
    "accuracy": lambda found, _: found.accuracy.final.by_seed,
    "group": lambda _, group: group.accuracy.final.by_seed if group else {},
    "influence": lambda _, group: (
        {seed: abs(each - group.due) for seed, each in group.influence.by_seed.items()} if group else {}
    ),
    "jain": lambda found, _: found.evenness.by_seed,
    "time": lambda found, _: goal.virtual_time.by_seed if (goal := _first_goal(found)) else {},
}
"""The number that is ranked by, of each seed."""
