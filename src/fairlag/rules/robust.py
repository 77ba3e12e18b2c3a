"""Rules that bound what a minority of attackers can do to a step: clipping, median, Krum, centred clipping, buckets.

`suspect.py` has the rules that refuse single updates.
"""

import math
from statistics import median_low

import numpy as np

from fairlag.core.buffer import Buffer
from fairlag.core.state import State, copy_into, rows, table
from fairlag.core.types import Floats, Integers, Parts
from fairlag.core.vector import Matrix, Vector, length
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules import check
from fairlag.rules.edit import Edit, Remembering
from fairlag.rules.keep import Keeping
from fairlag.rules.reduce import Reduce, weighted_sum
from fairlag.rules.rule import credits_by, factory, mixes_statistics, reads_updates, traits
from fairlag.rules.trigger import Trigger

_MIN_CLIENTS, _MAX_CLIENTS = 3, 101
"""From how many clients a median of lengths is taken, and of how many at most."""
_TIE = 1e-9
"""Two sums of weights that differ by less than this part count as equal."""
_FORGOTTEN = 1e-12
"""A part of the centre that is smaller counts as none."""


# Clipping


@factory
def clip_to_median(factor: float = 1.0) -> Edit:
    """Shortens every update to at most factor · (median length of the updates so far). With inf, none is changed.

    The median is over the last length, before clipping, of each of the last 101 clients, those in the buffer included:
    a client that sends often counts once. Until three clients are known, no update is shortened.

    >>> from fairlag.rules.weigh import example
    >>> clip_to_median().start()(np.array([[3, 4], [0, 1]], np.float32), *example()).tolist()
    [[3.0, 4.0], [0.0, 1.0]]
    """
    if not factor > 0:
        raise StrategyError(f"the factor on the median length is {factor}, it must be positive")
    return reads_updates(Remembering(lambda: _MedianClip(factor)))


class _MedianClip:
    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._lengths: dict[int, float] = {}
        """Per client, the latest last: the length of its last update."""

    def __call__(self, updates: Matrix, buffer: Buffer, view: View) -> Matrix:
        lengths = [length(row) for row in updates]
        for task, size in zip(buffer.tasks, lengths, strict=True):
            self._lengths.pop(task.client, None)
            self._lengths[task.client] = size
        while len(self._lengths) > _MAX_CLIENTS:
            del self._lengths[next(iter(self._lengths))]
        if self._factor == math.inf or len(self._lengths) < _MIN_CLIENTS:
            return updates
        bound = self._factor * median_low(self._lengths.values())
        factors = np.array([1.0 if size <= bound else bound / size for size in lengths], np.float32)
        return updates * factors[:, None]

    def state(self) -> State:
        return table(self._lengths.items(), client=int, length=float)

    def restore(self, state: State) -> None:
        self._lengths = dict(rows(state, "client", "length"))


# Reductions without a memory


def _middle(weights: Floats, updates: Matrix) -> tuple[Integers, Integers]:
    """Per coordinate: the rows of the lower and the upper weighted median."""
    order = np.argsort(updates, axis=0, kind="stable")
    sums, half = np.cumsum(weights[order], axis=0), weights.sum() / 2
    below, above = half * (1 - _TIE), half * (1 + _TIE)
    found = [np.argmax(each, axis=0)[None] for each in (sums >= below, sums > above)]
    lower, upper = (np.take_along_axis(order, each, axis=0)[0] for each in found)
    return lower, upper


def _median_credit(weights: Floats, updates: Matrix) -> Floats:
    positive = np.maximum(weights, 0.0)
    if not positive.any():
        return np.zeros(len(weights))
    counts = np.bincount(np.concatenate(_middle(positive, updates)), minlength=len(weights))
    credit: Floats = counts * (weights.sum() / counts.sum())
    return credit


@credits_by(_median_credit)
@mixes_statistics
@reads_updates
def median(weights: Floats, updates: Matrix) -> Vector:
    """Per coordinate, the weighted median, times Σ_j α_j.

    Half of the weight lies on either side of it; with equal weights it is the plain median.

    >>> median(np.full(3, 1 / 3), np.array([[1, 7], [2, 8], [900, 9]], np.float32)).tolist()
    [2.0, 8.0]
    >>> median(np.array([0.6, 0.2, 0.2]), np.array([[1], [2], [900]], np.float32)).tolist()
    [1.0]
    """
    positive = np.maximum(weights, 0.0)
    if not positive.any():
        return np.zeros(updates.shape[1], np.float32)
    lower, upper = (np.take_along_axis(updates, each[None], axis=0)[0] for each in _middle(positive, updates))
    middle: Vector = np.where(lower == upper, lower, (lower + upper) / 2)
    return middle * np.float32(weights.sum())


@factory
def krum(f: int) -> Reduce:
    """Multi-Krum: the weighted mean of the b − f updates that are closest to others, times Σ_j α_j.

    The score of an update is the sum of its squared distances to its b − f − 2 nearest ones; the f highest are left
    out. With f = 0 it is the weighted sum.

    >>> updates = np.array([[1], [2], [3], [2], [900]], np.float32)
    >>> krum(1)(np.full(5, 0.2), updates).tolist()
    [2.0]
    """
    check.whole("the number of updates that Krum leaves out", f, 0)

    def kept(weights: Floats, updates: Matrix) -> Floats:
        chosen = np.zeros(len(weights))
        chosen[_closest(updates, f)] = weights[_closest(updates, f)]
        total = chosen.sum()
        return chosen if f == 0 or total <= 0 else chosen * (weights.sum() / total)

    @credits_by(kept)
    @mixes_statistics
    @reads_updates
    def reduce(weights: Floats, updates: Matrix) -> Vector:
        return weighted_sum(kept(weights, updates), updates)

    return reduce


