"""A window of a run's time: when each client worked, on which version, and when versions were made."""

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from fairlag.core.types import Floats, Integers
from fairlag.errors import InputError
from fairlag.lab.folder import reading
from fairlag.lab.run import Run

LANES = 40
"""The most clients that a reader can tell apart, one below the other."""

_LOOKED_AT = (110, 220, 440, 880, 1760)
"""Numbers of first tasks: the clients of ever more tasks are tried, until their lanes show enough tasks."""

_ENOUGH, _WANTED = 70, 110
_LONGEST = 12
"""The longest window, in task durations: in a longer one, bars would be too thin."""

_MOST_TASKS = 4_000
_MOST_TICKS = 400

_TIMES = "SELECT dispatched FROM tasks WHERE ended > ? ORDER BY dispatched LIMIT ?"
_SPANS = "SELECT dispatched, ended FROM tasks WHERE ended > ? AND client IN ({}) ORDER BY dispatched LIMIT ?"
_ACTIVE = "SELECT DISTINCT client FROM tasks WHERE ended > ?1 AND dispatched < ?2"
_SIZES = f"SELECT grp, COUNT(*) FROM clients WHERE client IN ({_ACTIVE}) GROUP BY grp"
_SPACED = f"""
WITH active AS (
    SELECT client, ROW_NUMBER() OVER (ORDER BY client) - 1 AS place, COUNT(*) OVER () AS many
    FROM clients WHERE grp = ?3 AND client IN ({_ACTIVE})
)
SELECT client FROM active WHERE place = 0 OR place * ?4 / many > (place - 1) * ?4 / many ORDER BY client
"""
"""Up to ?4 clients of a group that work in a window, evenly spaced."""

_BARS = """
SELECT tasks.client, dispatched, ended, tasks.version, outcome, time, staleness, COALESCE(reason, '') FROM tasks
LEFT JOIN aggregations ON aggregations.version = tasks.aggregation
WHERE ended > ? AND dispatched < ? AND tasks.client IN ({}) ORDER BY task
"""
_LAST = "SELECT MAX(ended) FROM tasks WHERE client IN ({}) GROUP BY client"
_FOLLOWING = """
SELECT dispatched FROM tasks WHERE ended > ? AND client IN ({}) ORDER BY dispatched LIMIT 1 OFFSET ?
"""
_MADE = "SELECT COUNT(*) FROM aggregations WHERE time >= ? AND time <= ?"
_TICKS = "SELECT time, version FROM aggregations WHERE time >= ? AND time <= ? AND version % ? = 0 ORDER BY version"


