"""What metrics are computed from: updates, weight and staleness per client, and the scores of the model."""

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
