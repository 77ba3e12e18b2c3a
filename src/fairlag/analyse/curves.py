"""The leading metric over runs: one curve per seed, one line with a band per strategy, and how lines are thinned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairlag.analyse.compare import Repeated, best_of
from fairlag.analyse.significance import factor
from fairlag.analyse.spread import Spread
from fairlag.core.types import Floats, Integers
from fairlag.lab.scores import curve_of, final_of
from fairlag.text.scored import ACCURACY, Scored

if TYPE_CHECKING:
    import pandas as pd


class Band(NamedTuple):
    """A line and the width of the band around it."""

    where: Floats
    mean: Floats
    spread: Floats
    rate: bool = True
    """Is it a share of examples?"""

    @property
    def low(self) -> Floats:
        """The lower edge: no share of examples is below 0."""
        return np.clip(self.mean - self.spread, 0, 1) if self.rate else self.mean - self.spread

    @property
    def high(self) -> Floats:
        """The upper edge: no share of examples is above 1."""
        return np.clip(self.mean + self.spread, 0, 1) if self.rate else self.mean + self.spread

    def thinned(self, most: int) -> "Band":
        """At most `most` of its points, spread evenly over the axis."""
        kept = evenly(self.where, most)
        return Band(self.where[kept], self.mean[kept], self.spread[kept], self.rate)


@dataclass(frozen=True, slots=True)
class ScoreCurves:
    """The leading metric of a strategy on some test examples."""

    curves: tuple["pd.DataFrame", ...]
    """One per finished seed, or one per seed if none is finished: time, version, metrics and standard_error."""
    final: Spread
    """The value of the last version on the whole test set, over finished runs."""
    best: Spread
    """The best point of the curves."""
    lead: Scored = ACCURACY
    """The metric that they are of."""

    def band(self, along: str) -> Band:
        """The curves as one line against "time" or "version"."""
        return band(self.curves, along, self.lead)

    def interval(self, along: str) -> Band:
        """The same with the 95 % interval of the mean; of two seeds, with their range; of one, with its error."""
        found, seeds = self.band(along), len(self.curves)
        return found._replace(spread=found.spread * factor(seeds)) if seeds > 1 else found


@dataclass(frozen=True, slots=True)
class Curves:
    """The leading metric of one strategy over its seeds."""

    overall: ScoreCurves
    groups: Mapping[str, ScoreCurves]
    """On the labels of each client group that was evaluated."""

    def of(self, group: str | None) -> ScoreCurves | None:
        """The curves on the labels of a group, or on all test examples; None if there are none."""
        found = self.overall if group is None else self.groups.get(group)
        return found if found is not None and found.curves else None


def curves(strategy: Repeated) -> Curves:
    """The leading metric of a strategy's model on all test examples, and on the labels of each client group."""
    seeds = [(run.evaluated("all", "group"), run.status == "finished") for run in strategy.runs]
    lead = strategy.runs[0].lead
    groups = {name: _scored(seeds, lead, "group", name) for name in strategy.runs[0].groups}
    return Curves(_scored(seeds, lead, "all", None), {name: found for name, found in groups.items() if found.curves})


def _scored(seeds: Sequence[tuple["pd.DataFrame", bool]], lead: Scored, scope: str, name: str | None) -> ScoreCurves:
    found = [curve_of(frame, scope, name).dropna(subset=lead.name) for frame, _ in seeds]
    ended = [curve for curve, (_, finished) in zip(found, seeds, strict=True) if finished and len(curve)]
    return ScoreCurves(
        curves=tuple(ended or [curve for curve in found if len(curve)]),
        final=Spread.of(final_of(frame, lead.name, scope, name) if finished else nan for frame, finished in seeds),
        best=Spread.of(best_of(curve[lead.name], lead) for curve in found),
        lead=lead,
    )


def band(curves: Sequence["pd.DataFrame"], along: str, lead: Scored = ACCURACY) -> Band:
    """The curves as one line with a band.

    The line is their mean at every point of any curve, as far as all curves reach: beyond the end of the shortest, the
    mean would be over fewer seeds, and jump. The width of the band is the sample standard deviation over seeds; with
    one seed, it is the standard error of the evaluation.
    """
    places = [curve[along].to_numpy(np.float64) for curve in curves]
    if len(curves) == 1:
        error = curves[0]["standard_error"].fillna(0.0).to_numpy()  # only a share of examples has one
        return Band(places[0], curves[0][lead.name].to_numpy(), error, lead.rate)
    where = shared(places)
    values = np.array(
        [np.interp(where, place, curve[lead.name].to_numpy()) for place, curve in zip(places, curves, strict=True)]
    )
    return Band(where, values.mean(axis=0), values.std(axis=0, ddof=1), lead.rate)


def shared(places: Sequence[Floats]) -> Floats:
    """All places of ascending curves, from the last beginning to the first end.

    >>> shared([np.array([0.0, 4.0, 8.0]), np.array([0.0, 5.0])]).tolist()
    [0.0, 4.0, 5.0]
    """
    begin, end = max(each[0] for each in places), min(each[-1] for each in places)
    every = np.unique(np.concatenate(places))
    return np.asarray(every[(every >= begin) & (every <= end)], np.float64)


def mean_of_known(rows: Floats) -> Floats:
    """The mean over the first axis of the finite numbers; NaN if there are none.

    >>> mean_of_known(np.array([[1.0, np.nan, np.nan], [2.0, 3.0, np.nan]])).tolist()
    [1.5, 3.0, nan]
    """
    known = np.isfinite(rows)
    total, count = np.where(known, rows, 0.0).sum(axis=0), known.sum(axis=0)
    return np.asarray(np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0))


def evenly(where: Floats | Integers, most: int) -> Integers:
    """Which of these ascending numbers to keep: at most `most`, evenly over their range, with the first and the last.

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
