"""What metrics are computed from: per client how many updates, which weight, how late; and how good the model is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isnan, nan

import numpy as np
from numpy.typing import NDArray

from fairlag.analyse import fairness
from fairlag.analyse.fairness import GroupFairness
from fairlag.core.types import Floats


@dataclass(frozen=True)
class Totals:
    """What one run, or one trial, has added up to so far: what metrics are computed from.

    The arrays have one entry per client. Without `entitled` and `presence`, all clients are alike.
    """

    groups: Sequence[str]
    group_of: NDArray[np.integer]
    updates: NDArray[np.number]
    weights: Floats
    staleness: NDArray[np.number]
    """The sum over its updates."""
    entitled: Floats | None = None
    """What it was entitled to."""
    presence: Floats | None = None
    """How long it was there."""
    version: int = 0
    time: float = nan
    scores: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    """How good the model is, by metric, by scope ("all", "group" or "class") and by the name of the group or class."""
    reached: float = nan
    """When the leading metric first reached the target."""

    @cached_property
    def by_group(self) -> dict[str, GroupFairness]:
        """What each group sent and got; not a number if that is a part of nothing, or the staleness of nothing."""
        arrays = (self.updates, self.weights, self.staleness, self.entitled, self.presence)
        found = fairness.by_group(self.group_of, self.groups, *arrays)
        if not self.updates.any():
            found = [replace(each, update_share=nan, influence=nan, per_presence=nan) for each in found]
        return {each.name: each if each.update_share > 0 else replace(each, mean_staleness=nan) for each in found}

    @property
    def mean_staleness(self) -> float:
        """Over all updates; not a number before the first."""
        updates = self.updates.sum()
        return float(self.staleness.sum() / updates) if updates else nan

    @property
    def jain(self) -> float:
        """Over the influence of clients; not a number if nobody has any yet, or somebody has less than none."""
        return fairness.jain_if_any(self.weights)

    @property
    def jain_entitled(self) -> float:
        """Over their influence ÷ what they were entitled to."""
        if isnan(self.jain) or self.entitled is None:
            return self.jain
        return fairness.jain_entitled(self.weights, self.entitled)
