"""Reductions: a buffer of updates and their weights become one step."""

from collections.abc import Callable

import numpy as np

from fairlag.core.types import Floats
from fairlag.core.vector import Matrix, Vector
from fairlag.errors import StrategyError
from fairlag.rules.rule import credits_by, factory, mixes_statistics, reads_updates, sums_only

Reduce = Callable[[Floats, Matrix], Vector]


@mixes_statistics
@sums_only
def weighted_sum(weights: Floats, updates: Matrix) -> Vector:
    """The sum Σ_j α_j Δ_j, in order of arrival.

    Not a matrix product, because its last bits depend on the number of threads of the linear algebra library.

    >>> weighted_sum(np.array([0.5, 0.25]), np.array([[2, 0], [0, 4]], np.float32)).tolist()
    [1.0, 1.0]
    """
    step: Vector = np.einsum("j,jp->p", weights.astype(np.float32), updates)
    return step


@factory
def trimmed_mean(share: float) -> Reduce:
    """Per coordinate, the mean without the lowest and the highest share of values, times Σ_j α_j.

    Robust against a minority of extreme updates; in return it ignores how the weights differ.

    >>> trimmed_mean(0.25)(np.full(4, 0.25), np.array([[1], [2], [4], [900]], np.float32)).tolist()
    [3.0]
    """
    if not 0 <= share < 0.5:
        raise StrategyError(f"the trimmed share is {share}, it must be at least 0 and below 0.5")

    def credit(weights: Floats, updates: Matrix) -> Floats:
        cut = int(share * len(updates))
        ranks = np.argsort(np.argsort(updates, axis=0, kind="stable"), axis=0)
        kept = ((ranks >= cut) & (ranks < len(updates) - cut)).mean(axis=1)
        parts: Floats = kept * (weights.sum() / (len(updates) - 2 * cut))
        return parts

    @credits_by(credit)
    @mixes_statistics
    @reads_updates
    def reduce(weights: Floats, updates: Matrix) -> Vector:
        cut = int(share * len(updates))
        kept = np.sort(updates, axis=0)[cut : len(updates) - cut]
        mean: Vector = kept.mean(axis=0)
        return mean * np.float32(weights.sum())

    return reduce
