"""What is counted during a trial: updates, the time that clients spend, and the influence so far."""

from collections.abc import Sequence

import numpy as np

from fairlag.core.accounts import Entitlement
from fairlag.core.types import Aggregation, Floats, Integers, Outcome, Presence, Row
from fairlag.fleet.clients import Fleet
from fairlag.lab.attendance import Attendance

_ROWS = 4096
"""The number of versions that are counted together."""


class Tally:
    """Counts of one trial. Memory does not grow with the trial, apart from one row per mark."""

    def __init__(self, fleet: Fleet, client: int, terms: Entitlement | None, *, squares: bool = False) -> None:
        """Marks follow the influence of `client` and of all groups; `terms` say which clients are entitled.

        With `squares`, rows also count for `squares`.
        """
        self._fleet, self._client, self._squares = fleet, client, squares
        self.histogram: list[Integers] = [np.zeros(0, np.int64) for _ in fleet.groups]
        self.lightest, self.heaviest = np.inf, -np.inf
        self.busy = 0.0
        """Seconds of work in updates that were merged."""
        self.wasted = 0.0
        """Seconds of work in tasks that ended without being merged."""
        self.unmerged: Integers = np.zeros(fleet.clients, np.int64)
        self.refused: Integers = np.zeros(fleet.clients, np.int64)
        self.attendance = _attendance(fleet, terms)
        self.squares: Floats = np.zeros(fleet.clients)
        """Per client: the square of its weight in a version, summed over versions."""
        self._marks: list[Floats] = []
        self._waiting: list[Aggregation] = []

    def add(self, row: Row) -> None:
        """Counts a row that the server recorded."""
        if isinstance(row, Aggregation):
            self._waiting.append(row)
            if len(self._waiting) >= _ROWS:
                self.flush()
            return
        if isinstance(row, Presence):
            self.attendance.add(row)
            return
        self.wasted += row.time - row.task.time
        self.unmerged[row.task.client] += 1
        self.refused[row.task.client] += row.outcome == Outcome.REFUSED

    def flush(self) -> None:
        """Counts the versions that wait to be counted together."""
        rows, self._waiting = self._waiting, []
        if rows:
            tasks = [task for row in rows for task in row.tasks]
            senders, weights = (
                np.array([task.client for task in tasks], np.int64),
                np.concatenate([row.weights for row in rows]),
            )
            self.count(senders, np.concatenate([row.staleness for row in rows]), weights)
            if self._squares:
                self.square(np.repeat(np.arange(len(rows)), [len(row.tasks) for row in rows]), senders, weights)
            arrivals = np.concatenate([np.asarray(row.arrivals) for row in rows])
            self.work(arrivals - np.array([task.time for task in tasks]))

    def count(self, senders: Integers, staleness: Integers, weights: Floats) -> None:
        """Counts merged updates."""
        groups = self._fleet.group_of[senders]
        for group, before in enumerate(self.histogram):
            self.histogram[group] = added([before, np.bincount(staleness[groups == group])])
        self.lightest = min(self.lightest, float(weights.min(initial=np.inf)))
        self.heaviest = max(self.heaviest, float(weights.max(initial=-np.inf)))

    def square(self, versions: Integers, senders: Integers, weights: Floats) -> None:
        """Counts merged updates for `squares`; all updates of a version must be given together."""
        clients = self._fleet.clients
        pairs, where = np.unique(versions * clients + senders, return_inverse=True)
        self.squares += np.bincount(pairs % clients, np.bincount(where, weights) ** 2, clients)

    def work(self, seconds: Floats) -> None:
        """Adds the durations of merged tasks one by one, so that the sum does not depend on how they are batched."""
        self.busy = float(np.cumsum(np.concatenate([[self.busy], seconds]))[-1])

    def mark(self, time: float, influence: Floats, updates: Integers) -> None:
        """Notes the influence of each group, and of the client, until now."""
        groups = np.bincount(self._fleet.group_of, influence, minlength=len(self._fleet.groups))
        self._marks.append(np.array([time, influence[self._client], updates[self._client], *groups]))

    @property
    def marks(self) -> Floats:
        """One row per mark: the time, the client's weight and updates so far, and the weight of each group so far."""
        return np.array(self._marks).reshape(len(self._marks), 3 + len(self._fleet.groups))


def _attendance(fleet: Fleet, terms: Entitlement | None) -> Attendance:
    """The attendance of a trial. Nothing is trained, so all clients count as having equally many examples."""
    if terms is None:
        return Attendance(fleet.clients)
    importance = np.array([terms.of_group(group.name) for group in fleet.groups])[fleet.group_of]
    return Attendance(fleet.clients, importance, known=terms.entitled == "known")


def added(histograms: Sequence[Integers]) -> Integers:
    """The sum of histograms of any length.

    >>> added([np.array([1, 2]), np.array([1, 0, 5])]).tolist()
    [2, 2, 5]
    """
    total = np.zeros(max(map(len, histograms)), np.int64)
    for histogram in histograms:
        total[: len(histogram)] += histogram
    return total
