"""Triggers: when the buffer is merged into a new version."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules import check
from fairlag.rules.rule import with_provenance

_MAX_UPDATES = 10_000_000


@dataclass(frozen=True, slots=True)
class Trigger:
    """When to aggregate, asked after every event; and what it waits for, so that construction can detect deadlocks."""

    label: str
    ready: Callable[[View], bool]
    """Is it time to aggregate? Called only while the buffer holds at least one update."""
    wake: Callable[[View], float | None] | None = None
    """When it wants to be asked next even without an event, while an update is buffered or a task is running."""
    needs: int = 1
    """How many updates must arrive before it can be ready."""
    rounds: bool = False
    """Does it wait for the end of a round, and so need a selection that works in rounds?"""
    profiles: bool = False
    """Does it read the slowest running client?"""
    unseen: float = 0.0
    """The assumed duration, for that, of tasks of clients without updates."""
    planned: bool = False
    """Does it merge when selection says so, and so need a selection that holds updates back?"""
    awaits: bool = False
    """Does it read how many present clients have no update in the buffer?"""
    fresh: bool = False
    """Does it wait until no task is running, and so need a selection whose clients wait for a newer version?"""

    def __post_init__(self) -> None:
        _whole("number of updates that a trigger needs", self.needs)


def count(k: int) -> Trigger:
    """When k updates are in the buffer.

    >>> count(5).needs
    5
    """
    _whole("buffer", k)
    return Trigger(f"count({k})", with_provenance(lambda view: view.buffered >= k, count, k=k), needs=k)


def everyone_first(k: int) -> Trigger:
    """When every client has sent an update trained from the first version; after that, when k are in the buffer.

    The first version is made when no task is running any longer, so nobody waits for clients that have left.

    >>> everyone_first(1).label
    'everyone_first(1)'
    """
    _whole("buffer", k)

    def ready(view: View) -> bool:
        return view.buffered >= k if view.version else view.running == 0

    return Trigger(f"everyone_first({k})", with_provenance(ready, everyone_first, k=k), fresh=True)


def every(interval: float) -> Trigger:
    """At every multiple of a time interval, with the updates that have arrived; without any, there is no new version.

    >>> from fairlag.core.ledger import Ledger
    >>> every(0.5).wake(View(Ledger()))
    0.5
    """
    check.positive("the interval", interval)

    def wake(view: View) -> float:
        tick = math.floor(view.time / interval) + 1
        # A quotient that was rounded down would give the current tick again.
        return (tick if tick * interval > view.time else tick + 1) * interval

    return Trigger(f"every({interval})", with_provenance(lambda view: view.woke, every, interval=interval), wake)


def everyone() -> Trigger:
    """When every client that is present has at least one update in the buffer.

    >>> everyone().label
    'everyone()'
    """
    return Trigger("everyone()", with_provenance(lambda view: view.awaited == 0, everyone), awaits=True)


def quorum(k: int, *, deadline: float) -> Trigger:
    """When k updates have arrived, or at the deadline after the last version with at least one update.

    >>> quorum(5, deadline=10.0).needs
    1
    """
    _whole("quorum", k)
    check.positive("the deadline", deadline)
    return Trigger(
        f"quorum({k}, deadline={deadline})",
        lambda view: view.buffered >= k or view.time >= view.renewed + deadline,
        lambda view: view.renewed + deadline,
    )


def paced(bound: float, *, unseen: float = 0.0) -> Trigger:
    """When 1/`bound` of the slowest running client's mean task duration has passed since the last version.

    Then few updates are more than `bound` versions late. A client without updates is assumed to need `unseen` seconds.

    >>> paced(5).label, paced(5, unseen=180.0).label
    ('paced(5)', 'paced(5, unseen=180.0)')
    """
    check.positive("the staleness bound", bound)
    check.not_negative("the duration for unseen clients", unseen)

    def due(view: View) -> float:
        return view.renewed + view.slowest / bound

    label = f"paced({bound}, unseen={unseen})" if unseen else f"paced({bound})"
    return Trigger(label, lambda view: view.time >= due(view), due, profiles=True, unseen=unseen)


def cohort_done() -> Trigger:
    """When the cohort's target has arrived, when none of its tasks is running, or when its deadline passes.

    >>> cohort_done().label
    'cohort_done()'
    """

    def ready(view: View) -> bool:
        return view.buffered >= view.target or view.running == 0 or view.time >= view.until

    def wake(view: View) -> float | None:  # a function of its own, whose provenance is known
        return _deadline(view)

    return Trigger(
        "cohort_done()", with_provenance(ready, cohort_done), with_provenance(wake, cohort_done), rounds=True
    )


def as_planned() -> Trigger:
    """When selection says so: with the last update that it waits for, or at its deadline.

    >>> as_planned().label
    'as_planned()'
    """

    def ready(view: View) -> bool:
        return view.buffered >= view.target or view.time >= view.until

    return Trigger("as_planned()", ready, _deadline, planned=True)


def _deadline(view: View) -> float | None:
    """When the round ends at the latest, if it has a deadline."""
    return view.until if math.isfinite(view.until) else None


def _whole(name: str, value: int) -> None:
    if not isinstance(value, int) or not 1 <= value <= _MAX_UPDATES:
        raise StrategyError(f"the {name} is {value}, it must be a positive whole number up to {_MAX_UPDATES:,}")
