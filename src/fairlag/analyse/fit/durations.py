"""A delay for observed durations, some of them cut off: the best family, or the durations themselves."""

from collections.abc import Iterator
from math import isfinite, log, sqrt
from typing import NamedTuple

import numpy as np

from fairlag.analyse.fit.families import FAMILIES, Sample, likeliest
from fairlag.core.types import Floats
from fairlag.errors import InputError
from fairlag.fleet.delay import Constant, Delay, Empirical

EMPIRICAL, BEST = "empirical", "best"
WAYS = (BEST, EMPIRICAL, *FAMILIES)
"""How delays can be fitted: with the best family, the durations themselves, or one family."""

_ABOVE_ZERO = ("lognormal", "gamma", "pareto")

_MOST = 20_000
"""The number of durations that is enough to fit a family; if there are more, only every n-th is used."""

_LISTED = 100
"""The most values that `empirical` lists; if there are more durations, it lists the means of equal parts."""

_GRID = (np.arange(2000) + 0.5) / 2000
_CLOSE, _ERRORS = 0.05, 3.0
_CHANCE = {"normal": 1.05, "lognormal": 1.05, "gamma": 1.1, "exponential": 1.29, "pareto": 1.29, "uniform": 1.62}
"""When a family fits well. Its distance must be at most `_CLOSE` or its number in `_CHANCE` / √n, and its mean must be
right within the part `_CLOSE` or within `_ERRORS` standard errors. Chance alone exceeds the number / √n once in a
hundred times. The numbers are smaller than Kolmogorov's 1.63 because the parameters are fitted to the same durations
(Lilliefors)."""

_NEARLY = 6.0
"""A family whose criterion is larger by more than this is clearly less likely (Kass and Raftery, 1995)."""

FEWEST = 10
"""Fewer durations than this pass any test, so they do not identify a family."""


class Fitted(NamedTuple):
    """A delay for durations."""

    delay: Delay
    distance: float
    """The Kolmogorov–Smirnov distance between observed and fitted durations."""
    doubt: str = ""
    """Why no family was chosen, or why the requested one does not fit; empty if a family fits."""

    @property
    def family(self) -> str:
        """The name of its distribution."""
        return type(self.delay).__name__.lower()


def check_way(how: str) -> None:
    """Refuses an unknown way to fit.

    >>> check_way("normall")
    Traceback (most recent call last):
    fairlag.errors.InputError: cannot fit by 'normall': choose one of best, empirical, uniform, normal, exponential, \
lognormal, gamma, pareto
    """
    if how not in WAYS:
        raise InputError(f"cannot fit by {how!r}: choose one of {', '.join(WAYS)}")


def fit(sample: Sample, how: str = BEST) -> Fitted:
    """A delay for durations. At least one must have been observed to its end, and one must be above 0.

    The best family has the least −2 log likelihood + parameters × log n (Schwarz). A duration that was cut off counts
    with the probability to last longer. If the best family does not fit well, the next one is tried, unless it is
    clearly less likely. If none fits, the durations themselves are used.

    >>> fit(Sample(np.array([2.0, 2.0, 2.0]))).delay
    Constant(seconds=2.0)
    >>> drawn = 1 + (np.arange(200) + 0.5) / 100
    >>> str(fit(Sample(drawn)).delay), str(fit(Sample(drawn), "exponential").delay)
    ('uniform(0.995, 3.005)', 'exponential(2)')
    """
    low, high = float(sample.exact.min()), float(sample.exact.max())
    if high - low <= 1e-9 * high:
        return Fitted(Constant(_short(high)), 0.0)
    if how == EMPIRICAL:
        return _empirical(sample)
    if how == BEST and len(sample.exact) < FEWEST and not len(sample.cut):
        return _empirical(sample, f"{len(sample.exact)} durations are too few to identify a distribution")
    with np.errstate(all="ignore"):
        found = sorted(_tried(_thinned(sample), how, low), key=lambda each: each[0])
    if not found:
        return _empirical(sample, "no family allows such durations")
    near = [delay for criterion, delay in found if criterion <= found[0][0] + _NEARLY]
    fits = [Fitted(delay, distance(delay, sample)) for delay in near]
    doubts = [_doubt(each, sample) for each in fits]
    if "" in doubts:
        return fits[doubts.index("")]
    return _empirical(sample, doubts[0]) if how == BEST else fits[0]._replace(doubt=doubts[0])


