"""The arithmetic of partitions: examples in order of label, cut evenly or unevenly, at least one per client."""

import numpy as np
from numpy.typing import NDArray

from fairlag.core.types import Integers
from fairlag.errors import InputError

_BLOCK = 65_536
"""How many clients draw their labels at once: bounds the memory for random numbers."""


def by_label(labels: Integers, rng: np.random.Generator, among: Integers | None = None) -> Integers:
    """The examples (all, or those in ``among``) in order of label, shuffled within each label.

    >>> labels = np.array([1, 0, 1, 0])
    >>> labels[by_label(labels, np.random.default_rng(0))].tolist()
    [0, 0, 1, 1]
    """
    shuffled = rng.permutation(len(labels) if among is None else among)
    return shuffled[np.argsort(labels[shuffled], kind="stable")]


def cut(order: Integers, owners: Integers) -> Integers:
    """The owner of each example if the examples, in this order, are cut into equal pieces, one per owner.

    >>> cut(np.array([3, 0, 2, 1]), np.array([7, 5])).tolist()
    [7, 5, 5, 7]
    """
    owner_of = np.empty(len(order), np.int64)
    owner_of[order] = owners[np.arange(len(order)) * len(owners) // len(order)]
    return owner_of


def uneven(count: int, clients: int, alpha: float, rng: np.random.Generator) -> Integers:
    """The owners, in ascending order, of ``count`` examples, with shares drawn from a Dirichlet distribution.

    >>> uneven(4, 1, 0.5, np.random.default_rng(0)).tolist()
    [0, 0, 0, 0]
    """
    # A gamma variate with a small shape underflows; its logarithm is that of a variate with shape + 1, minus e / shape.
    logarithms = np.log(rng.standard_gamma(alpha + 1, clients))
    logarithms -= rng.standard_exponential(clients) / max(alpha, 1e-300)
    edges = np.cumsum(np.exp(logarithms - logarithms.max()))
    return np.searchsorted(edges / edges[-1], (np.arange(count) + 0.5) / count)


def filled(owners: Integers, clients: int, rng: np.random.Generator) -> Integers:
    """The owners after each client without an example got one, drawn from clients with more than one.

    >>> sorted(filled(np.array([0, 0, 0]), 3, np.random.default_rng(0)).tolist())
    [0, 1, 2]
    """
    empty = np.flatnonzero(np.bincount(owners, minlength=clients) == 0)
    if not len(empty):
        return owners
    order = np.argsort(owners, kind="stable")
    spare = order[1:][np.diff(owners[order]) == 0]
    owners[rng.choice(spare, len(empty), replace=False, shuffle=False)] = empty
    return owners


def held_at_random(clients: int, labels: int, lacking: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which client (row) may hold which label (column): each client lacks ``lacking`` labels, each label has a holder.

    >>> held_at_random(3, 4, 2, np.random.default_rng(0)).sum(axis=1).tolist()
    [2, 2, 2]
    """
    most = labels + -labels // clients
    if lacking > most:
        raise InputError(
            f"{clients} clients that lack {lacking} of {labels} labels each leave a label that no client holds: "
            f"remove at most {most}, or use more clients"
        )
    held = np.ones((clients, labels), np.bool_)
    for block in np.split(held, range(_BLOCK, clients, _BLOCK)):
        lacked = rng.random(block.shape).argpartition(min(lacking, labels - 1), axis=1)[:, :lacking]
        np.put_along_axis(block, lacked, False, axis=1)
    for label in np.flatnonzero(~held.any(axis=0)):
        # Enough places are held in total: if a label has no holder, another has two, and one of them can be swapped.
        twice = held.sum(axis=0) > 1
        client = rng.choice(np.flatnonzero(held[:, twice].any(axis=1)))
        held[client, rng.choice(np.flatnonzero(held[client] & twice))] = False
        held[client, label] = True
    return held
