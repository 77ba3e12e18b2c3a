"""Clients' own test data: which of its examples a client holds back from training, and which clients are tested."""

import numpy as np

from fairlag.core import seeds
from fairlag.core.types import Floats, Integers
from fairlag.data.shares import Shares
from fairlag.data.whole import apportion

MOST_TESTED = 500
"""About how many clients are tested on their own data: of more, a sample is drawn."""


def reserve(shares: Shares, part: float, seed: int) -> tuple[Shares, Integers]:
    """The same shares with each client's test examples last, and how many these are, per client.

    Of n examples, part × n are for testing, rounded to the nearest whole number, but at least one stays for training.

    >>> shares = Shares.from_owners(np.array([0, 0, 0, 0, 0, 1, 2, 2]), 3)
    >>> reserved, counts = reserve(shares, 0.4, seed=0)
    >>> counts.tolist(), without(reserved, counts).sizes.tolist()
    ([2, 0, 1], [3, 1, 1])
    """
    sizes = shares.sizes
    counts = np.minimum(np.floor(part * sizes + 0.5).astype(np.int64), np.maximum(sizes - 1, 0))
    owners = np.repeat(np.arange(shares.clients), sizes)
    # An example's number depends only on the seed and the example, not on the owners of the others.
    numbers = seeds.uniforms(seeds.key(seed, "own tests"), 0, int(shares.order.max(initial=-1)) + 1)[shares.order]
    order = shares.order[np.lexsort((_drawn(owners, counts, numbers), owners))]
    order.flags.writeable = False
    return Shares(order, shares.bounds), counts


def without(shares: Shares, counts: Integers) -> Shares:
    """The shares without the last examples of each client, so many per client."""
    kept = np.arange(len(shares.order)) < np.repeat(shares.bounds[1:] - counts, shares.sizes)
    order, bounds = shares.order[kept], np.concatenate(([0], np.cumsum(shares.sizes - counts)))
    order.flags.writeable = bounds.flags.writeable = False
    return Shares(order, bounds)


def drawn_clients(counts: Integers, group_of: Integers, seed: int, most: int = MOST_TESTED) -> Integers:
    """The clients to test, ascending: all that hold test examples, or a sample of about `most` of them.

    The sample has the same shares of groups, and at least one client of each.

    >>> drawn_clients(np.array([3, 0, 2]), np.zeros(3, np.int64), seed=0).tolist()
    [0, 2]
    >>> group_of = np.repeat([0, 1, 2], [800, 199, 1])
    >>> np.bincount(group_of[drawn_clients(np.ones(1000, np.int64), group_of, seed=0, most=10)]).tolist()
    [8, 2, 1]
    """
    able = np.flatnonzero(counts)
    if len(able) <= most:
        return able
    there = np.bincount(group_of[able])
    parts = np.maximum(apportion(most, there), np.minimum(there, 1))
    numbers = seeds.uniforms(seeds.key(seed, "tested clients"), 0, len(counts))[able]
    return able[_drawn(group_of[able], parts, numbers)]


def _drawn(owners: Integers, counts: Integers, numbers: Floats) -> np.typing.NDArray[np.bool_]:
    """Which items are drawn: those with the smallest numbers of their owner, as many as it has in `counts`."""
    order = np.lexsort((numbers, owners))
    sizes = np.bincount(owners, minlength=len(counts))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rank < counts[owners]
