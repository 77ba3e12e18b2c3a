"""Who was there when: what each client was entitled to, and for how long it was present."""

from collections.abc import Sequence

import numpy as np

from fairlag.core.types import Floats, Presence


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
