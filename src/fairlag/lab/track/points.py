"""The curve of a run for trackers, read from its database, so that a crash cannot undo what was reported."""

import sqlite3
from collections.abc import Iterable, Mapping
from math import isfinite, nan
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fairlag.analyse.metrics import Judged, Scope, Shown, select
from fairlag.analyse.totals import OwnScores, Totals
from fairlag.core.types import Floats, Integers
from fairlag.lab.attendance import Register
from fairlag.lab.folder import meta_of, reading
from fairlag.lab.run import Run
from fairlag.lab.scores import metrics_of
from fairlag.text.scored import ACCURACY

_MERGED = """
SELECT (aggregation + ?1 - 1) / ?1 AS stretch, client, COUNT(*), SUM(weight), SUM(staleness) FROM tasks
WHERE aggregation > ?2 AND aggregation <= ?3 GROUP BY stretch, client ORDER BY stretch
"""
"""What each client contributed between two points, the second being a multiple of ?1; by stretches, so that sums do not
depend on when they are queried."""
_PARTS = """
SELECT (parts.version + ?1 - 1) / ?1 AS stretch, client, SUM(change), SUM(change * COALESCE(acted, 0)) FROM parts
LEFT JOIN units AS before ON before.version = parts.version - 1
WHERE parts.version > ?2 AND parts.version <= ?3 GROUP BY stretch, client ORDER BY stretch
"""
"""If updates are kept: the change of each client's part, and this change times what a unit was worth until then."""
_TIMES = """
SELECT version, time, acted FROM aggregations LEFT JOIN units USING (version)
WHERE version > ?2 AND version <= ?3 AND (version % ?1 = 0 OR version = ?3) ORDER BY version
"""
_REACHED = "SELECT MAX(version) FROM evaluations WHERE version % ? = 0"
_CURVE = """
SELECT version, metric, scope, name, value FROM evaluations
WHERE version > ? AND version <= ? AND whole = (SELECT MIN(whole) FROM evaluations)
"""
"""All on the same examples: a sample, if one was used."""
_LAST = """
SELECT metric, scope, name, value FROM evaluations
WHERE (version, whole) = (SELECT version, whole FROM evaluations ORDER BY version DESC, whole DESC LIMIT 1)
"""


_Scores = dict[tuple[Any, ...], float]
"""By metric, scope, and name of the group or class."""


class Point(NamedTuple):
    """A version on the curve: its scores, and the influence of clients until then."""

    version: int
    time: float
    metrics: dict[str, float]
    """As far as there are any; the time comes last."""

    @classmethod
    def of(cls, totals: Totals, judged: Judged = (ACCURACY,)) -> "Point":
        """The metrics that trackers are told, by names such as "jain", "staleness/all" and "staleness/group/slow"."""
        classes = [name for metric, scope, name in totals.scores if (metric, scope) == (judged[0].name, "class")]
        parts = {Scope.GROUP: ("group", totals.groups), Scope.CLASS: ("class", classes)}
        found: dict[str, float] = {}
        for metric in (split := select(Shown.TRACKERS, *parts, judged=judged)):
            word, names = parts[metric.scope]
            found |= {f"{metric.name}/{word}/{name}": metric.of(totals, name) for name in names}
        for metric in select(Shown.TRACKERS, Scope.RUN, Scope.OWN, judged=judged):
            whole = "/all" if any(each.name == metric.name for each in split) else ""
            found[f"{metric.name}{whole}"] = metric.of(totals, "")
        found["virtual_time"] = found.pop("virtual_time")
        return cls(totals.version, totals.time, {name: value for name, value in found.items() if isfinite(value)})


