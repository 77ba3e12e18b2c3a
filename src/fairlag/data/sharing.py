"""The base of partitions: what each of them does, however it finds the owner of an example."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlag.core import seeds
from fairlag.core.types import Integers
from fairlag.data.dataset import Dataset
from fairlag.data.shares import Holding, Shares, check_all_hold
from fairlag.errors import InputError
from fairlag.text.calls import Written


@dataclass(frozen=True, slots=True)
class Partition(Written, ABC):
    """A way to partition training examples; ``str`` gives the text that :func:`parse` reads."""

    def share(self, labels: Integers, groups: Sequence[Holding], seed: int) -> Shares:
        """Assigns the examples with these labels to clients; clients are numbered group by group.

        >>> from fairlag.data.partition import parse
        >>> parse("sorted").share(np.array([1, 0, 1, 0]), [Holding("all", 2)], seed=0).of(1).tolist()
        [0, 2]
        """
        clients = sum(group.count for group in groups)
        if not 0 < clients <= len(labels):
            raise InputError(
                f"{len(labels)} training examples cannot be shared among {clients} clients: "
                "there must be at least one client, and at least one example per client"
            )
        rng = np.random.default_rng(seeds.key(seed, "partition"))
        shares = Shares.from_owners(self._owners(labels, groups, clients, rng), clients)
        check_all_hold(shares, groups)
        return shares

    def bound(self, data: Dataset, train: Integers) -> "Partition":
        """The same partition for these examples of a data set: only those by owner depend on the data set."""
        return self

    @abstractmethod
    def _owners(self, labels: Integers, groups: Sequence[Holding], clients: int, rng: np.random.Generator) -> Integers:
        """The client of each example."""
