"""One strategy under audit: what trials of cheating start from, and what was seen of it without any."""

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
    """A strategy of an experiment, where its trials run, and its truthful runs."""

    experiment: Experiment
    bench: Bench
    number: int
    """Which of the experiment's strategies."""
    observations: Sequence[Observation]
    """Runs as long as the experiment, one per seed."""
    compiled: bool
    """May the compiled loop take its trials?"""
    budget: int | None
    """How many updates each kind of trial may merge; None: as many as is usual for it."""

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
        """How many updates a run merges, on average."""
        return float(np.mean([each.updates.sum() for each in self.observations]))

    @cached_property
    def versions(self) -> float:
        """How many versions a run makes, on average."""
        return float(np.mean([each.aggregations for each in self.observations]))

    @cached_property
    def shares(self) -> Floats:
        """Per group: the part of all updates that one of its clients has; of a group that sent none, half an update."""
        sent = np.bincount(self.fleet.group_of, np.sum([each.updates for each in self.observations], axis=0))
        return np.asarray(np.maximum(sent, 0.5) / np.bincount(self.fleet.group_of) / sent.sum())

    def effort(self, *, compiled: int, server: int) -> int:
        """The budget; if there is none, one of these, depending on who runs the trials.

        It takes as long to simulate a task that is lost or refused as one that is merged, so the usual effort is less
        for fleets that lose many.
        """
        if self.budget is not None:
            return self.budget
        merged, unmerged = (
            sum(int(getattr(each, name).sum()) for each in self.observations) for name in ("updates", "unmerged")
        )
        return int((compiled if self.compiled else server) * merged / (merged + unmerged))

    def trial(self, part: float = 1.0) -> Trial:
        """A truthful run of the strategy that is this part of the experiment long."""
        versions, until = self.experiment.aggregations, self.experiment.until_time
        return Trial(
            self.number,
            self.experiment.seed,
            None if versions is None else ceil(part * versions),
            None if until is None else part * until,
            compiled=self.compiled,
        )
