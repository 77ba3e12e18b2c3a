"""Whether the clients of a group are alike, and how a group is taken apart into clients that are."""

from collections.abc import Sequence
from importlib import import_module
from math import ceil, exp, log
from typing import NamedTuple

import numpy as np

from fairlag.core.types import Floats, Integers

CHANCE = 0.001
_APART = 0.05
"""Clients differ where chance would make their mean log durations differ so much less often than the first, and where
the standard deviation of the true ones is about the second or more, that is, some per cent of a duration."""

FEW = 24
"""Up to so many clients that differ have a table each, and so many tables a group of more of them has at the most."""

_WIDTH = log(1.25)
"""Of more clients, those whose typical durations lie in a span of that factor share a table."""


class Part(NamedTuple):
    """Clients of a group that share a table."""

    clients: Integers
    suffix: str
    """What is put behind the name of the group, nothing where it is not taken apart."""


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
        """How many times as long a client takes as a typical one, if it is one deviation slower."""
        return exp(self.deviation)


def spread(clients: Integers, durations: Floats) -> Spread:
    """How much clients differ, by an analysis of variance of log durations, one of a client's at each place.

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
    # Scipy is imported when it is first needed. Equal durations of each client leave nothing to chance.
    chance = float(import_module("scipy.special").fdtrc(k - 1, n - k, between / within)) if within > 0 else 0.0
    return Spread(deviation, chance)


def apart(members: Integers, clients: Integers, durations: Floats) -> list[Part]:
    """A group taken apart: few clients one by one, many by how long they take; who was not heard of is the last part.

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
