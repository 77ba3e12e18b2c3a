"""The frozen records that rooms of the house hand each other: events, commands, updates, and rows of history.

>>> import fairlag
>>> server = fairlag.Server(fairlag.zoo.fedasync(), clients=1)
>>> server.handle(fairlag.core.types.Joined(time=0.0, clients=[0]))
[Dispatch(task=0, client=0, version=0, ordinal=0, time=0.0, steps=0, pace=1.0)]
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlag.core.vector import EMPTY, Vector
from fairlag.errors import InputError

record_of = tuple.__new__
"""Makes a record from its fields in a third of the time that calling its class takes: for what happens per event."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Report(NamedTuple):
    """What a client says about an update."""

    examples: int = 1
    """How many training examples it has."""
    steps: int = 1
    """How many local steps it made."""
    effort: float = 1.0
    """How often its gradients count in the update: the steps of plain gradient descent, more with local momentum."""
    loss: float = 0.0
    """The root of the mean squared loss of the examples it trained on, where the strategy asks for it."""


class Update(NamedTuple):
    """What a client sends back: (parameters after training) − (parameters it was handed)."""

    delta: Vector
    """If the model has statistics, such as BatchNorm's running variance, it ends with their values after training."""
    report: Report = Report()


class CheckedUpdate(Update):
    """An update that its producer, in this process or a worker of it, has already validated.

    What comes from outside is never one: a message always becomes a plain Update.
    """

    __slots__ = ()


NOTHING = Update(EMPTY)
"""The update of a task that computes nothing."""


# Events: what a runtime tells the server. The server has no clock, so each says when it happened.


class Joined(NamedTuple):
    """Clients came, at the start or back from an absence; together, so that no rule favours the first named."""

    time: float
    clients: Sequence[int]


class Left(NamedTuple):
    """A client went; a task that it was running is lost."""

    time: float
    client: int


class Arrived(NamedTuple):
    """An update came in for a task. Who sent it and from which version is the server's record, never the message's."""

    time: float
    task: int
    update: Update


class Failed(NamedTuple):
    """A task ended without an update that could be used."""

    time: float
    task: int
    reason: str
    gone: bool = False
    """Is its client gone as well? Then it is given nothing until it joins again."""
    refused: bool = False
    """Did something come that was no update? Otherwise the task is lost."""


class Woke(NamedTuple):
    """The moment that an earlier Wake asked for has come."""

    time: float


Event = Joined | Left | Arrived | Failed | Woke


# Commands: what the server asks of a runtime.


class Dispatch(NamedTuple):
    """Train: a client gets a version. It is the server's record of the task until the task ends."""

    task: int
    client: int
    version: int
    ordinal: int
    """How many tasks this client was given before: with the client, the address of all randomness of the task."""
    time: float
    steps: int = 0
    """How many local steps it shall make; 0: as many as it does by itself."""
    pace: float = 1.0
    """A factor on its local step size."""


class Cancel(NamedTuple):
    """Forget a task: its result is not wanted any more, or its client is gone."""

    task: int


class Wake(NamedTuple):
    """Send a Woke at that time."""

    time: float


class Stop(NamedTuple):
    """The run is over, for that reason."""

    reason: str


Command = Dispatch | Cancel | Wake | Stop


def check_limits(aggregations: int | None, until_time: float | None) -> None:
    """Refuses a run that would end before it begins.

    >>> check_limits(0, None)
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: aggregations is 0, it must be at least 1, or None for no limit
    """
    if aggregations is not None and aggregations < 1:
        raise InputError(f"aggregations is {aggregations}, it must be at least 1, or None for no limit")
    if until_time is not None and not until_time > 0:
        raise InputError(f"until_time is {until_time}, it must be positive, or None for no limit")


def aggregations_made(count: int) -> str:
    """Why a run ended that was to make so many versions.

    >>> aggregations_made(5)
    '5 aggregations were made'
    """
    return f"{count} aggregations were made"


def time_reached(time: float | None) -> str:
    """Why a run ended that was to last until then.

    >>> time_reached(60.0)
    'time 60.0 was reached'
    """
    return f"time {time} was reached"


# History: what happened, for whoever records it.


class Outcome(StrEnum):
    """How a task ended; each ends exactly once."""

    AGGREGATED = "aggregated"
    REFUSED = "refused"
    LOST = "lost"
    CANCELLED = "cancelled"


class Parts(NamedTuple):
    """How clients' parts of the versions change, for reductions in which an update acts in more than one version.

    A version is a mixture of earlier ones plus a sum of clients' updates, each with a coefficient. A client's part of
    it is the sum of the coefficients of its updates; its influence is its share of all parts of all versions.
    """

    clients: Integers
    """Whose part changes, each client once."""
    changes: Floats
    """By how many units, from this version on until another change."""
    unit: float
    """What a unit is worth in this version."""


class Aggregation(NamedTuple):
    """One new version: which updates made it, how stale they were, and how much each weighed."""

    version: int
    time: float
    tasks: tuple[Dispatch, ...]
    arrivals: Sequence[float]
    """When each update came in."""
    staleness: Integers
    weights: Floats
    partial: bool
    """Merged short of what the trigger wanted, because otherwise everyone would have waited for ever."""
    refused: str = ""
    """Why nothing of it was used, and who is suspected: the version is the one before, and every weight is 0."""
    parts: Parts | None = None
    """None if an update acts in this version alone, so that its weight is its part."""
    acted: float = 0.0
    """What a unit was worth in all versions up to this one together."""


class Ended(NamedTuple):
    """A task that ended without being aggregated."""

    task: Dispatch
    time: float
    outcome: Outcome
    reason: str


class Presence(NamedTuple):
    """Clients came or went; versions after this one are made with them, or without them."""

    time: float
    version: int
    """The newest version at that time."""
    clients: Sequence[int]
    present: bool
    """Are they there now?"""


Row = Aggregation | Ended | Presence
Record = Callable[[Row], None]
OnVersion = Callable[[int, float, Vector], None]
"""Is given each new version: its number, its time and its parameters."""
