"""Distributions of durations with a closed form; delay.py combines them and reads them from text.

Each is given by its quantile function of u in the open interval (0, 1), a float or an array, with identical bits.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairlag.errors import InputError
from fairlag.text.calls import Written, check_mean, number, write

Numbers = TypeVar("Numbers", float, NDArray[np.float64])

# The largest float below 1.
LAST = 1 - 2.0**-53


@dataclass(frozen=True, slots=True)
class Constant(Written):
    """``constant(seconds)``: always the same.

    >>> Constant(2).quantile(0.1)
    2.0
    """

    seconds: float

    def __post_init__(self) -> None:
        """Refuses anything but a duration."""
        self._settle("seconds")
        check_mean(self.mean, self)

    def quantile(self, u: Numbers) -> Numbers:
        """Seconds, for every u."""
        return np.full(u.shape, self.seconds) if isinstance(u, np.ndarray) else self.seconds

    @property
    def mean(self) -> float:
        """Seconds."""
        return self.seconds


@dataclass(frozen=True, slots=True)
class Uniform(Written):
    """``uniform(low, high)``: every duration in between is equally likely.

    >>> Uniform(1, 3).quantile(0.25)
    1.5
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuses an empty interval."""
        self._settle("low", "high")
        if self.low > self.high:
            raise InputError(f"{self} has low {write(self.low)} above high {write(self.high)}; write the smaller first")
        check_mean(self.mean, self)

    def quantile(self, u: Numbers) -> Numbers:
        """Low + (high − low) u."""
        return self.low + (self.high - self.low) * u

    @property
    def mean(self) -> float:
        """(low + high) / 2."""
        return (self.low + self.high) / 2


@dataclass(frozen=True, slots=True)
class Normal(Written):
    """``normal(mean, deviation)``: a normal distribution truncated at zero, that is, given that it is not negative.

    u is mapped into the part of the distribution above 0, so nothing is redrawn and no mass piles up at 0. The text's
    mean is called centre here, because the mean of the truncated distribution is larger.

    >>> round(Normal(10, 2).quantile(0.5), 4), round(Normal(0, 1).mean, 4)
    (10.0, 0.7979)
    """

    centre: float
    deviation: float

    def __post_init__(self) -> None:
        """Refuses a negative mean or deviation."""
        object.__setattr__(self, "centre", number(self.centre, "mean of normal"))
        self._settle("deviation")
        check_mean(self.mean, self)

    def quantile(self, u: Numbers) -> Numbers:
        """Centre − deviation Φ⁻¹((1 − u) Φ(centre / deviation)): the upper tail, so that no u rounds to infinity."""
        tail = (1 - u) * float(_special().ndtr(self._ratio()))
        if isinstance(u, np.ndarray):
            return np.maximum(0.0, self.centre - self.deviation * _apply("ndtri", np.minimum(tail, LAST)))
        return max(0.0, self.centre - self.deviation * _apply("ndtri", min(tail, LAST)))

    @property
    def mean(self) -> float:
        """Centre + deviation φ(z) / Φ(z) with z = centre / deviation."""
        z = self._ratio()
        density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        return self.centre + self.deviation * density / float(_special().ndtr(z))

    def _ratio(self) -> float:
        return self.centre / self.deviation if self.deviation else math.inf


@dataclass(frozen=True, slots=True)
class Exponential(Written):
    """``exponential(mean)``: memoryless, the remaining time does not depend on the time already waited.

    >>> round(Exponential(1).quantile(0.5), 4)
    0.6931
    """

    mean: float

    def __post_init__(self) -> None:
        """Refuses a mean of 0."""
        self._settle("mean")
        check_mean(self.mean, self)

    def quantile(self, u: Numbers) -> Numbers:
        """−mean log(1 − u)."""
        return -self.mean * _each(math.log1p, -u)


@dataclass(frozen=True, slots=True)
class Lognormal(Written):
    """``lognormal(median, sigma)``: its logarithm is normal around log(median) with standard deviation sigma.

    >>> Lognormal(2, 1).quantile(0.5), round(Lognormal(2, 1).mean, 4)
    (2.0, 3.2974)
    """

    median: float
    sigma: float

    def __post_init__(self) -> None:
        """Refuses a median of 0, and a sigma so large that the mean overflows."""
        self._settle("median", "sigma")
        check_mean(self.mean, self)

    def quantile(self, u: Numbers) -> Numbers:
        """Median × exp(sigma Φ⁻¹(u))."""
        return self.median * _each(math.exp, self.sigma * _apply("ndtri", u))

    @property
    def mean(self) -> float:
        """Median × exp(sigma² / 2)."""
        try:
            return self.median * math.exp(self.sigma**2 / 2)
        except OverflowError:
            return math.inf


@dataclass(frozen=True, slots=True)
class Gamma(Written):
    """``gamma(shape, scale)``: if shape is a whole number, the sum of shape exponential durations with mean scale.

    >>> round(Gamma(1, 3).quantile(0.5) / Exponential(3).quantile(0.5), 9)
    1.0
    """

    shape: float
    scale: float

    def __post_init__(self) -> None:
        """Refuses a shape or scale of 0."""
        self._settle("shape", "scale")
        check_mean(self.mean, self)

    def quantile(self, u: Numbers) -> Numbers:
        """Scale × P⁻¹(shape, u), where P is the regularised lower incomplete gamma function."""
        return self.scale * _apply("gammaincinv", u, self.shape)

    @property
    def mean(self) -> float:
        """Shape × scale."""
        return self.shape * self.scale


@dataclass(frozen=True, slots=True)
class Pareto(Written):
    """``pareto(minimum, shape)``: heavy-tailed; durations beyond d have probability (minimum / d)^shape.

    >>> round(Pareto(10, 2).quantile(0.75), 9), Pareto(10, 2).mean
    (20.0, 20.0)
    """

    minimum: float
    shape: float

    def __post_init__(self) -> None:
        """Refuses a shape whose mean is infinite: no long run would approach it."""
        self._settle("minimum", "shape")
        if self.shape <= 1:
            raise InputError(f"shape of pareto is {write(self.shape)}, but must be above 1, or its mean is infinite")
        check_mean(self.mean, self)

    def quantile(self, u: Numbers) -> Numbers:
        """Minimum × (1 − u)^(−1 / shape)."""
        return self.minimum * _each(math.exp, _each(math.log1p, -u) / -self.shape)

    @property
    def mean(self) -> float:
        """Minimum × shape / (shape − 1)."""
        return self.minimum * self.shape / (self.shape - 1)


def _each(function: Callable[[float], float], values: Numbers) -> Numbers:
    """Applies a function to a float, or to each in an array: numpy's exp and log may differ from math's by a bit."""
    if isinstance(values, np.ndarray):
        return np.fromiter(map(function, values.ravel().tolist()), np.float64, values.size).reshape(values.shape)
    return function(values)


def _apply(name: str, values: Numbers, *parameters: float) -> Numbers:
    """Applies a scipy function element by element; for a float, converts the result from numpy's float."""
    function = getattr(_special(), name)
    if isinstance(values, np.ndarray):
        return np.asarray(function(*parameters, values))
    return float(function(*parameters, values))


@cache
def _special() -> Any:
    """scipy.special, imported on first use: it takes longer than all other imports, and most fleets do not need it."""
    return import_module("scipy.special")
