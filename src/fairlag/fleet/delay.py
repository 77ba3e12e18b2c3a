"""How long a task takes: what a delay is, how delays combine, and how they are written and read.

One uniform number gives one duration (inverse transform), so two strategies that draw the same numbers get the same
durations. distribution.py has the closed forms and trace.py recorded durations; this module exports all of them.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fairlag.errors import InputError
from fairlag.fleet.distribution import (
    LAST,
    Constant,
    Exponential,
    Gamma,
    Lognormal,
    Normal,
    Numbers,
    Pareto,
    Uniform,
)
from fairlag.fleet.trace import Empirical, Trace
from fairlag.text.calls import Call, Written, build, check_mean, number, read, write

__all__ = [
    "Constant",
    "Delay",
    "Empirical",
    "Exponential",
    "Gamma",
    "Lognormal",
    "Mixture",
    "Normal",
    "Pareto",
    "Scaled",
    "Trace",
    "Uniform",
    "from_call",
    "parse",
]

_FIRST = 1 - LAST


@runtime_checkable
class Delay(Protocol):
    """A distribution of non-negative durations in seconds; ``str`` gives the text that :func:`parse` reads."""

    def quantile(self, u: Numbers) -> Numbers:
        """The duration at u in the open interval (0, 1): a float for a float, an array for an array."""

    @property
    def mean(self) -> float:
        """The mean duration, finite and above 0."""


@dataclass(frozen=True, slots=True)
class Mixture(Written):
    """``mixture(weight, delay, weight, delay, …)``: one of several delays, with probability weight / sum of weights.

    The parts divide (0, 1) into shares. u picks the part in whose share it lies, and its place within the share is that
    part's own u. So ``quantile`` increases within each share, but not from one share to the next.

    >>> mixture = Mixture(((3, Uniform(0, 1)), (1, Constant(9))))
    >>> mixture.quantile(0.375), mixture.quantile(0.8), mixture.mean
    (0.5, 9.0, 2.625)
    """

    parts: tuple[tuple[float, Delay], ...]
    _edges: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuses an empty mixture and a weight that is not positive."""
        if not self.parts:
            raise InputError("a mixture needs at least one delay; write for example mixture(0.9, 1, 0.1, 60)")
        parts = tuple((number(weight, "weight of mixture", positive=True), parse(part)) for weight, part in self.parts)
        sums = list(accumulate(weight for weight, _ in parts))
        number(sums[-1], "the sum of the weights of mixture")
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "_edges", (0.0, *(total / sums[-1] for total in sums)))
        check_mean(self.mean, self)

    def __str__(self) -> str:
        """Weights and delays in turn."""
        return f"mixture({', '.join(write(value) for part in self.parts for value in part)})"

    def quantile(self, u: Numbers) -> Numbers:
        """The part's duration at (u − start of its share) / length of its share."""
        if isinstance(u, np.ndarray):
            edges = np.asarray(self._edges)
            index = np.searchsorted(edges, u, side="right") - 1
            # A u at the edge of a share would be 0 or 1 within it, where a quantile may be infinite.
            within = np.clip((u - edges[index]) / (edges[index + 1] - edges[index]), _FIRST, LAST)
            durations = np.empty(u.shape)
            for place, (_, delay) in enumerate(self.parts):
                durations[index == place] = delay.quantile(within[index == place])
            return durations
        place = bisect_right(self._edges, u) - 1
        start, end = self._edges[place], self._edges[place + 1]
        return self.parts[place][1].quantile(min(max((u - start) / (end - start), _FIRST), LAST))

    @property
    def mean(self) -> float:
        """Σ weight × mean / Σ weight."""
        return sum(weight * delay.mean for weight, delay in self.parts) / sum(weight for weight, _ in self.parts)


@dataclass(frozen=True, slots=True)
class Scaled(Written):
    """``scaled(factor, delay)``: another delay, times a factor.

    >>> str(Scaled(3, Uniform(1, 2))), Scaled(3, Uniform(1, 2)).mean
    ('scaled(3, uniform(1, 2))', 4.5)
    """

    factor: float
    delay: Delay

    def __post_init__(self) -> None:
        """Refuses a factor of 0."""
        self._settle("factor")
        object.__setattr__(self, "delay", parse(self.delay))
        check_mean(self.mean, self)

    def quantile(self, u: Numbers) -> Numbers:
        """Factor × the delay's quantile."""
        return self.factor * self.delay.quantile(u)

    @property
    def mean(self) -> float:
        """Factor × the delay's mean."""
        return self.factor * self.delay.mean


def parse(text: str | float | Delay, folder: Path | None = None) -> Delay:
    """The delay that a text describes; a number is a constant, and a delay is returned as it is.

    The path of a trace is relative to ``folder`` if that is given, and then kept as an absolute path, so that
    ``parse(str(delay)) == delay`` holds for every delay.

    >>> parse("mixture(0.9, uniform(1, 2), 0.1, pareto(10, shape=2.5))").mean
    3.016666666666667
    >>> parse("2.5")
    Constant(seconds=2.5)
    >>> parse("unifrom(1, 2)")
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: there is no delay 'unifrom': did you mean 'uniform'?
    """
    value = read(text, "delay", "uniform(1, 2)") if isinstance(text, str) else text
    if isinstance(value, Call):
        return from_call(value, folder)
    if isinstance(value, str):
        raise InputError(f"the delay {text!r} cannot be read; write for example uniform(1, 2)")
    return value if isinstance(value, Delay) else Constant(value)


def from_call(call: Call, folder: Path | None = None) -> Delay:
    """The delay that a call describes, for texts in which delays are arguments.

    >>> from_call(Call("uniform(1, 2)", "uniform", (1, 2), {}))
    Uniform(low=1.0, high=2.0)
    """

    def trace(path: Any) -> Trace:
        return Trace(Path(folder, path).absolute() if folder is not None and isinstance(path, str) else path)

    return build(call, {**_MAKERS, "trace": trace}, "delay", nested=lambda inner: from_call(inner, folder))


def _normal(mean: float, deviation: float) -> Normal:
    return Normal(mean, deviation)


def _mixture(weight: float, delay: Delay, *more_pairs: Any) -> Mixture:
    arguments = (weight, delay, *more_pairs)
    if len(arguments) % 2:
        raise InputError(
            f"mixture has {len(arguments)} arguments, but needs pairs; write mixture(weight, delay, weight, delay, ...)"
        )
    return Mixture(tuple(zip(arguments[::2], arguments[1::2], strict=True)))


def _empirical(duration: float, *more_durations: float) -> Empirical:
    return Empirical((duration, *more_durations))


DELAYS: Mapping[str, type[Delay]] = {
    "constant": Constant,
    "uniform": Uniform,
    "normal": Normal,
    "exponential": Exponential,
    "lognormal": Lognormal,
    "gamma": Gamma,
    "pareto": Pareto,
    "mixture": Mixture,
    "trace": Trace,
    "empirical": Empirical,
    "scaled": Scaled,
}
_MAKERS: Mapping[str, Callable[..., Delay]] = {
    **DELAYS,
    "normal": _normal,
    "mixture": _mixture,
    "empirical": _empirical,
}
"""Functions for the delays whose written arguments differ from their fields."""
