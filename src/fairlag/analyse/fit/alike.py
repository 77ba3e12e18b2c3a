"""Whether the clients of a group are alike, and how a group is split into clients that are."""

from collections.abc import Sequence
from importlib import import_module
from math import ceil, exp, log
from typing import NamedTuple

import numpy as np

from fairlag.core.types import Floats, Integers

CHANCE = 0.001
_APART = 0.05
"""Clients clearly differ if two conditions hold. The probability of such differences between mean log durations by
chance is below the first number, and the standard deviation of the true means, without what chance adds, is at least
the second: some per cent of a duration."""

FEW = 24
"""Up to this number of clients that differ get one table each; a group with more clients gets at most this number of
tables."""

_WIDTH = log(1.25)
"""In such a larger group, clients whose typical durations are within this log factor (25 %) share a table."""


class Part(NamedTuple):
    """Clients of a group that share a table."""

    clients: Integers
    suffix: str
    """What follows the name of the group; empty if the group is not split."""


class Spread(NamedTuple):
    """How much clients differ."""

    deviation: float
    """The standard deviation of their mean log durations, without what chance adds."""
    chance: float
    """The probability of such differences between clients that are alike."""

    @property
    def clear(self) -> bool:
        """Do they clearly differ?"""
        return self.chance < CHANCE and self.deviation >= _APART

    @property
    def factor(self) -> float:
        """The ratio of a client's durations to typical ones, if it is one deviation slower."""
        return exp(self.deviation)


def spread(clients: Integers, durations: Floats) -> Spread:
    """How much clients differ, by an analysis of variance of log durations; `clients` names the client of each.

    >>> found = spread(np.array([1, 1, 1, 2, 2, 2]), np.array([1.0, 1.1, 0.9, 4.0, 4.4, 3.6]))
    >>> found.clear, round(found.factor, 1)
    (True, 2.7)
    """
    logs = np.log(durations)
    _, place, counts = np.unique(clients, return_inverse=True, return_counts=True)
    n, k = len(logs), len(counts)
    if k < 2 or n <= k:
        return Spread(0.0, 1.0)
    means = np.bincount(place, logs) / counts
    between = float((counts * (means - logs.mean()) ** 2).sum()) / (k - 1)
    within = float(((logs - means[place]) ** 2).sum()) / (n - k)
    size = (n - float((counts**2).sum()) / n) / (k - 1)
    deviation = max(0.0, (between - within) / size) ** 0.5
    # Scipy is imported when first needed. If each client's durations are all equal, chance plays no role.
    chance = float(import_module("scipy.special").fdtrc(k - 1, n - k, between / within)) if within > 0 else 0.0
    return Spread(deviation, chance)


def apart(members: Integers, clients: Integers, durations: Floats) -> list[Part]:
    """Splits a group: few clients one by one, many by their durations. The last part holds clients without any.

    >>> [(part.clients.tolist(), part.suffix) for part in apart(np.arange(3), np.array([0, 1]), np.array([1.0, 9.0]))]
    [([0], '-0'), ([1], '-1'), ([2], '-others')]
    """
    heard, place, counts = np.unique(clients, return_inverse=True, return_counts=True)
    if len(members) <= FEW:
        parts = [Part(np.array([client]), f"-{client}") for client in heard.tolist()]
    else:
        parts = _by_speed(heard, np.bincount(place, np.log(durations)) / counts)
    others = np.setdiff1d(members, heard)
    return [*parts, Part(others, "-others")] if len(others) else parts


def _by_speed(clients: Integers, typical: Floats) -> list[Part]:
    low, span = float(typical.min()), float(np.ptp(typical))
    bins = min(FEW, max(1, ceil(span / _WIDTH)))
    where = np.minimum((typical - low) / max(span, 1e-12) * bins, bins - 1).astype(np.int64)
    chosen: Sequence[int] = np.unique(where).tolist()
    return [Part(clients[where == each], f"-{number}") for number, each in enumerate(chosen, 1)]
