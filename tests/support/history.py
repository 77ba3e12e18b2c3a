"""What a server should know about its clients, counted by the definition."""

from copy import copy
from math import nan

import numpy as np

from fairlag.core.ledger import Ledger
from fairlag.core.types import Dispatch, Integers, Report
from fairlag.core.vector import Vector


class History:
    """What a server should know about its clients, counted by the definition."""

    def __init__(self, clients: int, examples: Integers | None = None) -> None:
        self.first = [1] * clients if examples is None else examples.tolist()
        self.examples, self.position = [0] * clients, [0] * clients
        self.busy, self.loss = [0.0] * clients, [0.0] * clients
        self.since, self.arrival = [nan] * clients, [nan] * clients
        self.received = 0
        self.late: list[tuple[int, ...]] = [()] * clients
        self.waiting: dict[int, tuple[Vector, Report, float]] = {}
        """Per task in the buffer: a copy of its update, its report, and when it arrived."""

    def __copy__(self) -> "History":
        made = History(0)
        vars(made).update({name: copy(each) for name, each in vars(self).items()})
        return made

    def admitted(self, task: Dispatch, update: Vector, report: Report, time: float) -> None:
        self.waiting[task.task] = update, report, time
        self.examples[task.client], self.loss[task.client] = report.examples, report.loss
        self.arrival[task.client] = time

    def merged(self, task: Dispatch, late: int) -> tuple[Vector, Report]:
        client = task.client
        update, report, time = self.waiting.pop(task.task)
        self.received += 1
        self.position[client] = self.received
        self.busy[client] += time - task.time
        self.late[client] = (*self.late[client], late)
        return update, report

    def agrees(self, ledger: Ledger) -> None:
        for columns, names in (
            (ledger.integers, ("examples", "position")),
            (ledger.reals, ("busy", "since", "arrival", "loss")),
        ):
            for name in names:
                known = getattr(self, name)[: ledger.rows]
                found = columns[name][: ledger.rows]
                assert np.array_equal(found, known, equal_nan=name in ("since", "arrival")), f"{name}: {found}, {known}"
