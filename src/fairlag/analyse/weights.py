"""The weights of updates: one by one for a short run, in bins of versions for any run, counted by the database."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np

from fairlag.core.types import Floats, Integers
from fairlag.lab.folder import reading
from fairlag.lab.run import Run

BINS = 200
"""The most bins that a screen can show."""

_SORTED = 60_000
"""At most this number of updates are sorted by weight: more would take longer than everything else."""

_SIZE = "SELECT COUNT(*), COALESCE(SUM(updates), 0), COALESCE(MAX(version), 0) FROM aggregations"
_BINNED = """
SELECT (aggregation - 1) * ?1 / ?2 AS bin, grp, MIN(aggregation), MAX(aggregation), COUNT(*),
    COUNT(weight), SUM(weight), MIN(weight), MAX(weight)
FROM tasks JOIN clients USING (client) WHERE aggregation IS NOT NULL GROUP BY bin, grp ORDER BY bin, grp
"""
_MIDDLE = """
WITH ranked AS (
    SELECT (aggregation - 1) * ?1 / ?2 AS bin, grp, weight,
        ROW_NUMBER() OVER (PARTITION BY (aggregation - 1) * ?1 / ?2, grp ORDER BY weight) AS place,
        COUNT(*) OVER (PARTITION BY (aggregation - 1) * ?1 / ?2, grp) AS many
    FROM tasks JOIN clients USING (client) WHERE weight IS NOT NULL AND aggregation % ?3 = 0
)
SELECT bin, grp,
    MIN(CASE WHEN place * 10 >= many THEN weight END), MIN(CASE WHEN place * 10 >= many * 9 THEN weight END)
FROM ranked GROUP BY bin, grp
"""
"""Per bin and group: the weight that a tenth of the updates do not exceed, and the one that nine tenths do not."""

_SINGLE = """
SELECT grp, aggregation, client, staleness, weight
FROM tasks JOIN clients USING (client) WHERE aggregation IS NOT NULL ORDER BY aggregation, task
"""


@dataclass(frozen=True, slots=True)
class Single:
    """Updates one by one, in the order of their aggregations."""

    group_of: Integers
    aggregation: Integers
    client: Integers
    staleness: Integers
    weight: Floats
    """NaN if the recorded weight was not a number."""


@dataclass(frozen=True, slots=True)
class Binned:
    """One row per bin of consecutive aggregations and group, with the weights of the group's updates in the bin."""

    group_of: Integers
    first: Integers
    last: Integers
    updates: Integers
    weighed: Integers
    """The number of updates whose weight is a number."""
    total: Floats
    least: Floats
    most: Floats
    low: Floats
    """The weight that a tenth of the updates do not exceed, as far as it is known."""
    high: Floats
    """The weight that nine tenths of the updates do not exceed."""

    @property
    def mean(self) -> Floats:
        """The mean weight of the updates whose weight is a number."""
        return np.asarray(
            np.divide(self.total, self.weighed, out=np.full(len(self.total), nan), where=self.weighed > 0)
        )

    def of(self, group: int) -> "Binned":
        """The rows of one group."""
        mine = self.group_of == group
        return Binned(*(getattr(self, name)[mine] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a run's updates."""

    groups: tuple[str, ...]
    aggregations: int
    updates: int
    binned: Binned
    every: int
    """One in this number of aggregations was read to find `low` and `high`."""
    single: Single | None
    """None if there are too many updates."""
    kept: bool
    """Does an update count in every version until it is replaced, rather than in one?"""

    @property
    def equal(self) -> float:
        """The weight of each update if all updates of an aggregation weighed the same and summed to 1: 1/buffer."""
        return self.aggregations / self.updates if self.updates else nan


def weights(run: Run, room: int, bins: int = BINS) -> Weights:
    """The weights of a run's updates; also one by one if there are at most `room` of them."""
    with reading(run.folder) as database:
        aggregations, updates, newest = database.execute(_SIZE).fetchone()
        parts, every = (min(bins, newest), newest), -(-updates // _SORTED) or 1
        binned = database.execute(_BINNED, parts).fetchall()
        middle = {row[:2]: row[2:] for row in database.execute(_MIDDLE, (*parts, every))}
        single = database.execute(_SINGLE).fetchall() if updates <= room else None
        (kept,) = database.execute("SELECT EXISTS (SELECT 1 FROM parts)").fetchone()
    return Weights(
        groups=tuple(run.groups),
        aggregations=aggregations,
        updates=updates,
        binned=_binned([(*row, *middle.get(row[:2], (nan, nan))) for row in binned], run.groups),
        every=every,
        single=None if single is None else _single(single, run.groups),
        kept=bool(kept),
    )


def _binned(rows: Sequence[tuple[Any, ...]], groups: Sequence[str]) -> Binned:
    _, names, *counts = zip(*[row[:6] for row in rows], strict=True) if rows else [()] * 6
    weights = zip(*[row[6:] for row in rows], strict=True) if rows else [()] * 5
    first, last, updates, weighed = (np.array(each, np.int64) for each in counts)
    total, least, most, low, high = (np.array(each, np.float64) for each in weights)
    return Binned(_places(names, groups), first, last, updates, weighed, total, least, most, low, high)


def _single(rows: Sequence[tuple[Any, ...]], groups: Sequence[str]) -> Single:
    names, *counts, weight = zip(*rows, strict=True) if rows else [()] * 5
    aggregation, client, staleness = (np.array(each, np.int64) for each in counts)
    return Single(_places(names, groups), aggregation, client, staleness, np.array(weight, np.float64))


def _places(names: Sequence[str], groups: Sequence[str]) -> Integers:
    places = {name: place for place, name in enumerate(groups)}
    return np.array([places[name] for name in names], np.int64)
