"""Compares the rows of two runs, and finds the first difference."""

import sqlite3
from collections.abc import Iterator
from itertools import zip_longest
from math import inf
from typing import Any, NamedTuple

from fairlag.lab.folder import layout_of, reading
from fairlag.lab.run import Run
from fairlag.lab.schema import CLIENT_SCORES, SCORES
from fairlag.limits import shown

_UPDATE = "client, ordinal, version, dispatched, steps, pace, ended"
_EARLY = {
    "clients": (3, "SELECT 0 AS version, client, grp, examples FROM clients WHERE 0 <= :last ORDER BY client"),
    "aggregations": (1, "SELECT * FROM aggregations WHERE version <= :last ORDER BY version"),
    "tasks": (
        2,
        f"SELECT aggregation, task, {_UPDATE}, staleness, weight FROM tasks WHERE outcome = 'aggregated' "
        "AND aggregation <= :last ORDER BY aggregation, task",
    ),
    "evaluations": (
        5,
        "SELECT version, scope, name, metric, whole, time, examples, value FROM {scores} WHERE version <= :last "
        "ORDER BY version, scope, name, metric, whole",
    ),
    "parts": (2, "SELECT version, client, change FROM parts WHERE version <= :last ORDER BY version, client"),
    "units": (1, "SELECT version, acted FROM units WHERE version <= :last ORDER BY version"),
}
"""Per table: how many columns name a row, the first of which is its aggregation; and the query of its rows."""
_LATE = {
    "tasks": (
        2,
        f"SELECT :last AS version, task, {_UPDATE}, outcome, reason FROM tasks WHERE outcome <> 'aggregated' "
        "ORDER BY task",
    ),
    "presence": (
        2,
        "SELECT version, number, time, first, last, present FROM presence WHERE 0 <= :last ORDER BY number",
    ),
    "client_scores": (
        4,
        "SELECT version, client, steps, metric, examples, value FROM {client_scores} WHERE 0 <= :last "
        "ORDER BY version, client, steps, metric",
    ),
    "refusals": (2, "SELECT :last AS version, reason, count FROM refusals ORDER BY reason"),
}
"""The same for what is only known at the end of a run."""
_END = ("status", "reason", "virtual_time", "counts", "model_sha256")


class Difference(NamedTuple):
    """The first value that two runs do not share."""

    version: int
    sentence: str


class Compared(NamedTuple):
    """What was compared, and the first difference, if there is one."""

    evaluations: int
    """How many versions were evaluated."""
    difference: Difference | None


def compared(there: Run, here: Run, last: int, *, whole: bool) -> Compared:
    """Compares two runs up to an aggregation; or all of them, with their final models.

    Of a failed run, the rows after its last checkpoint are lost, and when that was depends on the machine. So only the
    rows of aggregations are compared, and the reason.
    """
    finished = there.status == here.status == "finished"
    with reading(there.folder) as one, reading(here.folder) as other:
        formats = there.meta["format"], here.meta["format"]
        known = set(layout_of(one, there.folder).tables) & set(layout_of(other, here.folder).tables)
        queries = [*_EARLY.items(), *(_LATE.items() if whole and finished else ())]
        found = [
            _first(table, keys, _rows(one, query, last, formats[0]), _rows(other, query, last, formats[1]))
            for table, (keys, query) in queries
            if table in known
        ]
        count = "SELECT COUNT(DISTINCT version) FROM evaluations WHERE version <= ?"
        (evaluations,) = one.execute(count, (last,)).fetchone()
    if whole:
        found += [
            Difference(last, _apart(f"the {key} of the run", there.meta.get(key), here.meta.get(key)))
            for key in _END
            if there.meta.get(key) != here.meta.get(key)
        ][:1]
    return Compared(evaluations, min((each for each in found if each), key=lambda each: each.version, default=None))


def _rows(
    database: sqlite3.Connection, query: str, last: int, form: int
) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    """The names of the columns, and the rows."""
    found = database.execute(query.format(scores=SCORES[form], client_scores=CLIENT_SCORES[form]), {"last": last})
    return [column[0] for column in found.description], found


def _first(
    table: str,
    keys: int,
    there: tuple[list[str], Iterator[tuple[Any, ...]]],
    here: tuple[list[str], Iterator[tuple[Any, ...]]],
) -> Difference | None:
    """The first difference of two sorted tables."""
    (names, ones), (_, others) = there, here
    for one, other in zip_longest(ones, others):
        if one == other:
            continue
        if one is None or other is None or one[:keys] != other[:keys]:
            present = sorted((each for each in (one, other) if each is not None), key=lambda row: _sortable(row[:keys]))
            row, places = present[0], ("there", "here") if present[0] is one else ("here", "there")
            what = f"{table} ({_key(names[:keys], row[:keys])})"
            return Difference(int(row[0]), f"a row of {what} is only {places[0]}, not {places[1]}")
        place = next(place for place, value in enumerate(one) if value != other[place])
        what = f"{names[place]} of {table}" + (f" ({_key(names[1:keys], one[1:keys])})" if keys > 1 else "")
        return Difference(int(one[0]), _apart(what, one[place], other[place]))
    return None


def _key(names: list[str], values: tuple[Any, ...]) -> str:
    """What names a row, without what is empty."""
    return ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True) if value != "")


def _sortable(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((each is not None, str(type(each)), each if each is not None else -inf) for each in key)


def _apart(what: str, there: object, here: object) -> str:
    if isinstance(there, int | float) and isinstance(here, int | float):
        return f"{what} is {there!r} there and {here!r} here ({here - there:+.3g})"
    return f"{what} is {_told(there)} there and {_told(here)} here"


def _told(value: object) -> str:
    return "missing" if value is None else shown(value)
