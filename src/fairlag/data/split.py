"""Which examples are for training and which for testing, and smaller samples that keep the shares of classes."""

from typing import Literal

import numpy as np

from fairlag.core import seeds
from fairlag.core.types import Integers
from fairlag.data.dataset import Dataset
from fairlag.data.deal import by_label
from fairlag.data.whole import apportion
from fairlag.errors import InputError

Holdout = float | Literal["official"]
"""The fraction of all examples kept for testing, or the official test part."""


def split(dataset: Dataset, holdout: Holdout, seed: int) -> tuple[Integers, Integers]:
    """The examples for training and those for testing, each in ascending order.

    A fraction is drawn from all examples, including the official test part, with the same fraction of each class. If
    the data says which client holds an example, each client keeps at least one for training.

    >>> data = Dataset("tiny", np.zeros((10, 1), np.uint8), np.arange(10) % 2, classes=2, official=8)
    >>> train, test = split(data, 0.4, seed=0)
    >>> len(train), np.bincount(data.labels[test]).tolist()
    (6, [2, 2])
    >>> split(data, "official", seed=0)[1].tolist()
    [8, 9]
    """
    everything = np.arange(len(dataset))
    if isinstance(holdout, str):
        return _official(dataset, everything, holdout)
    size = round(holdout * len(dataset)) if 0 < holdout < 1 else 0
    if not 0 < size < len(dataset):
        raise InputError(
            f"holdout is {holdout!r}, but of {len(dataset)} examples of {dataset.name} it must leave some for training "
            "and some for testing: write a number between 0 and 1, such as 0.2"
        )
    rng = np.random.default_rng(seeds.key(seed, "holdout"))
    free = everything if dataset.owners is None else _spare(dataset.owners, rng)
    if size > len(free):
        raise InputError(
            f"holdout is {holdout!r}, but at most {len(free)} of {len(dataset)} examples of {dataset.name} can be held "
            "out for testing, because each client keeps one"
        )
    test = _drawn(dataset.strata, free, size, rng)
    return np.setdiff1d(everything, test, assume_unique=True), test


def stratified(labels: Integers, indices: Integers, size: int, seed: int) -> Integers:
    """A sample of the examples at these indices, ascending, with the same shares of classes; all if `size` is larger.

    >>> labels = np.array([0, 0, 0, 0, 1, 1, 7])
    >>> labels[stratified(labels, np.arange(6), 3, seed=0)].tolist()
    [0, 0, 1]
    """
    if size < 1:
        raise InputError(f"the size of a sample is {size}, it must be at least 1")
    if size >= len(indices):
        return np.sort(indices)
    return _drawn(labels, indices, size, np.random.default_rng(seeds.key(seed, "stratified")))


def reserved(dataset: Dataset, train: Integers, size: int, seed: int, purpose: str) -> Integers:
    """The training examples, ascending, that no client gets, for a purpose: as many of each class as in all of them.

    If the data says which client holds an example, each client keeps at least one.

    >>> data = Dataset("tiny", np.zeros((10, 1), np.uint8), np.arange(10) % 2, classes=2, official=10)
    >>> np.bincount(data.labels[reserved(data, np.arange(10), 4, seed=0, purpose="trusted")]).tolist()
    [2, 2]
    """
    rng = np.random.default_rng(seeds.key(seed, purpose))
    free = train if dataset.owners is None else train[np.sort(_spare(dataset.owners[train], rng))]
    if size >= len(free):
        raise InputError(f"{purpose} is {size}, but only {len(free)} training examples can be taken from the clients")
    return _drawn(dataset.strata, free, size, rng)


def _official(dataset: Dataset, everything: Integers, holdout: str) -> tuple[Integers, Integers]:
    if holdout != "official":
        raise InputError(f"holdout is {holdout!r}, but must be a number between 0 and 1, or 'official'")
    if dataset.official == len(dataset):
        raise InputError(
            f"holdout is 'official', but {dataset.name} has no official test part: write a number such as 0.2"
        )
    return everything[: dataset.official], everything[dataset.official :]


def _spare(owners: Integers, rng: np.random.Generator) -> Integers:
    """The examples that may be held out: all but a random one per client."""
    shuffled = rng.permutation(len(owners))
    _, first = np.unique(owners[shuffled], return_index=True)
    return np.setdiff1d(shuffled, shuffled[first][owners[shuffled[first]] >= 0], assume_unique=True)


def _drawn(labels: Integers, indices: Integers, size: int, rng: np.random.Generator) -> Integers:
    order = by_label(labels, rng, indices)
    counts = np.unique_counts(labels[indices]).counts
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[rank < np.repeat(apportion(size, counts), counts)])
