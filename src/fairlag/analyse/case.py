"""One strategy under audit: what the trials of cheating start from, and its truthful runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np

from fairlag.analyse.trial import Bench, Observation, Trial
from fairlag.core.types import Floats
from fairlag.fleet.clients import Fleet
from fairlag.lab.experiment import Experiment


@dataclass(frozen=True)
class Case:
    """A strategy of an experiment, the bench that runs its trials, and its truthful runs."""

    experiment: Experiment
    bench: Bench
    number: int
    """The place of the strategy in the experiment."""
    observations: Sequence[Observation]
    """Runs as long as the experiment, one per seed."""
    compiled: bool
    """May the compiled loop run its trials?"""
    budget: int | None
    """How many updates each kind of trial may merge; None for its default."""

    @cached_property
    def fleet(self) -> Fleet:
        """The clients of the experiment."""
        return self.experiment.fleet()

    @cached_property
    def clients(self) -> list[int]:
        """The first client of each group: the one that cheats."""
        return [self.fleet.members(group)[0] for group in range(len(self.fleet.groups))]

    @cached_property
    def updates(self) -> float:
        """The mean number of updates that a run merges."""
        return float(np.mean([each.updates.sum() for each in self.observations]))

    @cached_property
    def versions(self) -> float:
        """The mean number of versions that a run makes."""
        return float(np.mean([each.aggregations for each in self.observations]))

    @cached_property
    def shares(self) -> Floats:
        """Per group: one client's share of all updates. A group that sent none counts as having sent half an update."""
        sent = np.bincount(self.fleet.group_of, np.sum([each.updates for each in self.observations], axis=0))
        return np.asarray(np.maximum(sent, 0.5) / np.bincount(self.fleet.group_of) / sent.sum())

    def effort(self, *, compiled: int, server: int) -> int:
        """The budget; by default `compiled` or `server`, depending on which of the two runs the trials.

        A task that is lost or refused takes as long to simulate as one that is merged, so the default is smaller for
        fleets that lose many tasks.
        """
        if self.budget is not None:
            return self.budget
        merged, unmerged = (
            sum(int(getattr(each, name).sum()) for each in self.observations) for name in ("updates", "unmerged")
        )
        return int((compiled if self.compiled else server) * merged / (merged + unmerged))

    def trial(self, part: float = 1.0) -> Trial:
        """A truthful run of the strategy. Its length is this part of the experiment's."""
        versions, until = self.experiment.aggregations, self.experiment.until_time
        return Trial(
            self.number,
            self.experiment.seed,
            None if versions is None else ceil(part * versions),
            None if until is None else part * until,
            compiled=self.compiled,
        )
