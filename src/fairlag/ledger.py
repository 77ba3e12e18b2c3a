"""Every client's history as arrays, written by the server alone; what rules may see of it is in view.py."""

from collections.abc import Iterator
from typing import cast

import numpy as np

from fairlag.state import State, copy_into, rows, table, take
from fairlag.types import Dispatch, Floats, Integers, quick

_INTEGERS = {
    "task": -1,  # the last task it was given
    "present": -1,  # 1 if it is there now, 0 if it was, -1 if it was never seen
    "dispatched": 0,  # tasks it was ever given
    "contributed": -1,  # the version that its last admitted update was trained from
    "examples": 0,  # training examples behind its last admitted update
    "updates": 0,  # its updates that were aggregated
    "staleness": 0,  # the sum of their staleness
    "position": 0,  # which of all the updates that the server ever merged its last one was, counted from 1
}
_REALS = {
    "mean": 0.0,  # the mean staleness of its aggregated updates: kept ready, as it is read at every aggregation
    "weight": 0.0,  # the sum of the weights that its updates got
    "busy": 0.0,  # total duration of its tasks whose updates were aggregated
    "since": np.nan,  # when it was first given a task
    "arrival": np.nan,  # when its last admitted update came in
}

_BATCH = 256

_SCALARS = {
    "time": float,
    "version": int,
    "renewed": float,
    "clients": int,
    "rows": int,
    "received": int,
    "target": int,
    "until": float,
}
_TASK = Dispatch.__annotations__


