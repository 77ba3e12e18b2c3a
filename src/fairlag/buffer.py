"""The updates that one aggregation merges, as rules see them: who sent each, how stale it is, what it holds."""

import numpy as np

from fairlag.errors import StrategyError
from fairlag.types import Dispatch, Integers
from fairlag.vector import Matrix


class Buffer:
    """The updates about to be merged, in the order of their arrival.

    `len(buffer)`, `buffer.clients`, `buffer.staleness` and `buffer.examples` are metadata that every rule may read;
    `buffer.updates`, one row an update, only a rule that is declared to read single updates, and only while it runs.

    >>> tasks = (Dispatch(task=0, client=4, version=2, ordinal=0, time=0.0),)
    >>> buffer = Buffer(tasks, [3], [60])
    >>> len(buffer), buffer.clients.tolist(), buffer.staleness.tolist(), buffer.examples.tolist()
    (1, [4], [3], [60])
    """

    __slots__ = ("_clients", "_examples", "_rows", "_staleness", "tasks")

    def __init__(
        self, tasks: tuple[Dispatch, ...], staleness: list[int], examples: list[int], rows: Matrix | None = None
    ) -> None:
        """The tasks of the updates, how late and from how many examples each is; the first rows are the updates."""
        self.tasks = tasks
        self._staleness = staleness
        self._examples = examples
        self._rows = rows
        self._clients: Integers | None = None

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def clients(self) -> Integers:
        """The sender of each update."""
        if self._clients is None:
            self._clients = np.array([task[1] for task in self.tasks])
            self._clients.flags.writeable = False
        return self._clients

    @property
    def staleness(self) -> Integers:
        """How many versions late each update is, by the server's record."""
        return np.array(self._staleness)

    @property
    def examples(self) -> Integers:
        """How many training examples are behind each update, as its sender says."""
        return np.array(self._examples)

    @property
    def updates(self) -> Matrix:
        """The updates themselves, one row each, read-only."""
        if self._rows is None:
            raise StrategyError(
                "a rule read buffer.updates but is not declared to: decorate it with @fairlag.rules.reads_updates"
            )
        updates = self._rows[: len(self.tasks)]
        updates.flags.writeable = False
        return updates
