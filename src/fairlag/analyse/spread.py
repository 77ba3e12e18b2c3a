"""The mean and deviation of a number over seeds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean, stdev


@dataclass(frozen=True, slots=True)
class Spread:
    """A number over seeds: mean, sample standard deviation (None for fewer than two), and how many seeds have it.

    >>> Spread.of([1.0, 3.0, float("nan")])
    Spread(mean=2.0, deviation=1.4142135623730951, seeds=2)
    """

    mean: float | None
    deviation: float | None
    seeds: int
    by_seed: Mapping[int, float] = field(default_factory=dict, compare=False, repr=False)
    """The value of each seed, if the seeds are known."""

    @classmethod
    def of(cls, values: Iterable[float], seeds: Sequence[int] = ()) -> "Spread":
        """The spread of the finite values; `seeds` names their seeds, in the same order."""
        every = [float(value) for value in values]
        found = [value for value in every if isfinite(value)]
        known = {seed: value for seed, value in zip(seeds, every, strict=False) if isfinite(value)}
        return cls(fmean(found) if found else None, stdev(found) if len(found) > 1 else None, len(found), known)
