"""The search for a timing that pays: it screens every plan in short runs and measures the best with fresh seeds."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from fairlag.analyse.case import Case
from fairlag.analyse.incentives import FACTORS, REPLICATIONS, Incentive, judge_pair
from fairlag.analyse.throttling import SERVER_UPDATES, advised, is_lasting
from fairlag.analyse.trial import Trial, influence
from fairlag.core.types import Floats
from fairlag.fleet.availability import Always
from fairlag.fleet.clients import Fleet
from fairlag.fleet.timing import Late, Rejoin, Schedule, Throttle, Timing, Truthful

COMPILED_SEARCH = 10_000_000
"""The default number of updates in the search for a strategy if the compiled loop runs it, which takes seconds."""

SERVER_SEARCH = SERVER_UPDATES
"""The same number if the server runs it."""

_LEAVING = SERVER_SEARCH // 4
"""The number of updates for plans that leave: the server always runs those."""

_PARTS = 4
_SLOW = (1.0, 4.0, 16.0, 64.0)
_EXTREME = (_SLOW[0], _SLOW[-1])
_MIDDLE = "schedules with the factors 4 and 16"
_UNTIL = (0.05, 0.1, 0.4)
_STAYS = ((4, 4), (20, 20), (20, 2))
"""After how many mean task durations a client leaves, and for how many."""

_ENOUGH = 20
_LONGER = 4
"""The updates that a truthful client must send in a run for the parts of a plan to matter, and how many times as many
it must send to distinguish plans that are slow by different factors."""

_FINALISTS, _FEW_FINALISTS = 5, 3
_MOST_REPLICATIONS = 20


class Found(NamedTuple):
    """The timing that pays most for one client, and how certain that is."""

    timing: Timing
    """Truthful if nothing gains more than its error."""
    gain: float = 0.0
    """Its relative gain over a whole run: 1.4 means 2.4 times as much influence; 0 if it is truthful."""
    error: float = 0.0
    at_most: float = 0.0
    """If it is truthful: the most that the best plans might gain within the error."""
    influence: float = 0.0
    """If it is not truthful: the influence that it leads to."""
    tried: bool = True
    heard: bool = True
    """Was an update of the truthful client merged? If not, its gains are not known."""

    @property
    def known(self) -> bool:
        """Is the gain known?"""
        return self.tried and self.heard

    @property
    def truthful(self) -> bool:
        """Does no timing gain more than its error?"""
        return isinstance(self.timing, Truthful)

    def as_json(self) -> dict[str, Any]:
        """The fields of `fairlag audit --json`."""
        if not self.known:
            nothing = ("best_timing", "timing_gain", "timing_gain_error", "timing_gain_at_most", "truthful")
            return dict.fromkeys(nothing)
        return {
            "best_timing": str(self.timing),
            "timing_gain": round(self.gain, 6),
            "timing_gain_error": None if self.truthful else round(self.error, 6),
            "timing_gain_at_most": round(self.at_most, 6) if self.truthful else None,
            "truthful": self.truthful,
        }


@dataclass(frozen=True, slots=True)
class Timings:
    """What timing gains one client of each group under a strategy."""

    found: tuple[Found, ...]
    tried: int = 0
    """The largest number of plans per group; 0 if none was tried."""
    aggregations: tuple[int, int] = (0, 0)
    """The lengths of the screening runs, and of the runs of the best plans."""
    replications: int = 0
    """The number of fresh seeds with which the best plans were measured."""
    left_out: str = ""
    """What was not tried, in words; empty if everything was."""

    def as_json(self) -> dict[str, Any]:
        """The fields of `fairlag audit --json`."""
        return {
            "tried": self.tried,
            "aggregations": list(self.aggregations),
            "replications": self.replications,
            "left_out": self.left_out or None,
        }

    def with_throttling(self, incentives: Sequence[Incentive], *, tried: bool) -> "Timings":
        """Per group the better of this search and of constant throttling in the long run, if that was tried."""
        if not tried:
            return self
        best = (_better(found, each) for found, each in zip(self.found, incentives, strict=True))
        return Timings(tuple(best), self.tried, self.aggregations, self.replications, self.left_out)


def _better(found: Found, throttled: Incentive) -> Found:
    if not throttled.heard:
        return found
    if throttled.throttle_gain > found.gain:
        reached = float(throttled.influence[throttled.factors.index(throttled.best_throttle)])
        plan = Throttle(throttled.best_throttle)
        return Found(plan, throttled.throttle_gain, throttled.gain_error, influence=reached)
    at_most = max(found.at_most, throttled.largest_gain) if found.known else throttled.largest_gain
    return found._replace(at_most=at_most, tried=True, heard=True)


def plans(factors: Sequence[float] = _SLOW) -> list[Timing]:
    """Plans without leaving: constant throttling, schedules of four equal parts, late starts.

    >>> len(plans()), len(plans((1, 64)))
    (271, 26)
    >>> str(plans((1, 64))[-1])
    'late(64, 0.4)'
    """
    slow = [factor for factor in factors if factor > 1]
    return [
        *(Throttle(factor) for factor in sorted({*FACTORS[1:], *slow})),
        *(Schedule(parts) for parts in product(factors, repeat=_PARTS) if len(set(parts)) > 1),
        *(Late(factor, until) for factor in slow for until in _UNTIL),
    ]


def leaving(fleet: Fleet, client: int) -> list[Timing]:
    """Plans of a client that leaves and rejoins, by its mean task duration; none if it is not always present anyway.

    >>> from fairlag.lab.experiment import load
    >>> [str(each) for each in leaving(load("demo").fleet(), 0)]
    ['rejoin(6, 6)', 'rejoin(30, 30)', 'rejoin(30, 3)']
    """
    long = float(fleet.mean_durations[client])
    if not isinstance(fleet.groups[int(fleet.group_of[client])].availability, Always) or not 0 < long < np.inf:
        return []
    return [Rejoin(*(float(f"{long * each:.3g}") for each in stay)) for stay in _STAYS]


class _Asked(NamedTuple):
    """Runs of one plan: the group of the client, and the length of the runs as a part of the experiment."""

    group: int
    plan: Timing
    part: float

    @property
    def honest(self) -> "_Asked":
        """The truthful runs that they are compared with."""
        return self._replace(plan=Truthful())


class Search:
    """Searches the plans for one strategy, with common random numbers, so that runs differ only in the plan."""

    def __init__(self, case: Case, told: Callable[[int, int], None]) -> None:
        """`told` gets the number of runs that are done, and the total number."""
        self._case, self._told = case, told
        whole = case.effort(compiled=COMPILED_SEARCH, server=SERVER_SEARCH)
        self._leaving = min(whole // 4, _LEAVING)
        self._budget = whole - self._leaving
        self._least = _ENOUGH / float(case.shares.min())
        self._heard: dict[_Asked, Floats] = {}
        """One row per seed: the client's influence over the whole run, and its updates."""
        self._done = self._planned = 0

    def run(self) -> Timings:
        """Screens all affordable plans, and measures the best."""
        for factors, finalists, times in ((_SLOW, _FINALISTS, _LONGER), (_EXTREME, _FEW_FINALISTS, 1)):
            steady = plans(factors)
            runs, final = (
                len(self._case.clients) * (len(steady) + 1),
                len(self._case.clients) * (finalists + 1) * REPLICATIONS,
            )
            least = self._cost(min(1.0, times * self._shortest))
            needed = (runs + final) * least
            if needed <= self._budget:
                room = self._budget - final * least
                part = self._longest(min(room, max(self._budget / 2, runs * least)), runs)
                return self._searched(steady, part, finalists)
        nothing = tuple(Found(Truthful(), tried=False) for _ in self._case.clients)
        return Timings(nothing, left_out=f"all timings; {advised(needed * 4 / 3)} suffices for some")

    @property
    def _shortest(self) -> float:
        """The least length of a run, as a part of the experiment."""
        return min(1.0, self._least / self._case.updates) if is_lasting(self._case.fleet) else 1.0

    def _cost(self, part: float) -> float:
        """The cost of one run in updates, including creating its fleet."""
        return part * self._case.updates + self._case.fleet.clients

    def _longest(self, updates: float, runs: int) -> float:
        """The length of each of `runs` runs that `updates` updates afford, or the shortest if that is longer."""
        return max(self._shortest, min(1.0, (updates / max(runs, 1) - self._case.fleet.clients) / self._case.updates))

    def _searched(self, steady: Sequence[Timing], part: float, finalists: int) -> Timings:
        screened = [[_Asked(group, plan, part) for plan in steady] for group in range(len(self._case.clients))]
        away = self._away(part)
        asked = [[*mine, *theirs] for mine, theirs in zip(screened, away, strict=True)]
        self._measure([each for mine in asked for each in mine], range(1))
        best = [sorted(mine, key=self._gain, reverse=True)[:finalists] for mine in asked]
        finals, seeds = self._finals(best, finalists, self._budget - len(best) * (len(steady) + 1) * self._cost(part))
        self._heard.clear()
        self._measure([each for mine in finals for each in mine], seeds)
        longest = max((each.part for mine in finals for each in mine), default=part)
        left = [] if finalists == _FINALISTS else [_MIDDLE]
        return Timings(
            tuple(self._judged(mine) for mine in finals),
            tried=max(map(len, asked)),
            aggregations=(ceil(part * self._case.versions), ceil(longest * self._case.versions)),
            replications=len(seeds),
            left_out=" and ".join(left if all(away) else [*left, "leaving and coming back"]),
        )

    def _away(self, part: float) -> list[list[_Asked]]:
        """For each group: runs of the plans that leave; none if these take too many updates."""
        known = [leaving(self._case.fleet, client) for client in self._case.clients]
        runs = sum(len(each) + 1 for each in known)
        if runs * self._cost(self._shortest) > self._leaving / 2:
            return [[] for _ in known]
        brief = min(part, self._longest(self._leaving / 2, runs))
        return [[_Asked(group, plan, brief) for plan in each] for group, each in enumerate(known)]

    def _finals(
        self, best: Sequence[Sequence[_Asked]], finalists: int, budget: float
    ) -> tuple[list[list[_Asked]], range]:
        """The best plans in runs as long as affordable, at most as long as the experiment, and fresh seeds.

        Of the plans that leave, only the best is measured, and only if it gains, because the server must run them.
        """
        runs = len(best) * (finalists + 1)
        part = self._longest(budget, runs * REPLICATIONS)
        many = int(budget / (runs * self._cost(part))) if finalists == _FINALISTS else 0
        seeds = range(1, 1 + max(REPLICATIONS, min(many, _MOST_REPLICATIONS)))
        away = [[each for each in mine if each.plan.leaves is not None and self._gain(each) > 0][:1] for mine in best]
        costly = 2 * sum(map(len, away)) * len(seeds)
        brief = min(part, self._longest(self._leaving / 2, costly))
        if costly * self._cost(self._shortest) > self._leaving / 2:
            away = [[] for _ in best]
        steady = [[each._replace(part=part) for each in mine if each.plan.leaves is None] for mine in best]
        gone = [[each._replace(part=brief) for each in mine] for mine in away]
        return [[*mine, *theirs] for mine, theirs in zip(steady, gone, strict=True)], seeds

    def _measure(self, asked: Iterable[_Asked], seeds: range) -> None:
        runs = list(dict.fromkeys(each for one in asked for each in (one.honest, one)))
        trials = [self._trial(each, seed) for each in runs for seed in seeds]
        self._planned += len(trials)
        heard = [(each.share, each.updates) for each in self._case.bench.map(influence, trials, self._count)]
        for place, each in enumerate(runs):
            self._heard[each] = np.array(heard[place * len(seeds) : (place + 1) * len(seeds)])

    def _trial(self, asked: _Asked, seed: int) -> Trial:
        client, trial = self._case.clients[asked.group], self._case.trial(asked.part)
        return replace(trial, seed=trial.seed + seed, client=client, plans=((client, asked.plan),))

    def _count(self, more: int) -> None:
        self._done += more
        self._told(self._done, self._planned)

    def _gain(self, asked: _Asked) -> float:
        honest, gained = (float(self._heard[each][:, 0].mean()) for each in (asked.honest, asked))
        return gained / honest - 1 if honest > 0 else 0.0

    def _judged(self, asked: Sequence[_Asked]) -> Found:
        """The best of the finalists, if it gains more than its error."""
        if not any(self._heard[each.honest][:, 0].any() for each in asked):
            return Found(Truthful(), heard=False)
        judged = []
        for each in asked:
            gain, error = judge_pair(self._heard[each.honest], self._heard[each], tests=len(asked))
            judged.append(Found(each.plan, gain, error, influence=float(self._heard[each][:, 0].mean())))
        real = [each for each in judged if each.gain > each.error]
        if real:
            return max(real, key=lambda each: each.gain)
        return Found(Truthful(), at_most=max((max(0.0, each.gain + each.error) for each in judged), default=0.0))
