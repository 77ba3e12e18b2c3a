"""Fixed-point numbers for sums modulo 2^64: how updates and weights become integers, and their sum a mean again.

An update is counted in quanta of 2^−30 and cut to ±256, so |q| ≤ 2^38. Weights are whole numbers a_j ≥ 0 with a sum of
2^24. Hence |Σ a_j q_j| ≤ 2^24 · 2^38 = 2^62 for any number of updates: a sum never overflows 64 bits.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from fairlag.core.vector import Vector
from fairlag.errors import InputError

FRACTION = 30
"""The number of fraction bits of a coordinate."""

RANGE = 2**8
"""The largest absolute value of a coordinate; larger ones are cut to it."""

WHOLE = 2**24
"""The sum of the whole weights of an aggregation."""

CHUNK = 2**15
"""The number of coordinates that are worked on at once, so that what is temporary fits into a processor's cache."""

Words = NDArray[np.uint64]
"""Integers modulo 2^64; a negative number is its two's complement."""


def parts(size: int) -> Iterator[slice]:
    """The slices of at most `CHUNK` coordinates that together cover a vector of this size.

    >>> [part.stop - part.start for part in parts(CHUNK + 1)]
    [32768, 1]
    """
    return (slice(start, min(start + CHUNK, size)) for start in range(0, size, CHUNK))


def quantise(update: Vector) -> Words:
    """The update in quanta, round(2^30 · x) with x cut to ±256; a coordinate that is not finite is refused.

    Rounding changes a coordinate by at most 2^−31.

    >>> quantise(np.array([0.5, -(2**-30), 1e9], np.float32)).view(np.int64).tolist()
    [536870912, -1, 274877906944]
    """
    quanta = np.empty(update.size, np.int64)
    for part in parts(update.size):
        scaled = np.multiply(update[part], 2.0**FRACTION, dtype=np.float64)
        finite = np.isfinite(scaled)
        if not finite.all():
            place = part.start + int(np.argmin(finite))
            raise InputError(f"coordinate {place} of the update is {update[place]}, it must be finite")
        np.clip(scaled, -RANGE * 2.0**FRACTION, RANGE * 2.0**FRACTION, out=scaled)
        quanta[part] = np.rint(scaled, out=scaled)
    return quanta.view(np.uint64)


def whole_weights(weights: Sequence[float]) -> list[int]:
    """Whole weights with a sum of exactly 2^24, in proportion to these, by largest remainders; ties go to the first.

    Each differs from 2^24 · w_j / Σ w by less than 1. A weight of 0 stays 0.

    >>> whole_weights([1, 1, 1])
    [5592406, 5592405, 5592405]
    """
    for each in weights:
        if not (isfinite(each) and each >= 0):
            raise InputError(f"a weight is {each}: under secure aggregation, weights must be finite and at least 0")
    exact = [Fraction(float(each)) for each in weights]
    total = sum(exact)
    if not total:
        raise InputError("all weights are 0: under secure aggregation, at least one must be positive")
    scaled = [each * WHOLE / total for each in exact]
    whole = [int(each) for each in scaled]
    by_remainder = sorted(range(len(whole)), key=lambda place: whole[place] - scaled[place])
    for place in by_remainder[: WHOLE - sum(whole)]:
        whole[place] += 1
    return whole


def weighted_sum(vectors: Iterable[Words], weights: Sequence[int], size: int) -> Words:
    """Σ a_j · y_j modulo 2^64, for masked or plain integers.

    >>> weighted_sum([np.array([1, 2], np.uint64), np.array([3, 4], np.uint64)], [2, 10], 2).tolist()
    [32, 44]
    """
    total = np.zeros(size, np.uint64)
    for vector, weight in zip(vectors, weights, strict=True):
        for part in parts(size):
            total[part] += vector[part] * np.uint64(weight)
    return total


def mean(total: Words) -> Vector:
    """The weighted mean Σ a_j q_j / (2^24 · 2^30) as float32.

    >>> mean(weighted_sum([quantise(np.array([-1.5], np.float32))], [WHOLE], 1))
    array([-1.5], dtype=float32)
    """
    values = np.empty(total.size, np.float32)
    for part in parts(total.size):
        values[part] = total[part].view(np.int64) * (2.0**-FRACTION / WHOLE)
    return values
