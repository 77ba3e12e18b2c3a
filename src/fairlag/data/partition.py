"""How training examples are partitioned among clients: the kinds of partition, and how they are written and read.

Every kind says which client owns which example, so each example is held exactly once. Everything is an array: no
object is made per client, and a million clients take seconds.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairlag.core.types import Integers
from fairlag.data.deal import by_label, cut, filled, held_at_random, uneven
from fairlag.data.natural import ByOwner, File, Natural
from fairlag.data.shares import Holding, Shares
from fairlag.data.sharing import Partition
from fairlag.data.whole import apportion, whole
from fairlag.errors import InputError
from fairlag.text.calls import Call, build, number, read

__all__ = [
    "ByOwner",
    "Dirichlet",
    "File",
    "Holding",
    "Iid",
    "Labels",
    "Natural",
    "OneClass",
    "Partition",
    "Quantity",
    "RemoveLabels",
    "Shards",
    "Shares",
    "Sorted",
    "parse",
]


@dataclass(frozen=True, slots=True)
class Labels(Partition):
    """``labels``: the clients of a group share the examples of the group's labels evenly, as in the paper.
    If several groups hold a label, its examples are shared evenly among the clients of all these groups.

    >>> groups = [Holding("fast", 2, (1,)), Holding("slow", 1, (0,))]
    >>> Labels().share(np.array([0, 1, 0, 1]), groups, seed=0).sizes.tolist()
    [1, 1, 2]
    """

    def _owners(self, labels: Integers, groups: Sequence[Holding], clients: int, rng: np.random.Generator) -> Integers:
        owners = np.empty(len(labels), np.int64)
        starts = np.cumsum([0, *(group.count for group in groups)])
        for together, held in _held_together(labels, groups).items():
            # Dealt over several labels in one go, so that the remainders of each do not all go to the first clients.
            mine = by_label(labels, rng, np.flatnonzero(np.isin(labels, held)))
            who = np.concatenate([np.arange(starts[group], starts[group + 1]) for group in together])
            owners[mine] = who[np.arange(len(mine)) % len(who)]
        return owners


@dataclass(frozen=True, slots=True)
class Iid(Partition):
    """``iid``: each client gets a random sample, all of the same size to within one example.

    >>> sorted(Iid().share(np.zeros(5, np.int64), [Holding("all", 2)], seed=0).sizes.tolist())
    [2, 3]
    """

    def _owners(self, labels: Integers, groups: Sequence[Holding], clients: int, rng: np.random.Generator) -> Integers:
        return rng.permutation(len(labels)) % clients


@dataclass(frozen=True, slots=True)
class _Skewed(Partition):
    """Base of partitions drawn from a Dirichlet distribution: a small alpha gives most examples to few clients."""

    alpha: float

    def __post_init__(self) -> None:
        """Refuses an alpha that is not positive."""
        object.__setattr__(self, "alpha", number(self.alpha, f"alpha of {self._name()}", positive=True))


@dataclass(frozen=True, slots=True)
class Dirichlet(_Skewed):
    """``dirichlet(alpha)``: per label, the clients' shares are drawn from a Dirichlet distribution.

    With a small alpha, most examples of a label belong to few clients. A client that got nothing gets an example from a
    client that has several (Hsu, Qi & Brown, 2019; Yurochkin et al., 2019).

    >>> Dirichlet(0.1).share(np.arange(100) % 10, [Holding("all", 4)], seed=0).sizes.sum()
    np.int64(100)
    """

    def _owners(self, labels: Integers, groups: Sequence[Holding], clients: int, rng: np.random.Generator) -> Integers:
        owners = np.empty(len(labels), np.int64)
        order = by_label(labels, rng)
        for examples in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
            owners[examples] = uneven(len(examples), clients, self.alpha, rng)
        return filled(owners, clients, rng)


@dataclass(frozen=True, slots=True)
class Quantity(_Skewed):
    """``quantity(alpha)``: labels as in ``iid``, but the sizes of the shares are drawn from a Dirichlet distribution.
    With a small alpha, the sizes differ more.

    >>> Quantity(0.5).share(np.zeros(100, np.int64), [Holding("all", 4)], seed=0).sizes.min() >= 1
    np.True_
    """

    def _owners(self, labels: Integers, groups: Sequence[Holding], clients: int, rng: np.random.Generator) -> Integers:
        owners = rng.permutation(uneven(len(labels), clients, self.alpha, rng))
        return filled(owners, clients, rng)


@dataclass(frozen=True, slots=True)
class Shards(Partition):
    """``shards(count)``: the data is sorted by label and cut into equal shards; each client gets ``count`` of them.
    McMahan et al. (2017) use ``shards(2)``.

    >>> labels = np.arange(100) % 10
    >>> int((Shards(2).share(labels, [Holding("all", 5)], seed=0).counts(labels, 10) > 0).sum(axis=1).max())
    2
    """

    count: int

    def __post_init__(self) -> None:
        """Refuses a number of shards below 1."""
        whole(self.count, "count of shards", 1)

    def _owners(self, labels: Integers, groups: Sequence[Holding], clients: int, rng: np.random.Generator) -> Integers:
        most = len(labels) // clients
        if self.count > most:
            raise InputError(
                f"{self} needs {clients * self.count} examples for {clients} clients, but there are {len(labels)}: "
                f"use at most shards({most})"
            )
        shards = clients * self.count
        return cut(by_label(labels, rng), rng.permutation(shards) // self.count)


@dataclass(frozen=True, slots=True)
class Sorted(Partition):
    """``sorted``: the data is sorted by label and cut into equal pieces, the first for the first client.

    >>> Sorted().share(np.array([1, 0, 1, 0]), [Holding("all", 2)], seed=0).of(0).tolist()
    [1, 3]
    """

    def _owners(self, labels: Integers, groups: Sequence[Holding], clients: int, rng: np.random.Generator) -> Integers:
        return cut(by_label(labels, rng), np.arange(clients))


@dataclass(frozen=True, slots=True)
class OneClass(Partition):
    """``one_class``: each client holds a single label; frequent labels go to more clients.

    >>> labels = np.array([0, 0, 0, 0, 1, 1])
    >>> np.sort(OneClass().share(labels, [Holding("all", 3)], seed=0).sizes).tolist()
    [2, 2, 2]
    """

    def _owners(self, labels: Integers, groups: Sequence[Holding], clients: int, rng: np.random.Generator) -> Integers:
        order = by_label(labels, rng)
        counts = np.unique_counts(labels).counts
        if clients < len(counts):
            raise InputError(
                f"one_class gives each client one label, so {clients} clients cannot hold {len(counts)} labels: "
                f"use at least {len(counts)} clients, or another partition"
            )
        # One client per label, the others by frequency; no label gets more clients than it has examples.
        holders = 1 + apportion(clients - len(counts), counts - 1)
        first = np.repeat(np.cumsum(holders) - holders, counts)
        place = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
        owners = np.empty(len(labels), np.int64)
        owners[order] = rng.permutation(clients)[first + place % np.repeat(holders, counts)]
        return owners

    def _name(self) -> str:
        return "one_class"


@dataclass(frozen=True, slots=True)
class RemoveLabels(Partition):
    """``remove_labels(count)``: each client lacks ``count`` random labels and holds equal parts of the others.

    >>> labels = np.arange(100) % 10
    >>> int((RemoveLabels(3).share(labels, [Holding("all", 5)], seed=0).counts(labels, 10) > 0).sum(axis=1).max())
    7
    """

    count: int

    def __post_init__(self) -> None:
        """Refuses a number of labels below 0."""
        whole(self.count, "count of remove_labels", 0)

    def _owners(self, labels: Integers, groups: Sequence[Holding], clients: int, rng: np.random.Generator) -> Integers:
        values, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
        held = held_at_random(clients, len(values), self.count, rng)
        owners, last = np.empty(len(labels), np.int64), -1
        for examples, holders in zip(np.split(by_label(codes, rng), np.cumsum(counts)[:-1]), held.T, strict=True):
            # Each label is dealt from where the last one ended: otherwise the first clients would get most.
            who = np.flatnonzero(holders)
            start = np.searchsorted(who, last, side="right")
            owners[examples] = who[(start + np.arange(len(examples))) % len(who)]
            last = owners[examples[-1]]
        # The last round does not reach all clients, so their order is drawn. A client with a single example lacks every
        # label but one, so a client without examples may get any label.
        return filled(rng.permutation(clients)[owners], clients, rng)

    def _name(self) -> str:
        return "remove_labels"


PARTITIONS: Mapping[str, Callable[..., Partition]] = {
    "labels": Labels,
    "iid": Iid,
    "dirichlet": Dirichlet,
    "shards": Shards,
    "one_class": OneClass,
    "sorted": Sorted,
    "remove_labels": RemoveLabels,
    "quantity": Quantity,
    "natural": Natural,
    "file": File,
}


def parse(text: str | Partition) -> Partition:
    """The partition that a text describes; a partition is returned as it is.

    >>> parse("dirichlet(0.5)"), str(parse("shards(2)")), str(parse("file(map.csv)"))
    (Dirichlet(alpha=0.5), 'shards(2)', "file('map.csv')")
    >>> parse("dirichlet")
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: dirichlet does not fit (missing a required argument: 'alpha'); write dirichlet(alpha)
    """
    if isinstance(text, Partition):
        return text
    # A file name may stand without quotes, which no other argument is.
    quoted = re.sub(r"^\s*file\(\s*([^'\"()]+?)\s*\)\s*$", lambda found: f"file({found[1]!r})", text)
    call = read(quoted, "partition", "dirichlet(0.5)")
    if not isinstance(call, Call):
        raise InputError(f"the partition {text!r} cannot be read; write for example dirichlet(0.5)")
    return build(call, PARTITIONS, "partition", nested=str)


def _held_together(labels: Integers, groups: Sequence[Holding]) -> dict[tuple[int, ...], list[int]]:
    """The labels that the same groups hold, by the numbers of these groups."""
    holders: dict[int, list[int]] = {int(label): [] for label in np.unique(labels)}
    for place, group in enumerate(groups):
        if not group.labels:
            raise InputError(
                f"group {group.name!r} names no labels, but the partition 'labels' needs them: "
                "write for example labels = [0, 1], or use another partition, such as iid"
            )
        if strange := sorted(set(group.labels) - set(holders)):
            raise InputError(f"group {group.name!r} holds label {strange[0]}, but the labels are {_listed(holders)}")
        for label in set(group.labels):
            holders[label].append(place)
    if missing := [label for label, held in holders.items() if not held]:
        raise InputError(
            f"no group holds label {_listed(missing)}: the partition 'labels' needs a group for every label"
        )
    together: dict[tuple[int, ...], list[int]] = {}
    for label, held in holders.items():
        together.setdefault(tuple(held), []).append(label)
    return together


def _listed(labels: Iterable[int]) -> str:
    return ", ".join(map(str, labels))
