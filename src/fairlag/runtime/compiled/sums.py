"""Sums as exact as `math.fsum`, of many rows at once."""

import numpy as np

from fairlag.core.types import Floats
from fairlag.jit import compiled, make_ready


def exact_sums(rows: Floats) -> Floats:
    """The result of `math.fsum` for each row of finite numbers: the sum, rounded once.

    >>> exact_sums(np.array([[1e16, 1.0, -1e16, 0.5], [0.1, 0.2, 0.3, 0.4]])).tolist()
    [1.5, 1.0]
    """
    totals = np.empty(len(rows))
    _sum(rows, np.empty(rows.shape[1] + 1), totals)
    return totals


def make_sums_ready() -> None:
    """Compiles or loads the sums now, so that the first call takes no extra time."""
    make_ready(_sum, np.empty((0, 0)), np.empty(0), np.empty(0))


@compiled
def exact_sum(values: Floats, parts: Floats) -> float:
    """Keeps parts that do not overlap and add up exactly to the values so far (Shewchuk, 1997)."""
    size = 0
    for place in range(len(values)):
        value, kept = values[place], 0
        for each in range(size):
            part = parts[each]
            if abs(value) < abs(part):
                value, part = part, value
            both = value + part
            rest = part - (both - value)
            if rest:
                parts[kept] = rest
                kept += 1
            value = both
        parts[kept] = value
        size = kept + 1
    return _rounded(parts, size)


@compiled
def _sum(rows: Floats, parts: Floats, totals: Floats) -> None:
    for row in range(len(totals)):
        totals[row] = exact_sum(rows[row], parts)


@compiled
def _rounded(parts: Floats, size: int) -> float:
    """The sum of parts that do not overlap, the largest last, rounded once, half to even."""
    place = size - 1
    total, rest = float(parts[place]), 0.0
    while place > 0 and not rest:
        place -= 1
        before = total
        total = before + parts[place]
        rest = parts[place] - (total - before)
    # If the rest is exactly half a unit in the last place, the parts below it decide.
    if place > 0 and ((rest < 0 and parts[place - 1] < 0) or (rest > 0 and parts[place - 1] > 0)):
        further = total + 2 * rest
        if 2 * rest == further - total:
            total = further
    return total
