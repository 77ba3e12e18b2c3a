"""Whether strategies differ significantly over seeds: the one rule for every text that says better or best."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from math import nan, sqrt
from statistics import fmean, variance
from typing import Any, NamedTuple

LEVEL = 0.05
"""Strategies differ clearly if the probability of such differences by chance is below this."""

CONFIDENCE = 0.95
"""An interval contains the true difference with this probability."""

FEWEST = 3
"""With fewer seeds no difference is clear: two seeds may differ by the same amount by chance."""

_ROUNDING = 1e-12


class Test(NamedTuple):
    """A test of the difference between two strategies."""

    seeds: int
    """The number of seeds that the test uses: those that both have, or the smaller number of the two."""
    paired: bool
    p: float
    """The probability of such a difference by chance; 1 if there are too few seeds."""
    difference: float = nan
    """The mean of the first − the mean of the second, over the seeds that the test uses."""
    margin: float = nan
    """The confidence interval is `difference` ± this; NaN if there are too few seeds."""
    floor: float = 0.0
    """The smallest difference that counts: that of one test example."""
    comparisons: int = 1
    """The number of comparisons for which `p` was corrected."""

    @property
    def low(self) -> float:
        """The lower end of the confidence interval."""
        return self.difference - self.margin

    @property
    def high(self) -> float:
        """The upper end of the confidence interval."""
        return self.difference + self.margin

    @property
    def equal(self) -> bool:
        """Is the difference smaller than one test example?"""
        return abs(self.difference) < max(_ROUNDING, self.floor - _ROUNDING)

    @property
    def clear(self) -> bool:
        """Do they differ clearly?"""
        return self.p < LEVEL and not self.equal

    @property
    def words(self) -> str:
        """The test in a few words.

        >>> Test(5, True, 0.3).words, Test(2, True, 1.0).words
        ('paired t-test over 5 seeds, p = 0.3', '2 seeds are too few')
        >>> Test(5, True, 0.3, comparisons=3).words
        'paired t-test over 5 seeds, p = 0.3 after Holm for 3 comparisons'
        >>> Test(5, True, 0.001, difference=0.0001, floor=0.001).words
        'they differ by less than one test example'
        """
        if self.seeds < FEWEST:
            return f"{self.seeds} seed{'s are' if self.seeds != 1 else ' is'} too few"
        if self.p < LEVEL and self.equal:
            return "they differ by less than one test example"
        corrected = f" after Holm for {self.comparisons} comparisons" if self.comparisons > 1 else ""
        test = "paired t-test" if self.paired else "t-test"
        return f"{test} over {self.seeds} seeds, {p_in_words(self.p)}{corrected}"

    def as_json(self) -> dict[str, Any]:
        """Its numbers; the interval is None if there are too few seeds."""
        known = self.seeds >= FEWEST
        return {
            "difference": self.difference if self.seeds else None,
            "interval": [self.low, self.high] if known else None,
            "p": self.p,
            "comparisons": self.comparisons,
            "seeds": self.seeds,
            "paired": self.paired,
            "distinguishable": self.clear,
        }


def p_in_words(p: float) -> str:
    """A p-value with two digits.

    >>> p_in_words(0.0123), p_in_words(1e-9)
    ('p = 0.012', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def told_apart(one: Mapping[int, float], other: Mapping[int, float], floor: float = 0.0) -> Test:
    """A t-test of values by seed: paired over the seeds that both have, else for unequal variances (Welch).

    A difference below `floor`, that of one test example, is never clear. Scores are rounded to examples, so the
    variance of a score is never taken to be below that of the rounding, floor²/12: equal differences prove less.

    >>> found = told_apart({0: 0.91, 1: 0.92, 2: 0.90}, {0: 0.89, 1: 0.90, 2: 0.879})
    >>> found.words, f"{found.difference:.4f} ± {found.margin:.4f}"
    ('paired t-test over 3 seeds, p < 0.001', '0.0203 ± 0.0014')
    >>> told_apart({0: 0.91, 1: 0.90}, {0: 0.80, 1: 0.79}).clear
    False
    """
    shared, fewer = sorted(one.keys() & other.keys()), min(len(one), len(other))
    paired = len(shared) >= min(FEWEST, fewer) and bool(shared)
    if paired:
        differences = [one[seed] - other[seed] for seed in shared]
        mean, seeds = fmean(differences), len(shared)
    else:
        mean, seeds = (fmean(one.values()) - fmean(other.values()) if fewer else nan), fewer
    if fewer < FEWEST:
        return Test(seeds, paired, 1.0, mean, floor=floor)
    if paired:
        error, freedom = max(variance(differences), floor**2 / 6) / seeds, float(seeds - 1)
    else:
        error, freedom = _welch([*one.values()], [*other.values()], floor**2 / 12)
    return Test(seeds, paired, _p(mean, error, freedom), mean, _margin(error, freedom), floor)


def holm(tests: Sequence[Test]) -> list[Test]:
    """The tests with p-values corrected for their number (Holm 1979), so that one in twenty such families errs.

    Of m p-values in ascending order, the i-th becomes the largest of (m − j + 1)·p_j for j ≤ i, at most 1. Pairs with
    too few seeds are not tested, and do not count.

    >>> [test.p for test in holm([Test(5, True, 0.01), Test(5, True, 0.04), Test(5, True, 0.03)])]
    [0.03, 0.06, 0.06]
    """
    most, found = 0.0, list(tests)
    made = [index for index, test in enumerate(tests) if test.seeds >= FEWEST]
    for place, index in enumerate(sorted(made, key=lambda index: tests[index].p)):
        most = max(most, min(1.0, (len(made) - place) * tests[index].p))
        found[index] = tests[index]._replace(p=most, comparisons=len(made))
    return found


def _welch(one: Sequence[float], other: Sequence[float], least: float) -> tuple[float, float]:
    """The squared standard error of a difference of means with unequal variances, and its degrees of freedom.

    No variance is taken to be below `least`.
    """
    errors = [max(variance(each), least) / len(each) for each in (one, other)]
    weighed = sum(error**2 / (len(each) - 1) for error, each in zip(errors, (one, other), strict=True))
    return sum(errors), sum(errors) ** 2 / weighed if weighed > 0 else 1.0


def _p(difference: float, error: float, freedom: float) -> float:
    """The two-sided p-value of a difference with this squared standard error; differences below 1e-12 are rounding."""
    if abs(difference) < _ROUNDING:
        return 1.0
    if error <= 0:
        return 0.0
    return float(2 * import_module("scipy.special").stdtr(freedom, -abs(difference) / sqrt(error)))


def factor(seeds: int) -> float:
    """What the standard deviation over seeds is multiplied by for half the width of the mean's confidence interval.

    With two seeds that interval would say nothing, so then it is half the distance between them.

    >>> round(factor(5), 3), round(factor(2), 3)
    (1.242, 0.707)
    """
    return _margin(1 / seeds, seeds - 1.0) if seeds >= FEWEST else 1 / sqrt(seeds)


def _margin(error: float, freedom: float) -> float:
    """Half the width of the confidence interval."""
    return float(import_module("scipy.special").stdtrit(freedom, (1 + CONFIDENCE) / 2)) * sqrt(error)