class Ledger:
    """The history of all clients, one array a fact, one row a client, growing as clients become known.

    Single entries go through memoryviews of the arrays: that is three times as fast as indexing the arrays.
    """

    # Slots, because Python looks up the attributes of an object with more than 30 of them three times as slowly.
    __slots__ = (
        "_arrival",
        "_arrivals",
        "_busy",
        "_counts",
        "_credited",
        "_credits",
        "_dispatched",
        "_examples",
        "_mean",
        "_position",
        "_since",
        "_staleness",
        "_updates",
        "buffer",
        "capacity",
        "clients",
        "contributed",
        "integers",
        "present",
        "reals",
        "received",
        "recent",
        "renewed",
        "rows",
        "running",
        "target",
        "task",
        "time",
        "until",
        "version",
        "woke",
    )

    def __init__(self, *, clients: int = 0, window: int = 0) -> None:
        """Room for a number of clients (more may come) and for the last `window` staleness samples of each."""
        self.time = 0.0
        self.version = 0
        self.renewed = 0.0
        self.running: dict[int, Dispatch] = {}
        self.buffer: list[Dispatch] = []
        self._counts: list[int] = []
        self._arrivals: list[float] = []
        self._credited: list[Integers] = []
        self._credits: list[Floats] = []
        self.clients = 0
        self.rows = clients
        self.received = 0
        self.woke = False
        self.target = 0
        self.until = np.inf
        self.capacity = 0
        self.integers: dict[str, Integers] = {name: np.empty(0, np.int64) for name in _INTEGERS}
        self.reals: dict[str, Floats] = {name: np.empty(0) for name in _REALS}
        self.recent: Integers = np.empty((0, window), np.int64)
        self._grow(max(clients, 1))

    def _grow(self, capacity: int) -> None:
        more = capacity - self.capacity
        for name, nothing in _INTEGERS.items():
            self.integers[name] = np.concatenate([self.integers[name], np.full(more, nothing, np.int64)])
        for name, unknown in _REALS.items():
            self.reals[name] = np.concatenate([self.reals[name], np.full(more, unknown)])
        self.recent = np.concatenate([self.recent, np.zeros((more, self.recent.shape[1]), np.int64)])
        self.capacity = capacity
        whole = {name: array.data for name, array in self.integers.items()}
        real = {name: cast("memoryview[float]", array.data) for name, array in self.reals.items()}
        self.task, self.present, self.contributed = whole["task"], whole["present"], whole["contributed"]
        self._dispatched, self._examples = whole["dispatched"], whole["examples"]
        self._updates, self._staleness, self._position = whole["updates"], whole["staleness"], whole["position"]
        self._busy, self._mean = real["busy"], real["mean"]
        self._since, self._arrival = real["since"], real["arrival"]

    def join(self, client: int) -> None:
        """The client is there; one that was never seen gets an empty row."""
        if client >= self.capacity:
            self._grow(max(2 * self.capacity, client + 1))
        self.rows = max(self.rows, client + 1)
        self.clients += self.present[client] < 0
        self.present[client] = 1

    def is_present(self, client: int) -> bool:
        """Is the client there now?"""
        return 0 <= client < self.rows and self.present[client] == 1

    def leave(self, client: int) -> Dispatch | None:
        """The client is gone; returns the task that it was running."""
        self.present[client] = 0
        return self.running.pop(self.task[client], None)

    def dispatch(self, number: int, client: int) -> Dispatch:
        """The client gets the newest version as a task of that number."""
        ordinal = self._dispatched[client]
        if not ordinal:
            self._since[client] = self.time
        self._dispatched[client] = ordinal + 1
        self.task[client] = number
        task = quick(Dispatch, (number, client, self.version, ordinal, self.time))
        self.running[number] = task
        return task

    def admit(self, task: Dispatch, examples: int) -> None:
        """An update of a task that is not running any more goes into the buffer."""
        _, client, version, _, _ = task
        time = self.time
        self.contributed[client] = version
        self._examples[client] = examples
        self._arrival[client] = time
        self.buffer.append(task)
        self._counts.append(examples)
        self._arrivals.append(time)

    def merge(self) -> tuple[tuple[Dispatch, ...], list[int], list[int], list[float]]:
        """The buffered updates become part of the next version: who they are, how stale, their examples, arrivals."""
        tasks, self.buffer = tuple(self.buffer), []
        examples, self._counts = self._counts, []
        arrivals, self._arrivals = self._arrivals, []
        version, received, window = self.version, self.received, self.recent.shape[1]
        updates, staleness, mean = self._updates, self._staleness, self._mean
        position, busy = self._position, self._busy
        lateness = []
        for (_, client, trained, _, dispatched), arrival in zip(tasks, arrivals, strict=True):
            late = version - trained
            lateness.append(late)
            received += 1
            position[client] = received
            count = updates[client]
            if window:
                self.recent[client, count % window] = late
            total = staleness[client] + late
            updates[client] = count + 1
            staleness[client] = total
            mean[client] = total / (count + 1)
            busy[client] += arrival - dispatched
        self.received = received
        return tasks, lateness, examples, arrivals

    def renew(self) -> None:
        """There is a new version, now."""
        self.version += 1
        self.renewed = self.time

    def credit(self, clients: Integers, weights: Floats) -> None:
        """What each update weighed goes to its client's account; booked in batches, in the order of arrival."""
        self._credited.append(clients)
        self._credits.append(weights)
        if len(self._credited) >= _BATCH:
            self.book()

    def book(self) -> None:
        """Books what is credited but not yet booked."""
        if self._credited:
            np.add.at(self.reals["weight"], np.concatenate(self._credited), np.concatenate(self._credits))
            self._credited.clear()
            self._credits.clear()

    def state(self) -> State:
        """All of it; rows that no client has had yet are left out."""
        self.book()
        return {
            **{name: getattr(self, name) for name in _SCALARS},
            "columns": {name: column[: self.rows].copy() for name, column in (self.integers | self.reals).items()},
            "recent": self.recent[: self.rows].copy(),
            "running": table(self.running.values(), **_TASK),
            "buffer": table(self.buffer, **_TASK),
            "buffered": table(list(zip(self._counts, self._arrivals, strict=True)), examples=int, arrival=float),
        }

    def restore(self, state: State) -> None:
        """Becomes the ledger that was saved."""
        for name, kind in _SCALARS.items():
            setattr(self, name, take(state, name, kind))
        if self.rows > self.capacity:
            self._grow(self.rows)
        columns = take(state, "columns", dict)
        for name, column in (self.integers | self.reals).items():
            copy_into(column[: self.rows], columns, name)
        copy_into(self.recent[: self.rows], state, "recent")
        self.running.clear()
        self.running.update((task.task, task) for task in _tasks(state, "running"))
        self.buffer = list(_tasks(state, "buffer"))
        buffered = list(rows(take(state, "buffered", dict), "examples", "arrival"))
        self._counts = [examples for examples, _ in buffered]
        self._arrivals = [arrival for _, arrival in buffered]


def _tasks(state: State, name: str) -> Iterator[Dispatch]:
    return (quick(Dispatch, row) for row in rows(take(state, name, dict), *_TASK))