class Bar(NamedTuple):
    """A task: its lane, when it began and ended, its starting version, its outcome, and when it was merged."""

    lane: int
    begin: float
    end: float
    version: int
    outcome: str
    merged: float
    """Infinite for a task that was not merged."""
    staleness: int | None = None
    reason: str = ""
    """Why it was not merged."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """What happened in a window of a run, in one lane for each of some of its clients."""

    begin: float
    end: float
    reach: float
    """When the data ends, which continues beyond the window so that a reader can move it."""
    groups: tuple[str, ...]
    clients: Integers
    """One client per lane, sorted by group and then by client."""
    group_of: Integers
    """Per lane: the place of its group."""
    sizes: tuple[int, ...]
    """The number of clients per group, including those without a lane."""
    bars: tuple[Bar, ...]
    aggregations: Floats
    """When versions were made; if there are too many, only one in `every`."""
    versions: Integers
    """The numbers of these versions."""
    every: int
    whole: bool
    """Did a task of every client end at or after its end? If not, a task without a recorded end may be missing."""

    @property
    def population(self) -> int:
        """The number of all clients."""
        return sum(self.sizes)


def timeline(
    run: Run, begin: float | None = None, until: float | None = None, lanes: int = LANES, room: int = 0
) -> Timeline:
    """The tasks of at most `lanes` clients in a window; by default, a window that shows about a hundred tasks.

    Clients are chosen evenly over groups and within a group, from those that work in the window. The data continues
    after the window until it holds `room` tasks.
    """
    _check_window(begin, until)
    with reading(run.folder) as database:
        start = _beginning(database) if begin is None and until is None else begin or 0.0
        found = _read(database, run.groups, start, until, lanes, room)
        if found is None:
            raise _nothing(database, run, start, until)
    return found


def timeline_if_any(run: Run, room: int, lanes: int = LANES) -> Timeline | None:
    """The timeline of a run from its beginning; None if none of its tasks has ended yet."""
    with reading(run.folder) as database:
        return _read(database, run.groups, _beginning(database), None, lanes, room)


def _read(
    database: sqlite3.Connection, groups: Sequence[str], start: float, until: float | None, lanes: int, room: int
) -> Timeline | None:
    end, chosen = _window(database, groups, start, until, lanes)
    if not chosen:
        return None
    places = {client: lane for lane, (client, _) in enumerate(chosen)}
    last_ends = [last for (last,) in database.execute(_LAST.format(_marks(places)), tuple(places))]
    reach = max(end, _reach(database, start, places, room, max(last_ends))) if room else end
    every = -(-database.execute(_MADE, (start, reach)).fetchone()[0] // max(_MOST_TICKS, room)) or 1
    ticks = database.execute(_TICKS, (start, reach, every)).fetchall()
    sizes = dict(database.execute("SELECT grp, COUNT(*) FROM clients GROUP BY grp"))
    return Timeline(
        begin=start,
        end=end,
        reach=reach,
        groups=tuple(groups),
        clients=np.array([client for client, _ in chosen]),
        group_of=np.array([group for _, group in chosen]),
        sizes=tuple(sizes.get(name, 0) for name in groups),
        bars=_bars(database, start, reach, places),
        aggregations=np.array([time for time, _ in ticks], np.float64),
        versions=np.array([version for _, version in ticks], np.int64),
        every=every,
        whole=all(last >= reach for last in last_ends),
    )


def _check_window(begin: float | None, until: float | None) -> None:
    for name, value in (("--from", begin), ("--until", until)):
        if value is not None and not 0 <= value < inf:
            raise InputError(f"{name} is {value:g}, it must be a finite virtual time of at least 0")
    if until is not None and until <= (begin or 0.0):
        raise InputError(f"the window is from {begin or 0.0:g} to {until:g}, it must end after it begins")


def _nothing(database: sqlite3.Connection, run: Run, start: float, until: float | None) -> InputError:
    """The reason why a window is empty."""
    last = database.execute("SELECT MAX(ended) FROM tasks").fetchone()[0]
    if last is None:
        return InputError(f"the run in {str(run.folder)!r} has no timeline: none of its tasks has ended yet")
    window = f"from {start:g}" + ("" if until is None else f" to {until:g}")
    return InputError(f"no task runs {window}: the last task of the run in {str(run.folder)!r} ends at {last:g}")


def _beginning(database: sqlite3.Connection) -> float:
    return float(database.execute("SELECT COALESCE(MIN(dispatched), 0) FROM tasks").fetchone()[0])


def _window(
    database: sqlite3.Connection, groups: Sequence[str], start: float, until: float | None, lanes: int
) -> tuple[float, list[tuple[int, int]]]:
    """The end of the window, and the clients chosen from those that work in it, each with the place of its group."""
    if until is not None:
        return until, _chosen(database, groups, start, until, lanes)
    times = [time for (time,) in database.execute(_TIMES, (start, _LOOKED_AT[-1]))]
    best: tuple[int, float, list[tuple[int, int]]] = (0, start, [])
    for last in dict.fromkeys(times[min(looked_at, len(times)) - 1] for looked_at in _LOOKED_AT if times):
        spans = _spans(database, start, _chosen(database, groups, start, float(np.nextafter(last, inf)), lanes))
        longest = start + _LONGEST * float(np.median(spans[:, 1] - spans[:, 0]))
        end = float(spans[-1, 0] if len(spans) > _WANTED else spans[:, 1].max())
        end = max(min(end, longest), float(np.nextafter(start, inf)))
        chosen = _chosen(database, groups, start, end, lanes)  # from those that work in the final window
        visible = int((_spans(database, start, chosen)[:, 0] < end).sum())
        best = max(best, (visible, end, chosen), key=lambda found: found[0])
        if visible >= _ENOUGH:
            break
    return best[1:]


def _reach(database: sqlite3.Connection, start: float, clients: Collection[int], room: int, last: float) -> float:
    """When the first task begins that exceeds the room; the last end if none does."""
    found = database.execute(_FOLLOWING.format(_marks(clients)), (start, *clients, room)).fetchone()
    return float(found[0]) if found else last


def _spans(database: sqlite3.Connection, start: float, chosen: Sequence[tuple[int, int]]) -> Floats:
    """When the first tasks of these clients began and ended."""
    clients = [client for client, _ in chosen]
    return np.array(database.execute(_SPANS.format(_marks(clients)), (start, *clients, _WANTED + 1)).fetchall())


def _chosen(
    database: sqlite3.Connection, groups: Sequence[str], start: float, last: float, lanes: int
) -> list[tuple[int, int]]:
    """At most `lanes` clients, evenly spaced: equally many of each group, or all of a group that has fewer."""
    sizes = dict(database.execute(_SIZES, (start, last)).fetchall())
    room, left = {}, lanes
    for done, name in enumerate(sorted(groups, key=lambda name: sizes.get(name, 0))):
        room[name] = min(sizes.get(name, 0), -(-left // (len(groups) - done)))
        left -= room[name]
    return [
        (client, group)
        for group, name in enumerate(groups)
        if room[name]
        for (client,) in database.execute(_SPACED, (start, last, name, room[name]))
    ]


def _bars(database: sqlite3.Connection, start: float, end: float, places: dict[int, int]) -> tuple[Bar, ...]:
    query = _BARS.format(_marks(places)) + f" LIMIT {_MOST_TASKS + 1}"
    rows = database.execute(query, (start, end, *places)).fetchall()
    if len(rows) > _MOST_TASKS:
        raise InputError(
            f"the window from {start:g} to {end:g} holds more than {_MOST_TASKS:,} tasks of {len(places)} clients, "
            "too many to tell apart: choose a shorter window"
        )
    return tuple(
        Bar(places[client], begun, ended, version, outcome, inf if merged is None else merged, staleness, reason)
        for client, begun, ended, version, outcome, merged, staleness, reason in rows
    )


def _marks(values: Collection[object]) -> str:
    """One placeholder of a query per value."""
    return ", ".join("?" * len(values))
