"""Who was there during a run, as it recorded it: what each client was entitled to, and for how long it was present."""

import sqlite3
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fairlag.core.accounts import Entitlement
from fairlag.core.types import Floats, Integers
from fairlag.errors import InputError
from fairlag.imported import is_code
from fairlag.lab.entitlement import Attendance
from fairlag.lab.experiment import check
from fairlag.lab.folder import FORMAT

_STEADY = """
SELECT COUNT(*) = 0
    OR (MIN(present) AND MIN(time) = MAX(time) AND SUM(last - first + 1) >= (SELECT COUNT(*) FROM clients))
FROM presence
"""
_NEWEST = "SELECT COALESCE(MAX(version), 0), COALESCE(MAX(time), 0.0) FROM aggregations"
_CHANGES = """
SELECT number, time, version, first, last, present FROM presence WHERE number > ? AND version < ? ORDER BY number
"""


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
