"""All that an audit tries of cheating under one strategy: throttling, other timings, other identities."""

from collections.abc import Sequence
from typing import NamedTuple

from fairlag.analyse.identities import Identities, identities
from fairlag.analyse.progress import Progress, teller
from fairlag.analyse.throttling import Throttler, Throttling
from fairlag.analyse.timings import Search, Timings
from fairlag.analyse.trial import Bench, Observation
from fairlag.lab.experiment import Experiment


class Cheating(NamedTuple):
    """What cheating does for one client of each group."""

    throttling: Throttling
    timings: Timings
    identities: tuple[Identities, ...]


def cheating(
    experiment: Experiment,
    bench: Bench,
    number: int,
    observations: Sequence[Observation],
    *,
    compiled: bool,
    budget: int | None,
    wanted: float,
    progress: Progress | None,
) -> Cheating:
    """Tries all of it, each part within `budget` updates; throttling until its error is as small as `wanted`."""
    use = experiment.strategies[number]
    label = f": {use.label}" if len(experiment.strategies) > 1 else ""
    throttled = Throttler(
        experiment,
        bench,
        number,
        observations,
        compiled=compiled,
        budget=budget,
        wanted=wanted,
        told=teller(progress, f"incentives{label}"),
    ).run()
    found = Search(
        experiment,
        bench,
        number,
        observations,
        compiled=compiled,
        budget=budget,
        told=teller(progress, f"timings{label}"),
    ).run()
    named = identities(experiment, bench, number, observations, compiled=compiled, budget=budget)
    return Cheating(throttled, found.with_throttling(throttled.incentives, tried=throttled.tried), named)
