"""All that an audit tries of cheating under one strategy: throttling, other timings, other identities."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fairlag.analyse.identities import Identities, identities
from fairlag.analyse.throttling import Throttler, Throttling
from fairlag.analyse.timings import Search, Timings
from fairlag.analyse.trial import Bench, Observation
from fairlag.lab.experiment import Experiment

Progress = Callable[[str, int, int], None]
"""Told the part of the audit, how many trials of it are done, and of how many."""


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

    def teller(part: str) -> Callable[[int, int], None]:
        def tell(done: int, total: int) -> None:
            if progress is not None:
                progress(part + label, done, total)

        return tell

    throttled = Throttler(
        experiment,
        bench,
        number,
        observations,
        compiled=compiled,
        budget=budget,
        wanted=wanted,
        told=teller("incentives"),
    ).run()
    found = Search(
        experiment, bench, number, observations, compiled=compiled, budget=budget, told=teller("timings")
    ).run()
    named = identities(experiment, bench, number, observations, compiled=compiled, budget=budget)
    return Cheating(throttled, found.with_throttling(throttled.incentives, tried=throttled.tried), named)


def counter(progress: Progress | None, part: str, total: int) -> Callable[[int], None] | None:
    """Adds up the trials of a part that are done."""
    if progress is None:
        return None
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        progress(part, done, total)

    return count
