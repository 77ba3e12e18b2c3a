"""Accuracy over runs: a curve a seed, all seeds of a strategy as one line with a band, and how lines are thinned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairlag.analyse.compare import Repeated
from fairlag.analyse.spread import Spread
from fairlag.core.types import Floats, Integers
from fairlag.lab.scores import curve_of, final_of

if TYPE_CHECKING:
    import pandas as pd


class Band(NamedTuple):
    """A line and the width of the band around it."""

    where: Floats
    mean: Floats
    spread: Floats

    @property
    def low(self) -> Floats:
        """The lower edge: no accuracy is below 0."""
        return np.clip(self.mean - self.spread, 0, 1)

    @property
    def high(self) -> Floats:
        """The upper edge: no accuracy is above 1."""
        return np.clip(self.mean + self.spread, 0, 1)

    def thinned(self, most: int) -> "Band":
        """At most so many of its points, evenly over the axis."""
        kept = evenly(self.where, most)
        return Band(*(each[kept] for each in self))


@dataclass(frozen=True, slots=True)
class Scored:
    """How a strategy did on some test examples."""

    curves: tuple["pd.DataFrame", ...]
    """Of each finished seed, or of all while none is: time, version, accuracy and standard_error of its evaluations."""
    final: Spread
    """Of the last version on the whole test set, over the runs that are finished."""
    best: Spread
    """The highest point of the curves."""

    def band(self, along: str) -> Band:
        """The curves as one line against "time" or "version"."""
        return band(self.curves, along)


@dataclass(frozen=True, slots=True)
class Curves:
    """Accuracy of one strategy over its seeds."""

    overall: Scored
    groups: Mapping[str, Scored]
    """On the labels of each client group that was evaluated."""

    def of(self, group: str | None) -> Scored | None:
        """On the labels of a group, or on all of them; None where there is no curve."""
        found = self.overall if group is None else self.groups.get(group)
        return found if found is not None and found.curves else None


def curves(strategy: Repeated) -> Curves:
    """How the model of a strategy did on all labels, and on those of each client group."""
    seeds = [(run.evaluated("all", "group"), run.status == "finished") for run in strategy.runs]
    groups = {name: _scored(seeds, "group", name) for name in strategy.runs[0].groups}
    return Curves(_scored(seeds, "all", None), {name: found for name, found in groups.items() if found.curves})


def _scored(seeds: Sequence[tuple["pd.DataFrame", bool]], scope: str, name: str | None) -> Scored:
    found = [curve_of(frame, scope, name).dropna(subset="accuracy") for frame, _ in seeds]
    ended = [curve for curve, (_, finished) in zip(found, seeds, strict=True) if finished and len(curve)]
    return Scored(
        curves=tuple(ended or [curve for curve in found if len(curve)]),
        final=Spread.of(final_of(frame, scope, name) if finished else nan for frame, finished in seeds),
        best=Spread.of(curve["accuracy"].max() for curve in found),
    )


def band(curves: Sequence["pd.DataFrame"], along: str) -> Band:
    """The places that all curves cover and where any has a point, their mean there, and the width of its band.

    With several seeds that is their sample standard deviation; with one, the standard error of the evaluation. Beyond
    the end of the first curve the mean would be one of other seeds, and jump.
    """
    places = [curve[along].to_numpy(np.float64) for curve in curves]
    if len(curves) == 1:
        return Band(places[0], curves[0]["accuracy"].to_numpy(), curves[0]["standard_error"].to_numpy())
    where = shared(places)
    values = np.array(
        [np.interp(where, place, curve["accuracy"].to_numpy()) for place, curve in zip(places, curves, strict=True)]
    )
    return Band(where, values.mean(axis=0), values.std(axis=0, ddof=1))


def shared(places: Sequence[Floats]) -> Floats:
    """All places of ascending curves that lie between the last of their beginnings and the first of their ends.

    >>> shared([np.array([0.0, 4.0, 8.0]), np.array([0.0, 5.0])]).tolist()
    [0.0, 4.0, 5.0]
    """
    begin, end = max(each[0] for each in places), min(each[-1] for each in places)
    every = np.unique(np.concatenate(places))
    return np.asarray(every[(every >= begin) & (every <= end)], np.float64)


def mean_of_known(rows: Floats) -> Floats:
    """The mean over the first axis of what is a number; not a number where nothing is.

    >>> mean_of_known(np.array([[1.0, np.nan, np.nan], [2.0, 3.0, np.nan]])).tolist()
    [1.5, 3.0, nan]
    """
    known = np.isfinite(rows)
    total, count = np.where(known, rows, 0.0).sum(axis=0), known.sum(axis=0)
    return np.asarray(np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0))


def evenly(where: Floats | Integers, most: int) -> Integers:
    """Which of these ascending numbers to keep: at most so many, evenly over their range, with the first and the last.

    >>> evenly(np.array([0.0, 1.0, 2.0, 3.0, 10.0]), 3).tolist()
    [0, 3, 4]
    """
    last = len(where) - 1
    if last < most:
        return np.arange(len(where))
    wanted = np.linspace(where[0], where[-1], most)
    after = np.searchsorted(where, wanted).clip(1, last)
    nearest = after - (wanted - where[after - 1] <= where[after] - wanted)
    nearest[-1] = last
    return np.unique(nearest)
