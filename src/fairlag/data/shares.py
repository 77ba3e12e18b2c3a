"""Which client holds which example: client groups that need data, and the shares that they got."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlag.core.types import Integers
from fairlag.data.whole import whole
from fairlag.errors import InputError


@dataclass(frozen=True, slots=True)
class Holding:
    """A group of clients that needs data; only the partition ``labels`` uses its labels.

    >>> Holding("slow", 5, (0, 1, 2, 3)).count
    5
    """

    name: str
    count: int
    labels: tuple[int, ...] | None = None
    names: tuple[str, ...] | None = None
    """Which clients of the data they are, for the partition `natural`; None for any."""

    def __post_init__(self) -> None:
        """Refuses a group without clients."""
        whole(self.count, f"the number of clients of group {self.name!r}", 1)


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """Every training example at one client at most: client c holds ``order[bounds[c]:bounds[c + 1]]``.

    >>> shares = Shares.from_owners(np.array([1, 0, 1]), 2)
    >>> shares.of(1).tolist(), shares.sizes.tolist()
    ([0, 2], [1, 2])
    >>> shares.counts(np.array([0, 0, 1]), 2).tolist()
    [[1, 0], [1, 1]]
    """

    order: Integers
    bounds: Integers

    @classmethod
    def from_owners(cls, owners: Integers, clients: int) -> "Shares":
        """The shares in which example i belongs to client ``owners[i]``, or to none if that is −1; a client's examples
        are ascending.
        """
        bounds = np.concatenate(([0], np.cumsum(np.bincount(owners[owners >= 0], minlength=clients))))
        order = np.argsort(owners, kind="stable")[len(owners) - bounds[-1] :]
        order.flags.writeable = bounds.flags.writeable = False
        return cls(order, bounds)

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.bounds) - 1

    @property
    def sizes(self) -> Integers:
        """How many examples each client holds."""
        return np.diff(self.bounds)

    def of(self, client: int) -> Integers:
        """The examples of one client, as positions among the training examples."""
        if not 0 <= client < self.clients:
            raise InputError(f"there is no client {client}; clients are numbered 0 to {self.clients - 1}")
        return self.order[self.bounds[client] : self.bounds[client + 1]]

    def counts(self, labels: Integers, classes: int, clients: range | None = None) -> Integers:
        """How many examples of each class (column) each client (row) holds; all clients unless a range is given."""
        clients = range(self.clients) if clients is None else clients
        return self._table(labels, classes, self.bounds[clients.start : clients.stop + 1])

    def group_counts(self, labels: Integers, classes: int, groups: Sequence[Holding]) -> Integers:
        """How many examples of each class (column) each group of clients (row) holds."""
        edges = np.cumsum([0, *(group.count for group in groups)])
        return self._table(labels, classes, self.bounds[edges])

    def _table(self, labels: Integers, classes: int, bounds: Integers) -> Integers:
        """One row per pair of neighbouring bounds."""
        rows = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        cells = rows * classes + labels[self.order[bounds[0] : bounds[-1]]]
        return np.bincount(cells, minlength=(len(bounds) - 1) * classes).reshape(-1, classes)


def check_all_hold(shares: Shares, groups: Sequence[Holding]) -> None:
    """Refuses shares in which a client has no example, because it could not train.

    >>> check_all_hold(Shares.from_owners(np.array([0, 2, 2]), 3), [Holding("fast", 1), Holding("slow", 2)])
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: group 'slow' has 1 client without an example (of 2): give the group more labels or \
fewer clients
    """
    empty, start = shares.sizes == 0, 0
    for group in groups:
        if count := int(np.count_nonzero(empty[start : start + group.count])):
            clients = f"{count} client{'s' if count > 1 else ''} without an example (of {group.count})"
            raise InputError(f"group {group.name!r} has {clients}: give the group more labels or fewer clients")
        start += group.count
