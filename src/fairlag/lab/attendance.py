"""Attendance: how long each client was present, and how many versions it was entitled to."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fairlag.core.accounts import Entitlement
from fairlag.core.types import Floats, Integers, Presence
from fairlag.errors import InputError
from fairlag.imported import is_code
from fairlag.lab.experiment import check

_STEADY = """
SELECT COUNT(*) = 0
    OR (MIN(present) AND MIN(time) = MAX(time) AND SUM(last - first + 1) >= (SELECT COUNT(*) FROM clients))
FROM presence
"""
_NEWEST = "SELECT COALESCE(MAX(version), 0), COALESCE(MAX(time), 0.0) FROM aggregations"
_SAID_SINCE = 4
"""The first format of runs that says who was there when."""
_CHANGES = """
SELECT number, time, version, first, last, present FROM presence WHERE number > ? AND version < ? ORDER BY number
"""


class Attendance:
    """What clients are entitled to: each version is shared by the clients that are present when it is made.

    They share it equally, or in proportion to their `importance`. If it is enough to be `known`, a client that joined
    once shares in all later versions. A version that is made while no client is present entitles none. If a client
    joins, or leaves, twice in a row, the second time does not count. This takes constant time per event and client: it
    keeps the running sum of the shares of a client of importance 1 that is always present, and, per client, the value
    of that sum when the client joined.

    >>> attendance = Attendance(2)
    >>> attendance.add(Presence(0.0, 0, [0, 1], True))
    >>> attendance.add(Presence(5.0, 4, [1], False))
    >>> attendance.entitled(version=6).tolist(), attendance.seconds(time=8.0).tolist()
    ([4.0, 2.0], [8.0, 5.0])
    """

    def __init__(self, clients: int, importance: Floats | None = None, *, known: bool = False) -> None:
        """Clients are numbered from 0; none is present yet."""
        self._importance = np.ones(clients) if importance is None else importance
        self._known = known
        self._there = np.zeros(clients, np.bool_)
        self._sharing = np.zeros(clients, np.bool_)
        """The clients that share in the next version."""
        self._sharers = 0
        self._total = 0.0
        """Their total importance."""
        self._version = 0
        self._level = 0.0
        """The versions that a client of importance 1 would be entitled to if it was always present."""
        self._gathered: Floats = np.zeros(clients)
        """Per client: the levels gained until it last left; minus the level when it joined, if it is present now."""
        self._seconds: Floats = np.zeros(clients)

    def add(self, row: Presence) -> None:
        """Clients joined or left."""
        for first, last in ranges(row.clients):
            self.change(row.time, row.version, slice(first, last + 1), present=row.present)

    def change(self, time: float, version: int, clients: slice, *, present: bool) -> None:
        """Consecutive clients joined or left at this time, when the newest version was `version`."""
        sign = -1.0 if present else 1.0
        self._seconds[clients] += sign * time * (self._there[clients] != present)
        self._there[clients] = present
        if self._known and not present:
            return
        self._level = self._level_at(version)
        self._version = version
        changed = self._sharing[clients] != present
        self._gathered[clients] += sign * self._level * changed
        self._sharing[clients] = present
        self._sharers -= int(sign) * int(np.count_nonzero(changed))
        # Sums of fractions are not exact; the importance of no clients is exactly 0.
        self._total = self._total - sign * float(self._importance[clients] @ changed) if self._sharers else 0.0

    def entitled(self, version: int) -> Floats:
        """Per client: the number of versions up to this one that it is entitled to."""
        return self._importance * (self._gathered + self._sharing * self._level_at(version))

    def seconds(self, time: float) -> Floats:
        """Per client: the seconds that it was present until this time."""
        return self._seconds + self._there * time

    def _level_at(self, version: int) -> float:
        return self._level + (version - self._version) / self._total if self._sharers else self._level


def ranges(clients: Sequence[int]) -> list[tuple[int, int]]:
    """The ranges of consecutive clients, as pairs of the first and the last.

    >>> ranges([7, 2, 3, 4]), ranges(range(1_000_000))
    ([(2, 4), (7, 7)], [(0, 999999)])
    """
    if not clients:
        return []
    if len(clients) == 1 or (isinstance(clients, range) and clients.step == 1):
        return [(clients[0], clients[-1])]
    each = np.sort(np.asarray(clients, np.int64))
    begins = np.flatnonzero(np.diff(each, prepend=each[0] - 2) != 1)
    ends = np.append(begins[1:], len(each)) - 1
    return list(zip(each[begins].tolist(), each[ends].tolist(), strict=True))


class Attended(NamedTuple):
    """One entry per client that the run knows."""

    client: Integers
    group: list[str]
    entitled: Floats
    """The number of versions it was entitled to: each is shared by the clients that were present when it was made."""
    seconds: Floats
    """The seconds that it was present."""


class Register:
    """The attendance of a run's clients, read from its database piece by piece."""

    def __init__(self, database: sqlite3.Connection, terms: Entitlement | None) -> None:
        """For the clients that the run knows so far; `terms` say how they share a version, None for equally."""
        rows = database.execute("SELECT client, grp, examples FROM clients ORDER BY client").fetchall()
        self.clients: Integers = np.array([client for client, *_ in rows], np.int64)
        self.groups: list[str] = [group for _, group, _ in rows]
        known = terms is not None and terms.entitled == "known"
        self.attendance = Attendance(len(rows), _importance(terms, rows), known=known)
        self.time = 0.0
        """When a client last joined or left."""
        self._number = 0

    def read(self, database: sqlite3.Connection, version: float) -> None:
        """Adds the clients that joined and left before this version was made."""
        for number, time, made, first, last, present in database.execute(_CHANGES, (self._number, version)):
            begin, end = self.clients.searchsorted(first), self.clients.searchsorted(last, "right")
            self.attendance.change(time, made, slice(begin, end), present=bool(present))
            self._number, self.time = number, max(self.time, time)


def attended(database: sqlite3.Connection, meta: Mapping[str, Any], terms: Entitlement | None) -> Attended | None:
    """The attendance that a run recorded; None if all clients were always present, or the run has no record of it.

    Even then it is not None if `importance` entitles clients to different parts.
    """
    steady = meta["format"] < _SAID_SINCE or database.execute(_STEADY).fetchone()[0]
    if steady and (terms is None or terms.importance == "uniform"):
        return None
    register = Register(database, terms)
    if steady:
        register.attendance.change(0.0, 0, slice(None), present=True)
    else:
        register.read(database, np.inf)
    version, made = database.execute(_NEWEST).fetchone()
    time = max(made, register.time, meta.get("virtual_time", 0.0))
    attendance = register.attendance
    return Attended(register.clients, register.groups, attendance.entitled(version), attendance.seconds(time))


def terms_of(tables: Mapping[str, Any]) -> Entitlement | None:
    """What the strategy of a written experiment entitles clients to; None if it does not define it, or is code."""
    try:
        experiment = check(dict(tables))
        use = experiment.strategies[0]
        return None if is_code(use.use) else experiment.strategy(use).account
    except InputError:
        return None


def _importance(terms: Entitlement | None, rows: list[tuple[int, str, int]]) -> Floats:
    """The importance per client; equal if no client has examples."""
    if terms is None or terms.importance == "uniform":
        return np.ones(len(rows))
    if terms.importance == "examples":
        examples = np.array([number for *_, number in rows], np.float64)
        return examples if examples.any() else np.ones(len(rows))
    return np.array([terms.of_group(group) for _, group, _ in rows])
