"""The updates that one aggregation merges, as rules see them: sender, staleness, reports and values."""

from collections.abc import Sequence

import numpy as np

from fairlag.core.types import Dispatch, Floats, Integers, Report
from fairlag.core.vector import Matrix
from fairlag.errors import StrategyError


class Buffer:
    """The updates about to be merged, in order of arrival.

    Every rule may read the metadata: `len(buffer)`, `buffer.clients`, `buffer.staleness`, and what each sender reports
    (`buffer.examples`, …). `buffer.updates`, one row per update, is for rules that are declared to read single
    updates, and only while they run.

    >>> tasks = (Dispatch(task=0, client=4, version=2, ordinal=0, time=0.0),)
    >>> buffer = Buffer(tasks, [3], [Report(examples=60)])
    >>> len(buffer), buffer.clients.tolist(), buffer.staleness.tolist(), buffer.examples.tolist()
    (1, [4], [3], [60])
    """

    __slots__ = ("_clients", "_drafted", "_reports", "_rows", "_staleness", "tasks")

    def __init__(
        self,
        tasks: tuple[Dispatch, ...],
        staleness: list[int],
        reports: list[Report],
        rows: Matrix | None = None,
        drafted: Sequence[bool] | None = None,
    ) -> None:
        """Per update: its task, its staleness, its sender's report. The first rows of `rows` hold the updates."""
        self.tasks = tasks
        self._drafted = drafted
        self._staleness = staleness
        self._reports = reports
        self._rows = rows
        self._clients: Integers | None = None

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def metadata(self) -> "Buffer":
        """The same buffer without the updates themselves."""
        return Buffer(self.tasks, self._staleness, self._reports, None, self._drafted)

    @property
    def clients(self) -> Integers:
        """The sender of each update."""
        if self._clients is None:
            self._clients = np.array([task[1] for task in self.tasks])
            self._clients.setflags(write=False)
        return self._clients

    @property
    def drafted(self) -> Sequence[bool]:
        """Per update: does selection count it in this version? The others arrived but were not picked."""
        return [True] * len(self.tasks) if self._drafted is None else self._drafted

    @property
    def staleness(self) -> Integers:
        """How many versions late each update is, from the server's own records."""
        return np.array(self._staleness)

    @property
    def examples(self) -> Integers:
        """How many training examples are behind each update, as reported by its sender."""
        return np.array([report[0] for report in self._reports])

    @property
    def steps(self) -> Integers:
        """How many local steps are behind each update, as reported by its sender."""
        return np.array([report[1] for report in self._reports])

    @property
    def efforts(self) -> Floats:
        """How often gradients count in each update, as its sender reports: its steps, or more with local momentum."""
        return np.array([report[2] for report in self._reports])

    @property
    def losses(self) -> Floats:
        """The loss that each sender reports; 0 unless the strategy asks for one."""
        return np.array([report[3] for report in self._reports])

    @property
    def updates(self) -> Matrix:
        """The updates themselves, one row each, read-only, without the statistics of the model."""
        if self._rows is None:
            raise StrategyError(
                "a rule read buffer.updates but is not declared to: decorate it with @fairlag.rules.reads_updates"
            )
        updates = self._rows[: len(self.tasks)]
        updates.setflags(write=False)
        return updates
