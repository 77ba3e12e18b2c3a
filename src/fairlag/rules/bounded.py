"""Bounds on one client's part of a version: what secure aggregation and differential privacy need of a weighting."""

import math

import numpy as np

from fairlag.core.buffer import Buffer
from fairlag.core.types import Floats
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules import weigh
from fairlag.rules.rule import Provenance, factory, provenance, traits
from fairlag.rules.weigh import Weigh

_SLACK = 1e-9
"""Shares that differ by less, relatively, are the same: sums of fractions are not exact."""


@factory
def bounded(rule: Weigh, bound: float, *, most: float = math.inf) -> Weigh:
    """Bounds each client's share of the buffer's total weight, and its weight by `most`.

    The total stays the same if it can: what is cut off goes to the other clients in proportion to their weights. A rule
    that spends accounts keeps it there instead: each client gets the largest weight within the bounds that is not
    above its own. If fewer than 1 / bound clients have a weight, no shares are within the bound: all weights are 0.

    >>> buffer, view = weigh.example(staleness=[0, 3])
    >>> bounded(weigh.mean_staleness(scale=2), 0.75)(buffer, view).tolist()
    [1.0, 3.0]
    >>> bounded(weigh.mean_staleness(scale=2), 0.4)(buffer, view).tolist()
    [0.0, 0.0]
    """
    check_bound(bound)
    if not most > 0:
        raise StrategyError(f"the largest weight of a client is {most}, it must be positive")
    limited = spending if traits(rule).account is not None else sharing

    def bound_weights(buffer: Buffer, view: View) -> Floats:
        weights = np.asarray(rule(buffer, view), np.float64)
        if weights.min() < 0:
            raise StrategyError(
                f"the weighting {traits(rule).label} returned {weights.tolist()}: a bound on shares needs weights of "
                "at least 0"
            )
        _, places = np.unique(buffer.clients, return_inverse=True)
        totals: Floats = np.bincount(places, weights).astype(np.float64, copy=False)
        allowed = limited(totals, bound, most)
        if allowed is totals:
            return weights
        factors = np.divide(allowed, totals, out=np.zeros_like(totals), where=totals > 0)
        return weights * factors[places]

    return bound_weights


def check_bound(bound: float) -> None:
    """Refuses anything but a share above 0 and at most 1.

    >>> check_bound(1.5)
    Traceback (most recent call last):
    fairlag.errors.StrategyError: the bound is 1.5, it must be above 0 and at most 1: a client's share of a version
    """
    if not 0 < bound <= 1:
        raise StrategyError(f"the bound is {bound}, it must be above 0 and at most 1: a client's share of a version")


def sharing(totals: Floats, bound: float, most: float = math.inf) -> Floats:
    """Weights with the same sum W, in proportion to the given ones, but none above c = min(bound · W, most).

    min(c, λ·w_i), with λ such that the sum is W.

    >>> sharing(np.array([6.0, 3.0, 1.0]), 0.5).tolist()
    [5.0, 3.75, 1.25]
    """
    whole = math.fsum(totals.tolist())
    highest = min(bound * whole, most)
    if totals.max() <= highest:
        return totals
    if np.count_nonzero(totals) * highest < whole * (1 - _SLACK):
        return np.zeros_like(totals)
    ordered, tails = _from_the_largest(totals)
    factors = (whole - highest * np.arange(len(ordered))) / tails
    uncut = ordered * factors <= highest * (1 + _SLACK)
    shared: Floats = np.minimum(totals * factors[uncut.argmax()], highest)
    return shared


def spending(totals: Floats, bound: float, most: float = math.inf) -> Floats:
    """The largest weights that are not above the given ones or `most`, and of whose sum none is more than `bound`.

    min(w_i, c), with the largest c such that c ≤ bound · Σ_k min(w_k, c).

    >>> spending(np.array([6.0, 3.0, 1.0]), 0.5).tolist()
    [4.0, 3.0, 1.0]
    """
    within = totals if totals.max() <= most else np.minimum(totals, most)
    if within.max() <= bound * math.fsum(within.tolist()):
        return within
    ordered, tails = _from_the_largest(within)
    cut = np.arange(len(ordered))
    left = 1 - bound * cut
    possible = left > _SLACK
    highest = bound * tails[possible] / left[possible]
    uncut = ordered[possible] <= highest * (1 + _SLACK)
    return np.minimum(within, highest[uncut.argmax()]) if uncut.any() else np.zeros_like(within)


def _from_the_largest(totals: Floats) -> tuple[Floats, Floats]:
    """The positive numbers from the largest to the smallest, and per number the sum of it and all that follow."""
    upwards = np.sort(totals[totals > 0])
    return upwards[::-1], np.cumsum(upwards)[::-1]


def largest_weight(rule: Weigh, updates: int | None = None) -> float:
    """The largest weight that a rule can give to one update, whatever happens; infinite if there is no bound.

    `updates` is the size of a buffer, if it is always the same.

    >>> largest_weight(weigh.times(weigh.uniform, weigh.polynomial(0.5)))
    1.0
    """
    return _largest(rule, updates)[0]


def largest_total(rule: Weigh, updates: int | None = None) -> float:
    """The largest total weight that a rule can give to a buffer, whatever happens; infinite if there is no bound.

    >>> largest_total(weigh.capped(weigh.mean_gap, 2.0)), largest_total(weigh.mean_gap)
    (2.0, inf)
    >>> largest_total(weigh.divided(weigh.polynomial(0.5), 10), updates=10)
    1.0
    """
    return _largest(rule, updates)[1]


_UP_TO_ONE = (weigh.polynomial, weigh.hinge, weigh.exponential, weigh.damped)


def _largest(rule: object, updates: int | None) -> tuple[float, float]:
    """The largest weight of an update, and the largest total."""
    known = provenance(rule)
    if rule in (weigh.uniform, weigh.by_examples, weigh.per_client):
        single, total = 1.0, 1.0
    elif rule is weigh.delay_adaptive or (known and known.make in _UP_TO_ONE):
        single, total = 1.0, math.inf
    elif known is not None:
        single, total = _made(known, updates)
    else:
        single, total = math.inf, math.inf
    return single, total if updates is None else min(total, single * updates)


def _made(known: Provenance, updates: int | None) -> tuple[float, float]:
    """The bounds of what a combinator makes of other rules."""
    make, given = known
    if make is weigh.normalised:
        return 1.0, 1.0
    if make is weigh.constant:
        return given["weight"], math.inf
    if make is weigh.times:
        singles, totals = zip(*(_largest(each, updates) for each in given["rules"]), strict=True)
        each = range(len(singles))
        return math.prod(singles), min(math.prod([totals[i], *singles[:i], *singles[i + 1 :]]) for i in each)
    if make not in (weigh.at_most, weigh.divided, weigh.capped, bounded):
        return math.inf, math.inf
    single, total = _largest(given["rule"], updates)
    if make is weigh.at_most:
        return min(single, given["most"] or math.inf), total
    if make is weigh.divided:
        return single / given["by"], total / given["by"]
    if make is weigh.capped:
        cap = given["cap"] or math.inf
        return min(single, cap), min(total, cap)
    return min(single, given["most"]), total
