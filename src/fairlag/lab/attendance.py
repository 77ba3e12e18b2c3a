"""Who was there when: for how long each client was present, and how many versions it was entitled to."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fairlag.core.types import Floats, Integers, Presence
from fairlag.lab.schema import FORMAT

_STEADY = """
SELECT COUNT(*) = 0
    OR (MIN(present) AND MIN(time) = MAX(time) AND SUM(last - first + 1) >= (SELECT COUNT(*) FROM clients))
FROM presence
"""
_NEWEST = """
SELECT COALESCE(MAX(version), 0), COALESCE(MAX(time), 0.0), (SELECT MAX(time) FROM presence) FROM aggregations
"""


class Attendance:
    """What clients are entitled to: each version is shared equally by those who are present when it is made.

    A version that is made while nobody is there entitles nobody. Of a client that comes, or goes, twice in a row, the
    second time does not count. It takes a constant time per event and client: the running sum of the shares of one
    who is always there is kept, and per client what it was when the client came.

    >>> attendance = Attendance(2)
    >>> attendance.add(Presence(0.0, 0, [0, 1], True))
    >>> attendance.add(Presence(5.0, 4, [1], False))
    >>> attendance.entitled(version=6).tolist(), attendance.seconds(time=8.0).tolist()
    ([4.0, 2.0], [8.0, 5.0])
    """

    def __init__(self, clients: int) -> None:
        """Of clients that are numbered from 0; nobody is there yet."""
        self._there = np.zeros(clients, np.bool_)
        self._present = 0
        self._version = 0
        self._level = 0.0
        """The versions that one who was there all the time would be entitled to."""
        self._entitled: Floats = np.zeros(clients)
        """Per client: what it was entitled to when it left last, minus the level when it came if it is there now."""
        self._seconds: Floats = np.zeros(clients)

    def add(self, row: Presence) -> None:
        """Clients came or went."""
        for first, last in ranges(row.clients):
            self.change(row.time, row.version, slice(first, last + 1), present=row.present)

    def change(self, time: float, version: int, clients: slice, *, present: bool) -> None:
        """Consecutive clients came or went at that time, when the newest version was this one."""
        self._level = self._level_at(version)
        self._version = version
        changed = self._there[clients] != present
        sign = -1.0 if present else 1.0
        self._entitled[clients] += sign * self._level * changed
        self._seconds[clients] += sign * time * changed
        self._there[clients] = present
        self._present -= int(sign) * int(np.count_nonzero(changed))

    def entitled(self, version: int) -> Floats:
        """Per client: how many of the versions up to this one it is entitled to."""
        return self._entitled + self._there * self._level_at(version)

    def seconds(self, time: float) -> Floats:
        """Per client: for how long it was there until that time."""
        return self._seconds + self._there * time

    def _level_at(self, version: int) -> float:
        return self._level + (version - self._version) / self._present if self._present else self._level


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
    """How many versions it was entitled to: each is shared equally by those who were there when it was made."""
    seconds: Floats
    """For how long it was there."""


def attended(database: sqlite3.Connection, meta: Mapping[str, Any]) -> Attended | None:
    """What a run says of who was there; None if everybody was all the time, as in runs that do not say it."""
    if meta["format"] < FORMAT or database.execute(_STEADY).fetchone()[0]:
        return None
    rows = database.execute("SELECT client, grp FROM clients ORDER BY client").fetchall()
    clients = np.array([client for client, _ in rows], np.int64)
    changes = database.execute("SELECT time, version, first, last, present FROM presence ORDER BY number").fetchall()
    times, versions, first, last, present = zip(*changes, strict=True)
    begins = np.searchsorted(clients, np.array(first, np.int64)).tolist()
    ends = np.searchsorted(clients, np.array(last, np.int64), "right").tolist()
    attendance = Attendance(len(clients))
    for time, version, begin, end, there in zip(times, versions, begins, ends, present, strict=True):
        attendance.change(time, version, slice(begin, end), present=bool(there))
    version, *moments = database.execute(_NEWEST).fetchone()
    time = max(*moments, meta.get("virtual_time", 0.0))
    return Attended(clients, [group for _, group in rows], attendance.entitled(version), attendance.seconds(time))
