"""Whole numbers: checks that a parameter is one, and splits a total into whole parts."""

from fairlag.core.types import Integers
from fairlag.errors import InputError


def whole(value: object, what: str, least: int) -> int:
    """A value as a whole number that is at least ``least``.

    >>> whole(2, "count of shards", 1)
    2
    >>> whole(0.5, "count of shards", 1)
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: count of shards is 0.5, but must be a whole number of at least 1
    """
    # In Python a bool is an int, but True shards make no sense.
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise InputError(f"{what} is {value!r}, but must be a whole number of at least {least}")


def apportion(total: int, weights: Integers) -> Integers:
    """Splits a total into whole parts proportional to whole weights: rounded down, the largest remainders get one more.

    No part exceeds its weight if the total does not exceed the sum of the weights.

    >>> import numpy as np
    >>> apportion(10, np.array([1, 1, 1])).tolist(), apportion(3, np.array([5, 1, 0])).tolist()
    ([4, 3, 3], [3, 0, 0])
    """
    sum_of_weights = int(weights.sum())
    if sum_of_weights == 0:
        return weights * 0
    parts, remainders = (total * weights) // sum_of_weights, (total * weights) % sum_of_weights
    # Stable, so that equal remainders go to the first.
    parts[(-remainders).argsort(kind="stable")[: total - int(parts.sum())]] += 1
    return parts
