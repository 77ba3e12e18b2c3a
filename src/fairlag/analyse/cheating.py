"""All kinds of cheating that an audit tries under one strategy: throttling, other timings, other identities."""

from typing import NamedTuple

from fairlag.analyse.case import Case
from fairlag.analyse.identities import Identities, identities
from fairlag.analyse.progress import Progress, teller
from fairlag.analyse.throttling import Throttler, Throttling
from fairlag.analyse.timings import Search, Timings


class Cheating(NamedTuple):
    """What cheating gains one client of each group."""

    throttling: Throttling
    timings: Timings
    identities: tuple[Identities, ...]


def cheating(case: Case, *, wanted: float, progress: Progress | None) -> Cheating:
    """Tries every kind of cheating within the case's budget; throttling until its error is as small as `wanted`."""
    strategies = case.experiment.strategies
    label = f" {case.number + 1} of {len(strategies)}: {strategies[case.number].label}" if len(strategies) > 1 else ""
    throttled = Throttler(case, wanted=wanted, told=teller(progress, f"incentives{label}")).run()
    found = Search(case, teller(progress, f"timings{label}")).run()
    names = identities(case, f"identities{label}", progress)
    return Cheating(throttled, found.with_throttling(throttled.incentives, tried=throttled.tried), names)
