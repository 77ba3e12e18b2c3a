"""Reductions that keep the last model of every client, for servers that cache their clients' models."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fairlag.core.buffer import Buffer
from fairlag.core.rows import Rows
from fairlag.core.state import Savable, State, take
from fairlag.core.types import Floats, Parts
from fairlag.core.vector import Matrix, Vector
from fairlag.core.view import View

_UNCHANGED = Parts(np.empty(0, np.int64), np.empty(0), 1.0)


class Reducer(Savable, Protocol):
    """The stateful half of a reduction with a memory: one per server."""

    def reduce(self, weights: Floats, updates: Matrix, buffer: Buffer) -> Vector:
        """Reduces the edited updates of a buffer to one step."""

    def parts(self, weights: Floats, buffer: Buffer) -> Parts:
        """The clients whose part changes with the next version. Called also for a model without parameters."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """A reduction with a memory from one version to the next; `start` makes a new one for each server."""

    label: str
    start: Callable[[View], Reducer]
    mixes_statistics: bool = False
    """May a model's statistics be mixed by the weights? The reducer does not see them."""
    per_client: bool = True
    """Does it keep something of each client, so that it must know who sent an update?"""
    of_step: bool = False
    """Are its parts those of the step from one version to the next? Then nobody has a part of a version that is the
    last one again because its aggregation was refused. Otherwise they are those of all that the version consists of."""
    late: bool = False
    """Are the parts known only after the updates were reduced? Otherwise they are asked for before."""


def replacing() -> Keeping:
    """Each client's new model replaces its last one: Σ_j α_j (x_j − x'_j); x' is w_0 at first.

    >>> replacing().label
    'replacing()'
    """
    return Keeping("replacing()", _Replacing, mixes_statistics=True)


def averaging() -> Keeping:
    """The next version is the mean of all clients' last models by examples: Σ_k n_k/N x_k; x_k is w_0 at first.

    Only the drafted updates of the buffer count; the others are kept for the next version. A client that was given a
    newer version to start again counts with that version.

    >>> averaging().label
    'averaging()'
    """
    return Keeping("averaging()", _Averaging, mixes_statistics=True)


class _Models:
    """The last model of each client that sent one. All others have the first version."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._first = view.parameters(view.version)
        self._last = Rows(self._first.size, clients=len(view.update_counts), what="the last model")

    def sent(self, updates: Matrix, buffer: Buffer) -> list[Vector]:
        """The whole model of each update's sender."""
        return [self._view.parameters(task.version) + row for task, row in zip(buffer.tasks, updates, strict=True)]

    def of(self, client: int) -> Vector:
        last = self._last.of(client)
        return self._first if last is None else last

    def mean(self) -> Vector:
        """The mean of all clients' models by their examples."""
        shares = self._view.shares(self._last.clients)
        mean: Floats = np.zeros(self._first.size)
        for share, model in zip(shares.tolist(), self._last, strict=True):
            # In double precision: shares rounded to float32 would not add up to one, in every version.
            mean += np.multiply(model, share, dtype=np.float64)
        if len(shares) < self._view.n:
            mean += (1 - math.fsum(shares)) * self._first
        rounded: Vector = mean.astype(np.float32)
        return rounded

    def state(self) -> State:
        return {**self._last.state(), "first": self._first}

    def restore(self, state: State) -> None:
        self._last.restore(state)
        self._first = take(state, "first", np.ndarray).copy()


class _Replacing(_Models):
    def parts(self, weights: Floats, buffer: Buffer) -> Parts:
        # α x is added and α x' is subtracted. Both belong to the same client unless x' is w_0, so only its first update
        # adds to its part. If α has changed, the rest of x' still belongs to this client.
        senders = [task.client for task in buffer.tasks]
        parts = self._view.parts
        new = [client for client in dict.fromkeys(senders) if not parts[client]]
        places = [senders.index(client) for client in new]
        return Parts(np.array(new, np.int64), weights[places], 1.0) if new else _UNCHANGED

    def reduce(self, weights: Floats, updates: Matrix, buffer: Buffer) -> Vector:
        step = np.zeros_like(self._first)
        factors = weights.astype(np.float32)
        for task, model, factor in zip(buffer.tasks, self.sent(updates, buffer), factors, strict=True):
            step += factor * (model - self.of(task.client))
            self._last.keep(task.client, model)
        return step


class _Averaging(_Models):
    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._next: list[int] = []
        """The clients whose updates are kept for the next version."""

    def parts(self, weights: Floats, buffer: Buffer) -> Parts:
        # A unit is an example: when clients join, the parts of the others need no change. A client that started again
        # holds an earlier version, which contains no update of its own.
        view, came = self._view, list(zip(buffer.clients.tolist(), buffer.drafted, strict=True))
        counts = dict.fromkeys(self._next, True) | dict.fromkeys(view.restarted, False)
        counts |= {client: True for client, drafted in came if drafted}
        self._next = [client for client, drafted in came if not drafted]
        for client in self._next:  # it may have reported more examples: these count at once
            counts.setdefault(client, bool(view.parts[client]))
        clients = np.fromiter(counts, np.int64, len(counts))
        units = view.examples[clients] * np.fromiter(counts.values(), np.bool_, len(counts))
        changes = units - view.parts[clients]
        changed = changes != 0
        return Parts(clients[changed], changes[changed], 1 / view.total_examples)

    def state(self) -> State:
        return {**super().state(), "next": np.array(self._next, np.int64)}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._next = take(state, "next", np.ndarray).tolist()

    def reduce(self, weights: Floats, updates: Matrix, buffer: Buffer) -> Vector:
        now = self._view.parameters(self._view.version)
        for client in self._view.restarted:
            self._last.keep(client, now)
        came = list(zip(buffer.tasks, self.sent(updates, buffer), buffer.drafted, strict=True))
        for task, model, drafted in came:
            if drafted:
                self._last.keep(task.client, model)
        step = self.mean() - now
        for task, model, drafted in came:
            if not drafted:
                self._last.keep(task.client, model)
        return step
