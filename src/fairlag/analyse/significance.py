"""Whether two strategies differ significantly over seeds: the one rule for every text that says better or best."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from math import sqrt
from statistics import fmean, variance
from typing import NamedTuple

LEVEL = 0.05
"""Two strategies differ clearly if the probability of such a difference by chance is below this."""

FEWEST = 3
"""With fewer seeds no difference is clear: two seeds may differ by the same amount by chance."""


class Test(NamedTuple):
    """A test of the difference between two strategies."""

    seeds: int
    """The number of seeds that the test uses: those that both have, or the smaller number of the two."""
    paired: bool
    p: float
    """The probability of such a difference by chance; 1 if there are too few seeds."""

    @property
    def clear(self) -> bool:
        """Do they differ clearly?"""
        return self.p < LEVEL

    @property
    def words(self) -> str:
        """The test in a few words.

        >>> Test(5, True, 0.3).words, Test(2, True, 1.0).words
        ('paired t-test over 5 seeds, p = 0.3', '2 seeds are too few')
        """
        if self.seeds < FEWEST:
            return f"{self.seeds} seed{'s are' if self.seeds != 1 else ' is'} too few"
        value = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.2g}"
        return f"{'paired t-test' if self.paired else 't-test'} over {self.seeds} seeds, {value}"


def told_apart(one: Mapping[int, float], other: Mapping[int, float]) -> Test:
    """A t-test of values by seed: paired over the seeds that both have, else for unequal variances (Welch).

    >>> told_apart({0: 0.91, 1: 0.92, 2: 0.90}, {0: 0.89, 1: 0.90, 2: 0.879}).words
    'paired t-test over 3 seeds, p < 0.001'
    >>> told_apart({0: 0.91, 1: 0.90}, {0: 0.80, 1: 0.79}).clear
    False
    """
    shared, fewer = sorted(one.keys() & other.keys()), min(len(one), len(other))
    if fewer < FEWEST:
        return Test(fewer, False, 1.0)
    if len(shared) < FEWEST:
        return Test(fewer, False, _welch([*one.values()], [*other.values()]))
    differences = [one[seed] - other[seed] for seed in shared]
    return Test(len(shared), True, _p(fmean(differences), variance(differences) / len(shared), len(shared) - 1))


def _welch(one: Sequence[float], other: Sequence[float]) -> float:
    errors = [variance(each) / len(each) for each in (one, other)]
    weighed = sum(error**2 / (len(each) - 1) for error, each in zip(errors, (one, other), strict=True))
    freedom = sum(errors) ** 2 / weighed if weighed > 0 else 1.0
    return _p(fmean(one) - fmean(other), sum(errors), freedom)


def _p(difference: float, error: float, freedom: float) -> float:
    """The two-sided p-value of a difference with this squared standard error; differences below 1e-12 are rounding."""
    if abs(difference) < 1e-12:
        return 1.0
    if error <= 0:
        return 0.0
    return float(2 * import_module("scipy.special").stdtr(freedom, -abs(difference) / sqrt(error)))
