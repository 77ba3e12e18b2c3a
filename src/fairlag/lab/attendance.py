"""Who was there when: for how long each client was present, and how many versions it was entitled to."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fairlag.core.accounts import Entitlement
from fairlag.core.types import Floats, Integers, Presence
from fairlag.errors import InputError
from fairlag.imported import is_code
from fairlag.lab.experiment import check
from fairlag.lab.schema import FORMAT

_STEADY = """
SELECT COUNT(*) = 0
    OR (MIN(present) AND MIN(time) = MAX(time) AND SUM(last - first + 1) >= (SELECT COUNT(*) FROM clients))
FROM presence
"""
_NEWEST = "SELECT COALESCE(MAX(version), 0), COALESCE(MAX(time), 0.0) FROM aggregations"
_CHANGES = """
SELECT number, time, version, first, last, present FROM presence WHERE number > ? AND version < ? ORDER BY number
"""


class Attendance:
    """What clients are entitled to: each version is shared by those who are present when it is made.

    They share it equally, or in proportion to their `importance`. If it is enough to be `known`, whoever came once
    shares in all later versions. A version that is made while nobody is there entitles nobody. Of a client that comes,
    or goes, twice in a row, the second time does not count. It takes a constant time per event and client: the running
    sum of the shares of a client of importance 1 that is always there is kept, and per client what it was when the
    client came.

    >>> attendance = Attendance(2)
    >>> attendance.add(Presence(0.0, 0, [0, 1], True))
    >>> attendance.add(Presence(5.0, 4, [1], False))
    >>> attendance.entitled(version=6).tolist(), attendance.seconds(time=8.0).tolist()
    ([4.0, 2.0], [8.0, 5.0])
    """

    def __init__(self, clients: int, importance: Floats | None = None, *, known: bool = False) -> None:
        """Of clients that are numbered from 0; nobody is there yet."""
        self._importance = np.ones(clients) if importance is None else importance
        self._known = known
        self._there = np.zeros(clients, np.bool_)
        self._sharing = np.zeros(clients, np.bool_)
        """Those who share in the next version."""
        self._sharers = 0
        self._total = 0.0
        """Their importance."""
        self._version = 0
        self._level = 0.0
        """The versions that a client of importance 1 that was there all the time would be entitled to."""
        self._gathered: Floats = np.zeros(clients)
        """Per client: the levels that it saw until it left last, minus the one when it came if it is there now."""
        self._seconds: Floats = np.zeros(clients)

    def add(self, row: Presence) -> None:
        """Clients came or went."""
        for first, last in ranges(row.clients):
            self.change(row.time, row.version, slice(first, last + 1), present=row.present)

    def change(self, time: float, version: int, clients: slice, *, present: bool) -> None:
        """Consecutive clients came or went at that time, when the newest version was this one."""
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
        # Sums of fractions are not exact; the importance of nobody is.
        self._total = self._total - sign * float(self._importance[clients] @ changed) if self._sharers else 0.0

    def entitled(self, version: int) -> Floats:
        """Per client: how many of the versions up to this one it is entitled to."""
        return self._importance * (self._gathered + self._sharing * self._level_at(version))

    def seconds(self, time: float) -> Floats:
        """Per client: for how long it was there until that time."""
        return self._seconds + self._there * time

    def _level_at(self, version: int) -> float:
        return self._level + (version - self._version) / self._total if self._sharers else self._level


def ranges(clients: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive clients together, each time the first and the last of them.

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
    """How many versions it was entitled to: each is shared by those who were there when it was made."""
    seconds: Floats
    """For how long it was there."""


class Register:
    """The attendance of a run's clients, read from its database piece by piece."""

    def __init__(self, database: sqlite3.Connection, terms: Entitlement | None) -> None:
        """Of the clients that the run knows by now; `terms` say how they share a version, equally if that is None."""
        rows = database.execute("SELECT client, grp, examples FROM clients ORDER BY client").fetchall()
        self.clients: Integers = np.array([client for client, *_ in rows], np.int64)
        self.groups: list[str] = [group for _, group, _ in rows]
        known = terms is not None and terms.entitled == "known"
        self.attendance = Attendance(len(rows), _importance(terms, rows), known=known)
        self.time = 0.0
        """When somebody last came or went."""
        self._number = 0

    def read(self, database: sqlite3.Connection, version: float) -> None:
        """Adds who came and went before that version was made."""
        for number, time, made, first, last, present in database.execute(_CHANGES, (self._number, version)):
            begin, end = self.clients.searchsorted(first), self.clients.searchsorted(last, "right")
            self.attendance.change(time, made, slice(begin, end), present=bool(present))
            self._number, self.time = number, max(self.time, time)


def attended(database: sqlite3.Connection, meta: Mapping[str, Any], terms: Entitlement | None) -> Attended | None:
    """What a run says of who was there; None if everybody was all the time, as in runs that do not say it.

    Unless `importance` entitles clients to different parts even then.
    """
    steady = meta["format"] < FORMAT or database.execute(_STEADY).fetchone()[0]
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
    """What the strategy of a written experiment entitles clients to; None if it does not say so, or is code."""
    try:
        experiment = check(dict(tables))
        use = experiment.strategies[0]
        return None if is_code(use.use) else experiment.strategy(use).account
    except InputError:
        return None


def _importance(terms: Entitlement | None, rows: list[tuple[int, str, int]]) -> Floats:
    """Per client; equal if nobody has examples."""
    if terms is None or terms.importance == "uniform":
        return np.ones(len(rows))
    if terms.importance == "examples":
        examples = np.array([number for *_, number in rows], np.float64)
        return examples if examples.any() else np.ones(len(rows))
    return np.array([terms.of_group(group) for _, group, _ in rows])