class Points:
    """The points of one run, each once and in order, as they are added to its database.

    They are the versions at which the curve is evaluated, at regular intervals, and the last one once the run is
    finished. A version that still waits for its evaluation is not a point yet. Without training, none has to wait.
    """

    def __init__(self, folder: Path, every: int, *, trains: bool) -> None:
        self._folder, self._every, self._trains = folder, every, trains
        with reading(folder) as database:
            meta = meta_of(database, folder)
            self._groups: list[str] = meta["groups"]
            self._judged = metrics_of(meta)
            self._register = Register(database, Run(folder).terms)
        places, names = {name: place for place, name in enumerate(self._groups)}, self._register.groups
        self._group_of: Integers = np.array([places[name] for name in names], np.int64)
        self._entitled: Floats = np.zeros(len(names))
        self._updates: Floats = np.zeros(len(names))
        self._own: Floats = np.zeros(len(names))
        """The weights of each client's updates."""
        self._part: Floats = np.zeros(len(names))
        self._owed: Floats = np.zeros(len(names))
        """If updates are kept: each client's part of a version, and the excess if it had always had this part."""
        self._weight = self._own
        self._staleness: Floats = np.zeros(len(names))
        self._told = -1 if trains else 0
        self.version, self.time = 0, 0.0

    def new(self, *, finished: bool = False) -> list[Point]:
        """The points since the last call; with the end of the run, if it is finished."""
        with reading(self._folder, check=False) as database:  # this process has just written it
            stop = self._stop(database, finished)
            if stop <= self._told:
                return []
            span = self._every, self._told, stop
            made: list[tuple[int, float, float | None]] = [(0, 0.0, None)] if self._told < 0 else []
            made += database.execute(_TIMES, span).fetchall()
            merged, parts = (self._by_point(database.execute(query, span), stop) for query in (_MERGED, _PARTS))
            scores: dict[int, _Scores] = {}
            for version, *key, value in database.execute(_CURVE, span[1:]):
                scores.setdefault(version, {})[*key] = nan if value is None else value
            points = []
            for version, time, acted in made:
                self._count(merged.get(version, []), parts.get(version, []), acted)
                self._register.read(database, version)
                self._entitled = self._register.attendance.entitled(version)
                points.append(self._point(version, time, scores.get(version, {})))
        self._told = stop
        return points

    def last(self) -> Point:
        """The newest point, with its scores on the whole test set if it was evaluated on that."""
        with reading(self._folder) as database:
            scores = {tuple(key): nan if value is None else value for *key, value in database.execute(_LAST)}
        run = Run(self._folder)
        own = OwnScores.read(lambda local: run.client_scores(personalised=local), higher=run.lead.higher)
        return self._point(self.version, self.time, scores, own)

    def _by_point(self, rows: Iterable[tuple[Any, ...]], stop: int) -> dict[int, list[tuple[Any, ...]]]:
        found: dict[int, list[tuple[Any, ...]]] = {}
        for stretch, *row in rows:
            found.setdefault(min(stretch * self._every, stop), []).append(tuple(row))
        return found

    def _stop(self, database: sqlite3.Connection, finished: bool) -> int:
        (newest,) = database.execute("SELECT COALESCE(MAX(version), 0) FROM aggregations").fetchone()
        if finished:
            return int(newest)
        if not self._trains:
            return int(newest - newest % self._every)
        (evaluated,) = database.execute(_REACHED, (self._every,)).fetchone()
        return -1 if evaluated is None else int(evaluated)

    def _count(
        self,
        merged: list[tuple[int, int, float, int]],
        parts: list[tuple[int, float, float]],
        acted: float | None,
    ) -> None:
        for client, updates, weight, staleness in merged:
            self._updates[client] += updates
            self._staleness[client] += staleness
            self._own[client] += weight
        for client, change, before in parts:
            self._part[client] += change
            self._owed[client] += before
        self._weight = self._own if acted is None else self._part * acted - self._owed

    def _point(
        self, version: int, time: float, scores: _Scores, own: Mapping[bool, OwnScores] = MappingProxyType({})
    ) -> Point:
        self.version, self.time = version, time
        # A run that does not say who was present is one of clients that always were.
        return Point.of(
            Totals(
                self._groups,
                self._group_of,
                self._updates,
                self._weight,
                self._staleness,
                self._entitled if self._entitled.any() else None,
                version=version,
                time=time,
                scores=scores,
                own=own,
            ),
            self._judged,
        )
