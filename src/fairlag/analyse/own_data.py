"""Clients' own test data: how good the model of a run is for each client, and over the seeds of a strategy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlag.analyse.totals import OwnScores
from fairlag.analyse.variants import settings_of
from fairlag.core.types import Floats
from fairlag.lab.run import Run
from fairlag.lab.scores import known_metric
from fairlag.text.scored import Scored


def own_scores(run: Run, metric: str | None = None) -> dict[bool, OwnScores]:
    """A metric, or the leading one, of each client: as the model is, and (True) after the client's own local steps."""
    higher = known_metric(metric, run.metrics).higher
    return OwnScores.read(lambda local: run.client_scores(metric, personalised=local), higher=higher)


@dataclass(frozen=True, slots=True)
class OwnData:
    """The leading metric on clients' own test data under one strategy, over the seeds that finished."""

    lead: Scored
    groups: tuple[str, ...]
    seeds: tuple[dict[bool, OwnScores], ...]
    steps: int
    """The local steps before a client's own copy is tested; 0 if none is."""
    tested: int
    """How many clients are tested, and how many could be; of all."""
    able: int
    clients: int

    def of(self, group: str | None, *, personalised: bool) -> list[OwnScores]:
        """The scores of the clients of a group, or of all: one entry per seed with any."""
        every = [each[personalised] for each in self.seeds if personalised in each]
        found = every if group is None else [each.of_group(group) for each in every]
        return [each for each in found if len(each.values)]

    def quantiles(self, group: str | None, shares: Floats, *, personalised: bool) -> Floats | None:
        """What these shares of the clients do not surpass, counted from the worst: the mean over seeds."""
        found = [each.quantiles(shares) for each in self.of(group, personalised=personalised)]
        return np.mean(found, axis=0) if found else None


def own_data(runs: Sequence[Run]) -> OwnData | None:
    """What is known about a strategy's runs; None if no client was tested on its own data."""
    seeds = [found for run in runs if run.status == "finished" and (found := own_scores(run))]
    if not seeds:
        return None
    first = runs[0]
    steps = settings_of(first).get("evaluate.personalise") or 0
    tested = max(len(run.client_scores()) for run in runs)
    able = first.meta.get("clients_with_tests") or tested
    return OwnData(first.lead, tuple(first.groups), tuple(seeds), steps, tested, able, len(first.clients))
