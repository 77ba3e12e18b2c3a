"""The frozen records that modules exchange: events, commands, updates, and rows of history.

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
"""Makes a record from its fields in a third of the time of calling its class, for code that runs per event."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Report(NamedTuple):
    """What a client says about an update."""

    examples: int = 1
    """How many training examples the client has."""
    steps: int = 1
    """How many local steps the client made."""
    effort: float = 1.0
    """How often its gradients count in the update: the steps of plain gradient descent, more with local momentum."""
    loss: float = 0.0
    """The loss of its training examples that the strategy asks for (`Local`): while or before it trains; else 0."""


class Update(NamedTuple):
    """What a client sends back: (parameters after training) − (parameters before)."""

    delta: Vector
    """If the model has statistics, such as BatchNorm's running variance, it ends with their values after training."""
    report: Report = Report()


class CheckedUpdate(Update):
    """An update that its producer, in this process or a worker of it, has already validated.

    Data from outside never becomes one: a message is always a plain Update.
    """

    __slots__ = ()


NOTHING = Update(EMPTY)
"""The update of a task that computes nothing."""


# Events: from a runtime to the server. The server has no clock, so each event carries its time.


class Joined(NamedTuple):
    """Clients joined, at the start or after an absence; in one event, so that no rule favours the first in the list."""

    time: float
    clients: Sequence[int]


class Left(NamedTuple):
    """A client left; the task that it was running is lost."""

    time: float
    client: int


class Arrived(NamedTuple):
    """The update of a task arrived. Its client and version come from the server's records, never from the message."""

    time: float
    task: int
    update: Update


class Failed(NamedTuple):
    """A task ended without an update that could be used."""

    time: float
    task: int
    reason: str
    gone: bool = False
    """Did its client leave as well? Then it gets no task until it joins again."""
    refused: bool = False
    """True if an answer arrived that was not an update; otherwise the task counts as lost."""


class Woke(NamedTuple):
    """The time that an earlier Wake asked for has come."""

    time: float


Event = Joined | Left | Arrived | Failed | Woke


# Commands: from the server to a runtime.


class Dispatch(NamedTuple):
    """Train: a client gets a version. The server keeps this record until the task ends."""

    task: int
    client: int
    version: int
    ordinal: int
    """How many tasks this client had before. Client and ordinal are the address of all randomness of the task."""
    time: float
    steps: int = 0
    """How many local steps to make; 0 leaves it to the client."""
    pace: float = 1.0
    """A factor on its local step size."""


class Cancel(NamedTuple):
    """Drop a task: its result is no longer needed, or its client has left."""

    task: int


class Wake(NamedTuple):
    """Send a Woke at this time."""

    time: float


class Stop(NamedTuple):
    """The run is over, for this reason."""

    reason: str


Command = Dispatch | Cancel | Wake | Stop


def check_limits(aggregations: int | None, until_time: float | None) -> None:
    """Refuses limits that would end a run before it begins.

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
    """Why a run with a limit on aggregations ended.

    >>> aggregations_made(5)
    '5 aggregations were made'
    """
    return f"{count} aggregations were made"


def time_reached(time: float | None) -> str:
    """Why a run with a time limit ended.

    >>> time_reached(60.0)
    'time 60.0 was reached'
    """
    return f"time {time} was reached"


def budgets_spent(spent: int, left: int, least: int) -> str:
    """Why a run with privacy budgets ended.

    >>> budgets_spent(14, 1, 2)
    'the privacy budgets of 14 clients are spent: 1 are left, and a version needs at least 2'
    """
    return f"the privacy budgets of {spent} clients are spent: {left} are left, and a version needs at least {least}"


# History: what happened, for the run's record.


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
    """The clients whose part changes, each once."""
    changes: Floats
    """The change in units, from this version until the next change."""
    unit: float
    """The value of a unit in this version."""


class Aggregation(NamedTuple):
    """One new version: which updates made it, how stale they were, and how much each weighed."""

    version: int
    time: float
    tasks: tuple[Dispatch, ...]
    arrivals: Sequence[float]
    """When each update arrived."""
    staleness: Integers
    weights: Floats
    partial: bool
    """True if it has fewer updates than the trigger wanted, because every client would have waited for ever."""
    refused: str = ""
    """Why it was refused, and which clients are suspected: the parameters stay as they were, every weight is 0."""
    parts: Parts | None = None
    """None if an update acts in this version alone: then its weight is its part."""
    acted: float = 0.0
    """The value of a unit summed over all versions up to this one."""


class Ended(NamedTuple):
    """A task that ended without being aggregated."""

    task: Dispatch
    time: float
    outcome: Outcome
    reason: str


class Presence(NamedTuple):
    """Clients joined or left; versions after this one are made with or without them."""

    time: float
    version: int
    """The newest version at that time."""
    clients: Sequence[int]
    present: bool
    """True if they joined, False if they left."""


Row = Aggregation | Ended | Presence
Record = Callable[[Row], None]
OnVersion = Callable[[int, float, Vector], None]
"""Is given each new version: its number, its time and its parameters."""
