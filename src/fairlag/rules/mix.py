"""Statistics of a model, such as BatchNorm's running mean and variance: mixed as values, never summed as changes."""

import numpy as np

from fairlag.core.types import Floats
from fairlag.core.vector import Matrix, Vector
from fairlag.rules.reduce import Reduce


def mixed(average: Reduce, weights: Floats, values: Matrix, now: Vector) -> Vector:
    """(1 − p) z + p Σ_j a_j z_j / Σ_j a_j, a_j = max(α_j, 0), p = min(1, Σ_j a_j); z is the server's, z_j the clients'.

    A convex combination of the clients' and the server's values, whatever the weights α_j add up to. A reduction other
    than `weighted_sum` averages the z_j in its own way; the result is clipped to their range.

    >>> from fairlag.rules.reduce import weighted_sum
    >>> clients, server = np.array([[2], [6]], np.float32), np.array([8], np.float32)
    >>> for weights in ([0.5, 0.5], [3, 1], [0.25, 0.25], [0, -1]):
    ...     mixed(weighted_sum, np.array(weights), clients, server).tolist()
    [4.0]
    [3.0]
    [6.0]
    [8.0]
    """
    positive = np.maximum(weights, 0.0)
    greatest = positive.max(initial=0.0)
    if not greatest:
        return now
    shares = positive / greatest  # their sum cannot overflow
    shares /= shares.sum()
    # Rounding may move it outside by the last bit; what follows is in double precision and cannot.
    inside = np.clip(average(shares, values), values.min(axis=0), values.max(axis=0)).astype(np.float64)
    part = min(1.0, positive.sum().item())
    result: Vector = ((1 - part) * now.astype(np.float64) + part * inside).astype(np.float32)
    return result
