"""What metrics are computed from: updates, weight and staleness per client, and the scores of the model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlag.analyse import fairness
from fairlag.analyse.fairness import GroupFairness
from fairlag.core.types import Floats


@dataclass(frozen=True)
class OwnScores:
    """The leading metric of a model on the own test data of clients: one value per client, each counts the same.

    >>> own = OwnScores.of([0.9, 0.5, 1.0, float("nan")], ["fast", "slow", "fast", "slow"], higher=True)
    >>> own.by_group, [round(each, 9) for each in (own.mean, own.worst_tenth, own.group_gap)]
    ({'fast': 0.95, 'slow': 0.5}, [0.8, 0.58, 0.45])
    """

    values: Floats
    groups: Sequence[str]
    """The group of each client."""
    higher: bool
    """Are higher values better?"""

    @classmethod
    def of(cls, values: Iterable[float], groups: Iterable[str], *, higher: bool) -> "OwnScores":
        """Of the clients whose value is known: a client with examples of one class has no AUROC, for example."""
        known = [(value, group) for value, group in zip(values, groups, strict=True) if not isnan(value)]
        return cls(np.array([value for value, _ in known]), [group for _, group in known], higher)

    @classmethod
    def read(cls, frame: Callable[[bool], Any], *, higher: bool) -> "dict[bool, OwnScores]":
        """As the model is, and (True) after the clients' own local steps, from frames such as `Run.client_scores`."""
        frames = {personalised: frame(personalised) for personalised in (False, True)}
        return {key: cls.of(each["value"], each["group"], higher=higher) for key, each in frames.items() if len(each)}

    @property
    def mean(self) -> float:
        """The mean over clients."""
        return float(self.values.mean()) if len(self.values) else nan

    @property
    def worst_tenth(self) -> float:
        """A tenth of the clients have this value or a worse one: the quantile, interpolated linearly."""
        return float(self.quantiles(np.array(0.1)))

    def quantiles(self, shares: Floats) -> Floats:
        """The values that these shares of the clients do not surpass, counted from the worst client."""
        if not len(self.values):
            return np.full(shares.shape, nan)
        with np.errstate(invalid="ignore"):  # a value may be infinite
            return np.quantile(self.values, shares if self.higher else 1 - shares)

    def of_group(self, name: str) -> "OwnScores":
        """Of the clients of one group."""
        mine = np.array([group == name for group in self.groups], bool)
        return OwnScores(self.values[mine], [name] * int(mine.sum()), self.higher)

    @cached_property
    def by_group(self) -> dict[str, float]:
        """The mean over the clients of each group."""
        return {name: self.of_group(name).mean for name in dict.fromkeys(self.groups)}

    @property
    def group_gap(self) -> float:
        """The difference between the best and the worst group; NaN if there is only one."""
        means = self.by_group.values()
        return max(means) - min(means) if len(means) > 1 else nan


@dataclass(frozen=True)
class Totals:
    """The totals of one run or trial so far, from which metrics are computed.

    The arrays have one entry per client. Without `entitled` and `presence`, all clients count the same.
    """

    groups: Sequence[str]
    group_of: NDArray[np.integer]
    updates: NDArray[np.number]
    weights: Floats
    staleness: NDArray[np.number]
    """The sum over the client's updates."""
    entitled: Floats | None = None
    """What the client was entitled to."""
    presence: Floats | None = None
    """How long the client was present."""
    version: int = 0
    time: float = nan
    scores: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    """The scores of the model by metric, scope ("all", "group" or "class") and the name of the group or class."""
    own: Mapping[bool, OwnScores] = field(default_factory=dict)
    """On clients' own test data, as it is, and (True) after their own local steps; empty unless they are tested."""
    reached: float = nan
    """When the leading metric first reached the target."""

    @cached_property
    def by_group(self) -> dict[str, GroupFairness]:
        """What each group sent and got; shares are NaN without any updates, its staleness is NaN without its own."""
        arrays = (self.updates, self.weights, self.staleness, self.entitled, self.presence)
        found = fairness.by_group(self.group_of, self.groups, *arrays)
        if not self.updates.any():
            found = [replace(each, update_share=nan, influence=nan, per_presence=nan) for each in found]
        return {each.name: each if each.update_share > 0 else replace(each, mean_staleness=nan) for each in found}

    @property
    def mean_staleness(self) -> float:
        """The mean over all updates; NaN before the first."""
        updates = self.updates.sum()
        return float(self.staleness.sum() / updates) if updates else nan

    @property
    def jain(self) -> float:
        """Jain's index of the clients' influence; NaN if no client has any yet, or some have a negative one."""
        return fairness.jain_if_any(self.weights)

    @property
    def jain_entitled(self) -> float:
        """Jain's index of influence ÷ entitlement."""
        if isnan(self.jain) or self.entitled is None:
            return self.jain
        return fairness.jain_entitled(self.weights, self.entitled)