def _thinned(sample: Sample) -> Sample:
    step = -(-(len(sample.exact) + len(sample.cut)) // _MOST)
    return Sample(*(each[::step] for each in sample))


def _tried(sample: Sample, how: str, low: float) -> Iterator[tuple[float, Delay]]:
    """Every requested family that allows such durations, with its criterion."""
    for name in FAMILIES if how == BEST else (how,):
        if low <= 0 and name in _ABOVE_ZERO:
            continue
        parameters, make, likelihood = likeliest(name, sample)
        # If only half of a normal distribution is left, other families describe it better.
        half = name == "normal" and how == BEST and parameters[0] < parameters[1] / 1000
        if isfinite(likelihood) and not half:
            try:
                delay = make(*(_short(each) for each in parameters))
            except InputError:  # for example, of an infinite mean
                continue
            yield -2 * likelihood + len(parameters) * log(len(sample.exact) + len(sample.cut)), delay


def _empirical(sample: Sample, doubt: str = "") -> Fitted:
    """The durations themselves, or the means of equal parts of them, which keeps the mean."""
    times, weights = sample.survival()
    parts = min(len(times), _LISTED)
    edges = np.linspace(0, 1, parts + 1)
    sums = np.interp(edges, np.append(0, np.cumsum(weights)), np.append(0, np.cumsum(weights * times)))
    delay = Empirical(tuple(_short(each) for each in np.maximum(0, np.diff(sums) * parts)))
    return Fitted(delay, distance(delay, sample), doubt)


def _doubt(fitted: Fitted, sample: Sample) -> str:
    """How a family fails its test; empty if it fits well."""
    root, mean = sqrt(len(sample.exact)), sample.mean()
    name, limit = fitted.family, max(_CLOSE, _CHANCE[fitted.family] / root)
    if fitted.distance > limit:
        return f"the most likely {name} distribution has a distance of {fitted.distance:.3f}, above {limit:.3f}"
    if abs(fitted.delay.mean - mean) > max(_CLOSE * mean, _ERRORS * float(sample.exact.std()) / root):
        return f"the most likely {name} distribution has a mean of {fitted.delay.mean:.4g}, not {mean:.4g}"
    return ""


def distance(delay: Delay, sample: Sample) -> float:
    """The Kolmogorov–Smirnov distance: the largest difference between the cumulative probabilities.

    >>> distance(Constant(1), Sample(np.array([1.0, 1.0, 1.0, 4.0])))
    0.25
    """
    times, weights = sample.survival()
    drawn = np.sort(delay.quantile(_GRID))
    seen = np.cumsum(weights)
    upper = seen - np.searchsorted(drawn, times, side="right") / len(drawn)
    lower = np.searchsorted(drawn, times, side="left") / len(drawn) - (seen - weights)
    return float(max(upper.max(), lower.max(), 0.0))


def lost_by_the_clock(exact: Floats, lost: Floats) -> bool:
    """Are long tasks lost more often, because clients leave at any moment, or are all tasks lost equally often?

    The answer is the hypothesis under which the times t at which tasks were lost are more likely. By the clock, t has a
    density ∝ P(D > t) exp(−t × rate of losses). With one probability for all tasks, as in the simulator, a task is lost
    after a uniformly distributed part of its duration. Then the density is the mean of 1/D over durations D above t,
    and the tasks that were not lost are a fair sample by themselves.
    """
    known = np.sort(exact[exact > 0])
    if not len(known):
        return True
    times, weights = Sample(exact, lost).survival()
    rate = len(lost) / float(exact.sum() + lost.sum())
    room = (1 - float(np.exp(-rate * times) @ weights)) / rate
    least = 1e-3 / float(known.mean())
    above = 1 - np.append(0, np.cumsum(weights))[np.searchsorted(times, lost, side="left")]
    clock = np.maximum(above * np.exp(-rate * lost) / room, least)
    inverse = np.append(np.cumsum((1 / known)[::-1])[::-1], 0) / len(known)
    coin = np.maximum(inverse[np.searchsorted(known, lost, side="right")], least)
    return bool(np.log(clock).sum() >= np.log(coin).sum())


def _short(value: float) -> float:
    """Rounds to five digits: more would be noise, and hard to read."""
    return float(f"{value:.5g}")
