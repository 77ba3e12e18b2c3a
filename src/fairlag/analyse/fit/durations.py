"""A delay for durations that were seen, some of them only in part: the best family, or the durations themselves."""

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
"""How delays can be fitted: by the best family, by the durations themselves, or by one family."""

_ABOVE_ZERO = ("lognormal", "gamma", "pareto")

_MOST = 20_000
"""Of more durations than that, every so many-th is enough to fit a family."""

_LISTED = 100
"""Of more durations than that, `empirical` lists the means of so many equal parts."""

_GRID = (np.arange(2000) + 0.5) / 2000
_CLOSE, _ERRORS = 0.05, 3.0
_CHANCE = {"normal": 1.05, "lognormal": 1.05, "gamma": 1.1, "exponential": 1.29, "pareto": 1.29, "uniform": 1.62}
"""A family fits well up to the first distance, or up to its own number / √n, if its mean is as close as the first, too,
or within this many standard errors. Chance alone exceeds the number / √n once in a hundred times. It is smaller than
Kolmogorov's 1.63 because the parameters are fitted to the same durations (Lilliefors)."""

_NEARLY = 6.0
"""A family whose criterion is larger by more than that is clearly less likely (Kass and Raftery, 1995)."""

FEWEST = 10
"""Fewer durations than that pass any test, so they do not tell a family."""


class Fitted(NamedTuple):
    """A delay for durations."""

    delay: Delay
    distance: float
    """Of Kolmogorov and Smirnov: how far apart the probabilities of seen and fitted durations are at the most."""
    doubt: str = ""
    """Why no family was taken, or why the one that was asked for does not fit; empty if a family fits."""

    @property
    def family(self) -> str:
        """The name of its distribution."""
        return type(self.delay).__name__.lower()


def check_way(how: str) -> None:
    """Refuses what is no way to fit.

    >>> check_way("normall")
    Traceback (most recent call last):
    fairlag.errors.InputError: 'normall' is no way to fit: take best, empirical, uniform, normal, exponential, \
lognormal, gamma, pareto
    """
    if how not in WAYS:
        raise InputError(f"{how!r} is no way to fit: take {', '.join(WAYS)}")


def fit(sample: Sample, how: str = BEST) -> Fitted:
    """A delay for durations, of which at least one was seen to its end, and one is above 0.

    The best family is the one with the least −2 log likelihood + parameters × log n (Schwarz), where a duration that
    was cut off counts with the probability to last longer. If it does not fit well, the next one is tried unless it is
    clearly less likely; if none fits, the durations themselves are taken.

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
        return _empirical(sample, f"{len(sample.exact)} durations are too few to tell a distribution")
    with np.errstate(all="ignore"):
        found = sorted(_tried(_thinned(sample), how, low), key=lambda each: each[0])
    if not found:
        return _empirical(sample, "no family can have such durations")
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
    """Every family that is asked for and can have such durations, with its criterion."""
    for name in FAMILIES if how == BEST else (how,):
        if low <= 0 and name in _ABOVE_ZERO:
            continue
        parameters, make, likelihood = likeliest(name, sample)
        # Half of a normal distribution is what others are good at.
        half = name == "normal" and how == BEST and parameters[0] < parameters[1] / 1000
        if isfinite(likelihood) and not half:
            try:
                delay = make(*(_short(each) for each in parameters))
            except InputError:  # of an infinite mean, say
                continue
            yield -2 * likelihood + len(parameters) * log(len(sample.exact) + len(sample.cut)), delay


def _empirical(sample: Sample, doubt: str = "") -> Fitted:
    """The durations, or means of equal parts of them: so the mean stays."""
    times, weights = sample.survival()
    parts = min(len(times), _LISTED)
    edges = np.linspace(0, 1, parts + 1)
    sums = np.interp(edges, np.append(0, np.cumsum(weights)), np.append(0, np.cumsum(weights * times)))
    delay = Empirical(tuple(_short(each) for each in np.maximum(0, np.diff(sums) * parts)))
    return Fitted(delay, distance(delay, sample), doubt)


def _doubt(fitted: Fitted, sample: Sample) -> str:
    """How a family fails its test; nothing if it fits well."""
    root, mean = sqrt(len(sample.exact)), sample.mean()
    name, limit = fitted.family, max(_CLOSE, _CHANCE[fitted.family] / root)
    if fitted.distance > limit:
        return f"the likeliest {name} distribution has a distance of {fitted.distance:.3f}, above {limit:.3f}"
    if abs(fitted.delay.mean - mean) > max(_CLOSE * mean, _ERRORS * float(sample.exact.std()) / root):
        return f"the likeliest {name} distribution has a mean of {fitted.delay.mean:.4g}, not {mean:.4g}"
    return ""


def distance(delay: Delay, sample: Sample) -> float:
    """Of Kolmogorov and Smirnov: the largest difference between the probabilities to last at most so long.

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
    """Are long tasks lost more often, as where clients leave at any moment, or any task with one probability?

    Decided by which makes it more likely that tasks had lasted just so long when they were lost. By the clock, that
    has a density ∝ P(D > t) exp(−t × rate of losses). With one probability a task is lost, as in the simulator, after
    a part of its duration that is uniform: then the density is the mean of 1/D over durations D above t, and those
    that were not lost are a fair sample by themselves.
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
    """To five digits: more would be noise, and hard to read."""
    return float(f"{value:.5g}")
