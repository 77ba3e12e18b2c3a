"""Who was there during a run, as it recorded it: what each client was entitled to, and for how long it was present."""

import sqlite3
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fairlag.core.types import Floats, Integers
from fairlag.lab.entitlement import Attendance
from fairlag.lab.folder import FORMAT

_STEADY = """
SELECT COUNT(*) = 0
    OR (MIN(present) AND MIN(time) = MAX(time) AND SUM(last - first + 1) >= (SELECT COUNT(*) FROM clients))
FROM presence
"""
_NEWEST = """
SELECT COALESCE(MAX(version), 0), COALESCE(MAX(time), 0.0), (SELECT MAX(time) FROM presence) FROM aggregations
"""


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
