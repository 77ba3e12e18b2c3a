"""How much one aggregation may enlarge the model: beyond that it is refused as a whole, and suspects are named."""

import math
from statistics import median_low

from fairlag.core.types import Floats, Integers
from fairlag.core.vector import Matrix, Vector, finite, length

_MIN_VALUE = 0.1
"""A model counts as at least as large as one whose numbers all have this value: models may start at zero."""
_MAX_SUSPECTS = 3
"""The largest number of suspects that are named."""


def size_of(parameters: Vector) -> float:
    """The size of a model: its length, or the length of a model of 0.1 everywhere if that is more.

    >>> import numpy as np
    >>> size_of(np.array([3, 4], np.float32)), size_of(np.zeros(100, np.float32))
    (5.0, 1.0)
    """
    return max(length(parameters), _MIN_VALUE * math.sqrt(parameters.size))


def objection(what: str, values: Vector, before: Vector, limit: float) -> str:
    """Why a step or the next model is refused: not finite, or `limit` times as large as the model. Empty if it is not.

    >>> import numpy as np
    >>> before = np.array([3, 4], np.float32)
    >>> objection("the step", 9 * before, before, 10.0), objection("the step", 11 * before, before, 10.0)
    ('', 'the step is more than 10 times as large as the model')
    """
    if not finite(values):
        return f"{what} is not finite"
    if length(values) > limit * size_of(before):
        return f"{what} is more than {limit:g} times as large as the model"
    return ""


def swelling(statistics: Vector, values: Matrix, before: Vector, limit: float) -> str:
    """Why mixed statistics are refused: not finite, or `limit` times as large as both the last ones and most clients'.

    Statistics are measured, so an honest one may grow by any factor at once; but then it grows for most clients.

    >>> import numpy as np
    >>> values = np.array([[500], [600], [9e9]], np.float32)
    >>> swelling(values[0], values, np.ones(1, np.float32), 10.0), swelling(values[2], values, values[0], 10.0)
    ('', 'a statistic is more than 10 times as large as usual')
    """
    if not finite(statistics):
        return "a statistic is not finite"
    usual = max(size_of(before), median_low(length(row) for row in values))
    return f"a statistic is more than {limit:g} times as large as usual" if length(statistics) > limit * usual else ""


def suspects(clients: Integers, weights: Floats, updates: Matrix) -> str:
    """The clients that contributed most to the length of a step, with their parts, until these add up to half.

    >>> import numpy as np
    >>> updates = np.array([[1, 0], [0, 98], [1, 0]], np.float32)
    >>> suspects(np.array([4, 7, 4]), np.array([0.5, 0.5, 0.5]), updates)
    'client 7 (98 %)'
    """
    parts: dict[int, float] = {}
    for client, weight, update in zip(clients.tolist(), weights.tolist(), updates, strict=True):
        parts[client] = parts.get(client, 0.0) + abs(weight) * length(update)
    total = math.fsum(parts.values())
    named, left = list[str](), total / 2
    for client, part in sorted(parts.items(), key=lambda each: -each[1])[:_MAX_SUSPECTS]:
        if left <= 0:
            break
        named.append(f"client {client} ({part / total:.0%})".replace("%", " %"))
        left -= part
    return ", ".join(named)