def _closest(updates: Matrix, f: int) -> Integers:
    """The rows that Krum keeps, in order."""
    count = len(updates)
    if f == 0 or count == 1:
        return np.arange(count)
    squares = np.zeros((count, count))
    for row in range(count):
        gaps = updates[row + 1 :].astype(np.float64) - updates[row]
        squares[row, row + 1 :] = squares[row + 1 :, row] = np.einsum("jp,jp->j", gaps, gaps)
    nearest = np.sort(squares, axis=1)[:, 1 : 1 + max(1, count - f - 2)]  # the first is its distance to itself
    return np.sort(np.argsort(nearest.sum(axis=1), kind="stable")[: max(1, count - f)])


# Reductions with a memory, or that must know who sent an update


def centred_clip(radius: float) -> Keeping:
    """Centred clipping: v ← v + Σ_j a_j (Δ_j − v) · min(1, radius / ‖Δ_j − v‖); the step is v · Σ_j α_j.

    a_j = α_j / Σ_k α_k. v is kept from one version to the next, and is 0 at first. With an infinite radius the step is
    Σ_j α_j Δ_j.

    >>> centred_clip(0.5).label
    'centred_clip(0.5)'
    """
    if not radius > 0:
        raise StrategyError(f"the radius of centred clipping is {radius}, it must be positive")
    return Keeping(f"centred_clip({radius})", lambda view: _Centred(view, radius), late=True)


class _Centred:
    def __init__(self, view: View, radius: float) -> None:
        self._view, self._radius = view, radius
        self._centre: Vector = np.zeros_like(view.parameters(view.version))
        self._taken: Floats | None = None
        """How much of each update is in the new centre."""

    def reduce(self, weights: Floats, updates: Matrix, buffer: Buffer) -> Vector:
        self._taken = taken = _shares(weights)
        gaps = [length(row - self._centre) for row in updates]
        if max(gaps) > self._radius:
            taken *= [1.0 if gap <= self._radius else self._radius / gap for gap in gaps]
            self._centre = np.float32(1 - taken.sum()) * self._centre + weighted_sum(taken, updates)
        elif taken.any():
            self._centre = weighted_sum(taken, updates)
        return self._centre * np.float32(weights.sum())

    def parts(self, weights: Floats, buffer: Buffer) -> Parts:
        # What is left of the old centre still consists of earlier updates.
        taken, self._taken = (_shares(weights) if self._taken is None else self._taken), None
        return _stand(self._view, buffer, taken, left=1 - taken.sum(), unit=float(weights.sum()))

    def state(self) -> State:
        return {"centre": self._centre.copy()}

    def restore(self, state: State) -> None:
        self._centre = np.empty_like(self._centre)
        copy_into(self._centre, state, "centre")


def every_bucket(buckets: int) -> Trigger:
    """When each bucket has an update; client i belongs to bucket i mod `buckets`. With one bucket, at every arrival.

    >>> every_bucket(4).needs
    4
    """
    return Trigger(
        f"every_bucket({buckets})",
        lambda view: len({client % buckets for client in view.senders}) == buckets,
        needs=buckets,
    )


def bucketed(buckets: int, rule: Reduce) -> Keeping:
    """BASGD's reduction: a robust reduction of the weighted means of the buckets, times Σ_j α_j.

    >>> bucketed(4, median).label
    'bucketed(4, median)'
    """
    check.whole("the number of buckets", buckets, 1)
    return Keeping(f"bucketed({buckets}, {traits(rule).label})", lambda view: _Bucketed(view, buckets, rule), late=True)


class _Bucketed:
    def __init__(self, view: View, buckets: int, rule: Reduce) -> None:
        self._view, self._buckets, self._rule = view, buckets, rule
        self._credit: Floats | None = None

    def reduce(self, weights: Floats, updates: Matrix, buffer: Buffer) -> Vector:
        places = buffer.clients % self._buckets
        mine = [np.flatnonzero(places == bucket) for bucket in np.unique(places)]
        shares = [_shares(weights[each]) for each in mine]
        means = np.stack([weighted_sum(*each) for each in zip(shares, (updates[each] for each in mine), strict=True)])
        equal, total = np.full(len(mine), 1 / len(mine)), weights.sum()
        credit = traits(self._rule).credit
        heard = equal if credit is None else credit(equal, means)
        self._credit = np.zeros(len(weights))
        for each, share, part in zip(mine, shares, heard, strict=True):
            self._credit[each] = share * part * total
        return self._rule(equal, means) * np.float32(total)

    def parts(self, weights: Floats, buffer: Buffer) -> Parts:
        credit, self._credit = self._credit, None
        return _stand(self._view, buffer, weights if credit is None else credit, left=0.0, unit=1.0)

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        """Nothing is kept."""


def _stand(view: View, buffer: Buffer, credit: Floats, *, left: float, unit: float) -> Parts:
    """Every client's part if only `left` is left of what it had, and each update adds its credit."""
    before = view.parts
    now = before * left
    np.add.at(now, buffer.clients, credit)
    now[now < _FORGOTTEN] = 0.0
    changed = np.flatnonzero(now != before)
    return Parts(changed, (now - before)[changed], unit)


def _shares(weights: Floats) -> Floats:
    """The weights, scaled to a total of 1; all 0 if there is none."""
    positive = np.maximum(weights, 0.0)
    total = positive.sum()
    return positive / total if total else positive
