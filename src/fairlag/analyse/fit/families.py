"""Families of delays, fitted by likelihood to durations; some durations may only be known to last longer."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from math import inf, isfinite, lgamma, log, pi
from typing import Any, NamedTuple

import numpy as np

from fairlag.core.types import Floats
from fairlag.fleet.delay import Delay, Exponential, Gamma, Lognormal, Normal, Pareto, Uniform

_HALF_LOG = log(2 * pi) / 2
_FAR = 3.0
"""A window this many times as long as the longest duration hides nothing that matters."""


class Sample(NamedTuple):
    """Durations: those observed to their end, and how long others had lasted when they were cut off."""

    exact: Floats
    cut: Floats = np.empty(0)
    window: Floats = np.empty(0)
    """For each exact duration: if it had been longer than this, it would be missing. Empty if none could be missing."""

    @property
    def near(self) -> Floats:
        """The windows that may have hidden longer durations."""
        return np.extract(self.window < _FAR * self.exact.max(initial=0.0), self.window)

    def survival(self) -> tuple[Floats, Floats]:
        """The exact durations in order, and the probability of each.

        If some were cut off, by Kaplan and Meier; the last gets the rest. Otherwise by Lynden-Bell, for windows.

        >>> [each.tolist() for each in Sample(np.array([3.0, 1.0]), np.array([1.0])).survival()]
        [[1.0, 3.0], [0.33333333333333326, 0.6666666666666667]]
        """
        if not len(self.cut) and len(self.near):
            return self._truncated()
        times = np.concatenate([self.exact, self.cut])
        ended = np.arange(len(times)) < len(self.exact)
        order = np.lexsort((~ended, times))
        times, ended = times[order], ended[order]
        left = np.cumprod(np.where(ended, 1 - 1 / np.arange(len(times), 0, -1), 1.0))
        weights = -np.diff(left, prepend=1.0)[ended]
        weights[-1] += left[-1]
        return times[ended], weights

    def _truncated(self) -> tuple[Floats, Floats]:
        """From the longest down: compares each with those not longer that would still be observed if as long."""
        times = np.sort(self.exact)
        rivals = np.arange(1, len(times) + 1) - np.searchsorted(np.sort(self.window), times)
        up_to = np.append(np.cumprod((1 - 1 / rivals)[::-1])[::-1], 1.0)
        return times, np.diff(up_to, prepend=0.0)[1:] + np.eye(1, len(times))[0] * up_to[0]

    def hidden(self) -> float:
        """The estimated number of durations that their windows hid, if all have one distribution.

        >>> Sample(np.array([1.0, 3.0, 2.0]), window=np.array([2.5, 9.0, 4.0])).hidden()  # one half lasts 3
        1.0
        """
        if len(self.cut) or not len(self.near):
            return 0.0
        times, weights = self.survival()
        fits = np.cumsum(weights)[np.searchsorted(times, self.near, side="right") - 1]
        return inf if fits.min() <= 0 else float((1 / fits - 1).sum())

    def mean(self) -> float:
        """The mean, as far as it can be known."""
        times, weights = self.survival()
        return float(times @ weights)

    def quantile(self, part: float) -> float:
        """The duration that this part of all durations does not exceed."""
        times, weights = self.survival()
        return float(times[min(int(np.searchsorted(np.cumsum(weights), part - 1e-12)), len(times) - 1)])


class _Family(NamedTuple):
    """Distributions of one form. Parameters are positive, because the fit searches their logarithms."""

    make: Callable[..., Delay]
    density: Callable[..., Floats]
    """The log densities of durations, given the parameters."""
    beyond: Callable[..., Floats]
    """The log probabilities to last longer than each duration."""
    start: Callable[[Floats], tuple[float, ...]]


def _normal_density(durations: Floats, centre: float, width: float) -> Floats:
    z = (durations - centre) / width
    return -z * z / 2 - log(width) - _HALF_LOG - float(_special().log_ndtr(centre / width))


def _normal_beyond(durations: Floats, centre: float, width: float) -> Floats:
    return np.asarray(_special().log_ndtr((centre - durations) / width) - _special().log_ndtr(centre / width))


def _lognormal_density(durations: Floats, median: float, sigma: float) -> Floats:
    logs = np.log(durations)
    z = (logs - log(median)) / sigma
    return -z * z / 2 - logs - log(sigma) - _HALF_LOG


def _lognormal_beyond(durations: Floats, median: float, sigma: float) -> Floats:
    return np.asarray(_special().log_ndtr((log(median) - np.log(durations)) / sigma))


def _gamma_density(durations: Floats, shape: float, scale: float) -> Floats:
    return (shape - 1) * np.log(durations) - durations / scale - shape * log(scale) - lgamma(shape)


def _gamma_beyond(durations: Floats, shape: float, scale: float) -> Floats:
    return np.asarray(np.log(_special().gammaincc(shape, durations / scale)))


def _exponential_density(durations: Floats, mean: float) -> Floats:
    return -durations / mean - log(mean)


def _exponential_beyond(durations: Floats, mean: float) -> Floats:
    return -durations / mean


def _about(durations: Floats) -> tuple[float, float]:
    return float(durations.mean()), float(durations.std())


def _logarithms(durations: Floats) -> tuple[float, float]:
    logs = np.log(durations)
    return float(np.exp(logs.mean())), float(logs.std())


def _shape_and_scale(durations: Floats) -> tuple[float, float]:
    mean, deviation = _about(durations)
    return (mean / deviation) ** 2, deviation**2 / mean


_SMOOTH: dict[str, _Family] = {
    "normal": _Family(Normal, _normal_density, _normal_beyond, _about),
    "exponential": _Family(Exponential, _exponential_density, _exponential_beyond, lambda each: _about(each)[:1]),
    "lognormal": _Family(Lognormal, _lognormal_density, _lognormal_beyond, _logarithms),
    "gamma": _Family(Gamma, _gamma_density, _gamma_beyond, _shape_and_scale),
}
FAMILIES = ("uniform", *_SMOOTH, "pareto")


class Likeliest(NamedTuple):
    """The member of a family under which durations are most likely."""

    parameters: tuple[float, ...]
    make: Callable[..., Delay]
    likelihood: float
    """The log likelihood."""


def likeliest(name: str, sample: Sample) -> Likeliest:
    """The most likely member of the family of this name; durations must not all be equal.

    >>> found = likeliest("exponential", Sample(np.array([1.0, 2.0]), np.array([3.0])))
    >>> [round(each, 3) for each in found.parameters]  # the total time ÷ the number of exact durations
    [3.0]
    """
    if name == "uniform":
        return _uniform(sample)
    return _pareto(sample) if name == "pareto" else _smooth(_SMOOTH[name], sample)


def _smooth(family: _Family, sample: Sample) -> Likeliest:
    def cost(logs: Floats) -> float:
        parameters = np.exp(logs).tolist()
        total = float(family.density(sample.exact, *parameters).sum() + family.beyond(sample.cut, *parameters).sum())
        total -= float(np.log(-np.expm1(family.beyond(near, *parameters))).sum())
        return -total if isfinite(total) else inf

    near = sample.near
    start = np.log(family.start(sample.exact))
    simplex = np.vstack([start, start + 0.2 * np.eye(len(start))])
    best = _optimize().minimize(cost, start, method="Nelder-Mead", options={"initial_simplex": simplex})
    return Likeliest(tuple(np.exp(best.x).tolist()), family.make, -float(best.fun))


def _uniform(sample: Sample) -> Likeliest:
    """From a little below the least to a little above the greatest, so that the expected range is the true one."""
    beyond = np.ptp(sample.exact) / max(1, len(sample.exact) - 1)
    low, high = max(0.0, float(sample.exact.min() - beyond)), float(sample.exact.max() + beyond)

    def likelihood(high: float) -> float:
        longer = np.minimum(1, (high - sample.cut) / (high - low))
        seen = np.minimum(1, (sample.near - low) / (high - low))
        return float(-len(sample.exact) * log(high - low) + np.log(longer).sum() - np.log(seen).sum())

    if len(sample.cut):
        high = max(high, float(sample.cut.max()) + beyond)
        spans = (log(high - low), log(high - low) + log(4))
        found = _optimize().minimize_scalar(lambda span: -likelihood(low + np.exp(span)), bounds=spans)
        high = low + float(np.exp(found.x)) if found.fun < -likelihood(high) else high
    return Likeliest((low, high), Uniform, likelihood(high))


def _pareto(sample: Sample) -> Likeliest:
    minimum = float(sample.exact.min())
    beyond = np.log(np.maximum(1, np.concatenate([sample.exact, sample.cut]) / minimum))
    shape = len(sample.exact) / float(beyond.sum())
    likelihood = len(sample.exact) * (log(shape / minimum) - 1) - float(beyond[: len(sample.exact)].sum())
    hidden = (minimum / sample.near) ** shape
    return Likeliest((minimum, shape), Pareto, likelihood - float(np.log1p(-hidden).sum()))


@cache
def _special() -> Any:
    """Imported when first needed, because importing parts of scipy takes longer than everything else."""
    return import_module("scipy.special")


@cache
def _optimize() -> Any:
    return import_module("scipy.optimize")
