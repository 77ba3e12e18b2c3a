"""Every client's history as arrays. Only the server writes them; view.py is what rules may read."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

import numpy as np

from fairlag.core import columns
from fairlag.core.accounts import Accounts, Entitlement
from fairlag.core.awaited import Awaited
from fairlag.core.durations import SlowestTask, mean_duration
from fairlag.core.intervals import Intervals
from fairlag.core.rounds import NoRound, Round
from fairlag.core.state import State, copy_into, rows, table, take
from fairlag.core.types import Dispatch, Floats, Integers, Parts, Report, record_of

_BATCH = 256

_SCALARS = {
    "time": float,
    "version": int,
    "renewed": float,
    "clients": int,
    "there": int,
    "rows": int,
    "received": int,
    "examples": int,
    "rate": float,
    "acted": float,
}
_TASK = Dispatch.__annotations__
_REPORT = Report.__annotations__

Value = TypeVar("Value")


class Ledger:
    """The history of all clients: one column per fact, one row per client. It grows as clients join.

    The columns share one block of memory, so a client's row lies together. Single entries are read and written
    through memoryviews of the columns: three times as fast as indexing arrays.
    """

    # Slots, because Python looks up the attributes of an object with more than 30 of them three times as slowly.
    __slots__ = (
        "_arrival",
        "_arrivals",
        "_block",
        "_busy",
        "_credited",
        "_credits",
        "_dispatched",
        "_examples",
        "_importance",
        "_initial_examples",
        "_loss",
        "_mean",
        "_position",
        "_reports",
        "_since",
        "_slowest",
        "_staleness",
        "_updates",
        "accounts",
        "acted",
        "awaited",
        "buffer",
        "capacity",
        "clients",
        "contributed",
        "examples",
        "integers",
        "intervals",
        "present",
        "profiles",
        "rate",
        "reals",
        "received",
        "recent",
        "renewed",
        "round",
        "rows",
        "running",
        "task",
        "there",
        "time",
        "unseen",
        "version",
        "woke",
    )

    def __init__(
        self,
        *,
        clients: int = 0,
        window: int = 0,
        profiles: bool = False,
        awaits: bool = False,
        unseen: float = 0.0,
        examples: Integers | None = None,
        account: Entitlement | None = None,
        group_of: Callable[[int], str] | None = None,
        longest: int = 0,
    ) -> None:
        """A ledger for a number of clients (more may join), with the last `window` staleness samples of each.

        With `profiles` it keeps the sum of all rates and the slowest running client up to date; a client without
        updates counts as `unseen` seconds. `examples` is the initial number of training examples per client; without
        it, each client counts as one. With `account` every client has an account on these terms; `group_of` names a
        client's group, for terms that differ by group. With `awaits` it counts the present clients without an update
        in the buffer. With `longest` it keeps the intervals between the versions that a client takes part in, none
        longer than this.
        """
        self.time = 0.0
        self.version = 0
        self.renewed = 0.0
        self.running: dict[int, Dispatch] = {}
        self.buffer: list[Dispatch] = []
        self._reports: list[Report] = []
        self._arrivals: list[float] = []
        self._credited: list[Integers] = []
        self._credits: list[Floats] = []
        self.clients = 0
        self.there = 0
        self.rows = clients
        self.received = 0
        self.examples = 0
        self.rate = 0.0
        self.acted = 0.0
        self.woke = False
        self.round: Round = NoRound()
        self.profiles = profiles
        self.unseen = unseen
        self._slowest = SlowestTask(self.running, self._awaited)
        self.awaited = Awaited() if awaits else None
        self._initial_examples = examples
        self.accounts = None if account is None else Accounts(account, clients)
        self.intervals = Intervals(longest) if longest else None
        self._importance = _importance(account, self, group_of)
        self.capacity = 0
        self._block = columns.blank(0)
        self.recent: Integers = np.empty((0, window), np.int64)
        self._grow(max(clients, 1))

    def _grow(self, capacity: int) -> None:
        more, block = capacity - self.capacity, columns.blank(capacity)
        block[: self.capacity] = self._block
        self._block = block
        self.integers, self.reals = columns.integers(block), columns.reals(block)
        self.recent = np.concatenate([self.recent, np.zeros((more, self.recent.shape[1]), np.int64)])
        self.capacity = capacity
        whole = {name: array.data for name, array in self.integers.items()}
        real = {name: cast("memoryview[float]", array.data) for name, array in self.reals.items()}
        self.task, self.present, self.contributed = whole["task"], whole["present"], whole["contributed"]
        self._dispatched, self._examples = whole["dispatched"], whole["examples"]
        self._updates, self._staleness, self._position = whole["updates"], whole["staleness"], whole["position"]
        self._busy, self._mean = real["busy"], real["mean"]
        self._since, self._arrival, self._loss = real["since"], real["arrival"], real["loss"]

    def join(self, client: int) -> bool:
        """Marks the client as present, with an empty row if it is new. Returns False if it was present already."""
        if client >= self.rows:
            self.rows = client + 1
            if client >= self.capacity:
                self._grow(max(2 * self.capacity, client + 1))
        before = self.present[client]
        if before == 1:
            return False
        if before < 0:
            self.clients += 1
            initial = self._initial_examples
            self._examples[client] = 1 if initial is None or client >= len(initial) else initial.item(client)
            self.examples += self._examples[client]
            if self.intervals is not None:
                self.intervals.join(client, self.version)
        self.there += 1
        self.present[client] = 1
        if self.accounts is not None:
            self.accounts.join(client, self._importance(client))
        if self.awaited is not None:
            self.awaited.join(client)
        return True

    def is_present(self, client: int) -> bool:
        """Is the client present?"""
        return 0 <= client < self.rows and self.present[client] == 1

    def leave(self, client: int) -> Dispatch | None:
        """Marks the client as away; returns the task that it was running, if any."""
        self.present[client] = 0
        self.there -= 1
        if self.accounts is not None:
            self.accounts.leave(client)
        if self.awaited is not None:
            self.awaited.leave(client)
        return self.running.pop(self.task[client], None)

    def retire(self, client: int) -> None:
        """Marks the client as away for good: it earns nothing more, not even if all known clients are entitled."""
        self.leave(client)
        if self.accounts is not None:
            self.accounts.rate(client, 0.0)

    def dispatch(self, number: int, client: int, version: int, steps: int = 0, pace: float = 1.0) -> Dispatch:
        """Gives the client a version as task `number`."""
        ordinal = self._dispatched[client]
        if not ordinal:
            self._since[client] = self.time
        self._dispatched[client] = ordinal + 1
        self.task[client] = number
        task = record_of(Dispatch, (number, client, version, ordinal, self.time, steps, pace))
        self.running[number] = task
        if self.profiles:
            self._slowest.enter(client, number)
        return task

    def admit(self, task: Dispatch, report: Report) -> None:
        """Puts the update of a finished task into the buffer."""
        client, time, examples = task[1], self.time, report[0]
        self.contributed[client] = task[2]
        if examples != self._examples[client]:
            self.examples += examples - self._examples[client]
            self._examples[client] = examples
            if self.accounts is not None:
                self.accounts.rate(client, self._importance(client))
        if self.awaited is not None:
            self.awaited.admit(client)
        self._loss[client] = report[3]
        self._arrival[client] = time
        self.buffer.append(task)
        self._reports.append(report)
        self._arrivals.append(time)

    def merge(
        self, drafted: Sequence[bool] | None = None
    ) -> tuple[tuple[Dispatch, ...], list[int], list[Report], list[float]]:
        """Empties the buffer into the next version; returns the tasks, their staleness, reports and arrival times.

        With `drafted`, only these updates are merged, and the others stay in the buffer.
        """
        taken, self.buffer = divided(self.buffer, drafted)
        reports, self._reports = divided(self._reports, drafted)
        arrivals, self._arrivals = divided(self._arrivals, drafted)
        tasks = tuple(taken)
        version, received, window = self.version, self.received, self.recent.shape[1]
        updates, staleness, mean = self._updates, self._staleness, self._mean
        position, busy, profiles = self._position, self._busy, self.profiles
        lateness = []
        for (_, client, trained, _, dispatched, _, _), arrival in zip(tasks, arrivals, strict=True):
            late = version - trained
            lateness.append(late)
            received += 1
            position[client] = received
            count = updates[client]
            if window:
                self.recent[client, count % window] = late
            total = staleness[client] + late
            staleness[client] = total
            mean[client] = total / (count + 1)
            if profiles:
                self.rate -= 1 / self.usual(client) if count else 0
            busy[client] += arrival - dispatched
            updates[client] = count + 1
            if profiles:
                self.rate += 1 / self.usual(client)
                if self.task[client] in self.running:  # it has started another task meanwhile
                    self._slowest.enter(client, self.task[client])
        self.received = received
        if self.accounts is not None:
            self.accounts.earn([task[1] for task in tasks])
        if self.awaited is not None:
            self.awaited.merge([task[1] for task in tasks])
        if self.intervals is not None:
            self.intervals.merge(version, [task[1] for task in tasks])
        return tasks, lateness, reports, arrivals

    def usual(self, client: int) -> float:
        """The mean duration of a client's tasks so far: 0 without tasks, otherwise at least `INSTANT`."""
        return mean_duration(self._busy[client], self._updates[client])

    def slowest(self) -> float:
        """The longest mean duration among the running clients; `unseen` for those without updates."""
        return self._slowest.duration()

    def _awaited(self, client: int) -> float:
        """The expected duration of the client's tasks."""
        return self.usual(client) if self._updates[client] else self.unseen

    def renew(self) -> None:
        """Starts a new version at the current time."""
        self.version += 1
        self.renewed = self.time

    def credit(self, clients: Integers, weights: Floats) -> None:
        """Adds each update's weight to its client's influence; summed in batches, in order of arrival."""
        if self.accounts is not None:
            self.accounts.spend(clients.tolist(), weights.tolist())
        self._credited.append(clients)
        self._credits.append(weights)
        if len(self._credited) >= _BATCH:
            self.book()

    def stand(self, parts: Parts) -> None:
        """Changes clients' parts, starting with the version being made, in which a unit is worth `parts.unit`.

        Let a unit be worth A in all versions before a change of c units, and S in all versions up to now. The change
        adds c·S − c·A to its client's weight. c·S is added when the weight is read, so the versions in between touch
        no client.
        """
        if len(parts.clients):
            self.reals["weight"][parts.clients] -= parts.changes * self.acted
            self.reals["part"][parts.clients] += parts.changes
        self.acted += parts.unit

    def weights(self) -> Floats:
        """Per client: the sum of its parts of all versions."""
        self.book()
        weights = self.reals["weight"]
        return weights + self.reals["part"] * self.acted if self.acted else weights

    def book(self) -> None:
        """Adds the batched credits to the weights."""
        if self._credited:
            np.add.at(self.reals["weight"], np.concatenate(self._credited), np.concatenate(self._credits))
            self._credited.clear()
            self._credits.clear()

    def state(self) -> State:
        """The whole ledger, without rows that no client has used."""
        self.book()
        return {
            **{name: getattr(self, name) for name in _SCALARS},
            "columns": {name: column[: self.rows].copy() for name, column in (self.integers | self.reals).items()},
            "recent": self.recent[: self.rows].copy(),
            "running": table(self.running.values(), **_TASK),
            "buffer": table(self.buffer, **_TASK),
            "reports": table(self._reports, **_REPORT),
            "arrivals": np.array(self._arrivals, np.float64),
            "slowest": table(self._slowest.heap, usual=float, task=int),
            **({} if self.accounts is None else {"accounts": self.accounts.state()}),
            **({} if self.intervals is None else {"intervals": self.intervals.state()}),
        }

    def restore(self, state: State) -> None:
        """Replaces the ledger with the saved one."""
        for name, kind in _SCALARS.items():
            setattr(self, name, take(state, name, kind))
        if self.rows > self.capacity:
            self._grow(self.rows)
        saved = take(state, "columns", dict)
        for name, column in (self.integers | self.reals).items():
            copy_into(column[: self.rows], saved, name)
        copy_into(self.recent[: self.rows], state, "recent")
        self.running.clear()
        self.running.update((task.task, task) for task in _tasks(state, "running"))
        self.buffer = list(_tasks(state, "buffer"))
        self._reports = [record_of(Report, row) for row in rows(take(state, "reports", dict), *_REPORT)]
        self._arrivals = take(state, "arrivals", np.ndarray).tolist()
        self._slowest.heap = list(rows(take(state, "slowest", dict), "usual", "task"))
        if self.awaited is not None:
            self.awaited = Awaited()
            for client in np.flatnonzero(self.integers["present"][: self.rows] == 1).tolist():
                self.awaited.join(client)
            for task in self.buffer:
                self.awaited.admit(task.client)
        if self.accounts is not None:
            self.accounts.restore(take(state, "accounts", dict))
        if self.intervals is not None:
            self.intervals.restore(take(state, "intervals", dict))


def _importance(
    terms: Entitlement | None, ledger: Ledger, group_of: Callable[[int], str] | None
) -> Callable[[int], float]:
    """A function that returns a client's importance: its entitlement relative to other clients."""
    if terms is None or terms.importance == "uniform":
        return lambda client: 1.0
    if terms.importance == "examples":
        return lambda client: float(ledger.integers["examples"].item(client))
    return lambda client: terms.of_group(group_of(client) if group_of is not None else "")


def divided(values: list[Value], drafted: Sequence[bool] | None) -> tuple[list[Value], list[Value]]:
    """The values that are drafted, and the others; without `drafted`, all of them and none.

    >>> divided([5, 6, 7], [True, False, True])
    ([5, 7], [6])
    """
    if drafted is None:
        return values, []
    pairs = list(zip(values, drafted, strict=True))
    return [value for value, counts in pairs if counts], [value for value, counts in pairs if not counts]


def _tasks(state: State, name: str) -> Iterator[Dispatch]:
    return (record_of(Dispatch, row) for row in rows(take(state, name, dict), *_TASK))
