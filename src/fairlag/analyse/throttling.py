"""Trials in which a client throttles itself: how long they must be for the wanted error, and what they cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10
from typing import Any, NamedTuple

import numpy as np

from fairlag.analyse.case import Case
from fairlag.analyse.incentives import FACTORS, REPLICATIONS, Incentive, judge
from fairlag.analyse.trial import Trial, influence, quarter
from fairlag.core.types import Floats
from fairlag.fleet.availability import Alternating, Always
from fairlag.fleet.clients import Fleet
from fairlag.fleet.timing import Throttle

COMPILED_UPDATES = 20_000_000
"""The default number of updates in the trials of a strategy if the compiled loop runs them, which takes seconds."""

SERVER_UPDATES = 600_000
"""The same number if the server runs them, which takes about fifty times as long for the same work."""

_FEW, _PILOT = 5, 15
"""The updates of the throttled client in the half of a trial that counts: at least, and at first if affordable."""

_STAGES = 8
_MOST_AT_ONCE = 8.0
"""The next trials are at most this many times longer, because short trials know their error only roughly."""


@dataclass(frozen=True, slots=True)
class Throttling:
    """What throttling gains one client of each group under a strategy."""

    incentives: tuple[Incentive, ...]
    aggregations: tuple[int, int]
    """The lengths of the shortest and the longest trial; 0 if there was none."""
    replications: int
    wanted: float
    """The wanted error."""
    advice: str = ""
    """The option that would make the answer as precise as wanted; empty if it is."""
    rough: str = ""
    """If nothing was simulated: the option that would give a rough answer."""

    @property
    def tried(self) -> bool:
        """Was anything simulated?"""
        return self.aggregations[1] > 0

    def as_json(self) -> dict[str, Any]:
        """The fields of `fairlag audit --json`."""
        return {
            "tried": self.tried,
            "aggregations": list(self.aggregations),
            "replications": self.replications,
            "wanted_error": self.wanted,
            "advice": self.advice or None,
        }


def is_lasting(fleet: Fleet) -> bool:
    """Does the fleet stay as it is, so that trials may be longer than the experiment?

    >>> from fairlag.lab.experiment import load
    >>> is_lasting(load("demo").fleet())
    True
    """
    return all(
        isinstance(group.availability, Always | Alternating) and group.join == 0 and group.leave == np.inf
        for group in fleet.groups
    )


class Need(NamedTuple):
    """The approximate number of updates in the trials of a strategy that lets all clients train."""

    least: float
    """For a rough answer."""
    usual: float

    @classmethod
    def of(cls, fleet: Fleet) -> "Need":
        """Estimates it from the mean durations of the clients.

        >>> from fairlag.lab.experiment import load
        >>> Need.of(load("demo").fleet()).least < SERVER_UPDATES, Need.of(load("million").fleet()).least > 10**9
        (True, True)
        """
        with np.errstate(divide="ignore"):
            rates = 1 / fleet.mean_durations[[fleet.members(group)[0] for group in range(len(fleet.groups))]]
        sizes = np.bincount(fleet.group_of)
        shares = np.nan_to_num(rates / (rates @ sizes), nan=1 / fleet.clients)
        shares = np.maximum(shares, np.finfo(np.float64).tiny)
        return cls(*(float(_lengths(shares, sent).sum()) * REPLICATIONS for sent in (_FEW, _PILOT)))


def _lengths(shares: Floats, sent: float) -> Floats:
    """For each group and factor: the updates that a trial needs for the client to send `sent` updates that count.

    `shares` are the shares of all updates that one client of each group sends. Half of a trial is warm-up. All other
    clients must send as many as the throttled one, because their influence must settle too.
    """
    return np.asarray(2 * sent * np.maximum(np.outer(1 / shares, FACTORS), 1 / shares.min()))


class Throttler:
    """Plans, runs and judges the trials of one strategy."""

    def __init__(self, case: Case, *, wanted: float, told: Callable[[int, int], None]) -> None:
        """`wanted` is the error of a gain; `told` gets the number of trials that are done, and the total number."""
        self._case, self._wanted, self._told = case, wanted, told
        self._budget = case.effort(compiled=COMPILED_UPDATES, server=SERVER_UPDATES)
        self._replications = max(len(case.observations), REPLICATIONS)
        self._buffer = case.updates / case.versions
        self._done = self._planned = self._spent = 0
        shape = (len(case.clients), len(FACTORS), self._replications)
        self._heard: Floats = np.zeros((*shape, 3))
        """For each group, factor and seed: the influence before, the influence that counts, and the updates."""

    def run(self) -> Throttling:
        """Runs trials in the long run if the fleet stays as it is; otherwise as long as the experiment."""
        return self._in_the_long_run() if is_lasting(self._case.fleet) else self._as_the_experiment()

    def _as_the_experiment(self) -> Throttling:
        cost = self._heard[..., 0].size * self._case.updates
        if cost > self._budget:
            return self._untried(cost, cost)
        self._measure(dict.fromkeys(np.ndindex(self._heard.shape[:2]), self._case.trial()))
        found = self._judged()
        heard = [each for each in found if each.heard]  # more seeds of the same length do not help the others
        excess = max((float(each.excess(self._wanted).max()) for each in heard), default=0.0)
        advice = "" if self._is_enough(heard) else f"--seeds {_rounded(self._replications * max(excess, 1.5) ** 2)}"
        made = ceil(self._case.updates / self._buffer)
        return Throttling(found, (made, made), self._replications, self._wanted, advice)

    def _in_the_long_run(self) -> Throttling:
        pilot = min(_PILOT, self._budget / max(self._cost(_lengths(self._case.shares, 1.0)), 1.0))
        if pilot < _FEW:
            return self._untried(*(self._cost(_lengths(self._case.shares, sent)) for sent in (1.1 * _FEW, 8 * _PILOT)))
        lengths = _lengths(self._case.shares, pilot)
        due = np.ones(lengths.shape, np.bool_)
        for _ in range(_STAGES):
            self._measure(self._trials(lengths, due))
            found = self._judged()
            wished = self._wished(found)
            due = wished > 1
            if not due.any():
                break
            room = (self._budget - self._spent) / self._cost(lengths * np.minimum(wished, _MOST_AT_ONCE) * due)
            more = np.minimum(wished, _MOST_AT_ONCE) * min(room, 1.0)
            if more[due].min() < 1:
                break
            lengths = np.where(due, lengths * more, lengths)
        # Errors of errors are large: make all trials of a group as long as its least certain one needs, times four.
        needed = self._spent + 4 * self._cost(
            lengths * wished.max(axis=1, keepdims=True) * due.max(axis=1, keepdims=True)
        )
        advice = "" if self._is_enough(found) else advised(needed)
        made = [4 * self._stride(length) for length in (lengths.min(), lengths.max())]
        return Throttling(found, (made[0], made[1]), self._replications, self._wanted, advice)

    def _cost(self, lengths: Floats) -> float:
        return float(lengths.sum()) * self._replications

    def _wished(self, found: Sequence[Incentive]) -> Floats:
        """How many times longer each trial should be; errors fall at least like 1 / √length."""
        excess = np.array([each.excess(self._wanted) for each in found])
        sure = np.array([each.is_sure(self._wanted) for each in found])
        wished = np.where((excess > 1) & ~sure[:, None], np.maximum(1.2 * excess**2, 1.5), 1.0)
        wished[:, 0] = wished.max(axis=1)
        return wished

    def _trials(self, lengths: Floats, due: np.ndarray) -> dict[tuple[int, ...], Trial]:
        found = {}
        for place in zip(*np.nonzero(due), strict=True):
            stride = self._stride(lengths[place])
            found[place] = replace(self._case.trial(), aggregations=4 * stride, until_time=None, stride=stride)
        return found

    def _stride(self, updates: np.float64) -> int:
        return quarter(float(updates / self._buffer))

    def _measure(self, trials: dict[tuple[int, ...], Trial]) -> None:
        asked = [
            replace(
                trial,
                client=self._case.clients[group],
                plans=((self._case.clients[group], Throttle(FACTORS[factor])),),
                seed=trial.seed + each,
            )
            for (group, factor), trial in trials.items()
            for each in range(self._replications)
        ]
        self._planned += len(asked)
        heard = iter(self._case.bench.map(influence, asked, self._count))
        for place in trials:
            for each in range(self._replications):
                before, share, updates, cost = next(heard)
                self._heard[(*place, each)] = before, share, updates
                self._spent += cost

    def _count(self, more: int) -> None:
        self._done += more
        self._told(self._done, self._planned)

    def _judged(self) -> tuple[Incentive, ...]:
        return tuple(judge(heard[..., 1].T, heard[..., 0].T, heard[..., 2].mean(axis=1)) for heard in self._heard)

    def _is_enough(self, found: Sequence[Incentive]) -> bool:
        return all(each.is_sure(self._wanted) for each in found)

    def _untried(self, least: float, needed: float) -> Throttling:
        nothing = np.zeros((2, len(FACTORS)))
        incentives = tuple(judge(nothing, nothing, nothing[0]) for _ in self._case.clients)
        rough, advice = map(advised, (least, needed))
        return Throttling(incentives, (0, 0), self._replications, self._wanted, advice, rough)


def advised(updates: float) -> str:
    """The option that allows this number of updates.

    >>> advised(1_234_567)
    '--incentive-updates 1300000'
    """
    return f"--incentive-updates {_rounded(updates)}"


def _rounded(number: float) -> int:
    """Rounds up to two digits.

    >>> _rounded(1_234_567), _rounded(9_990)
    (1300000, 10000)
    """
    unit = int(10 ** max(0, floor(log10(max(number, 1))) - 1))
    return ceil(number / unit) * unit
