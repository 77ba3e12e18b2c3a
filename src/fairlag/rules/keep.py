"""Reductions that keep the last model of every client: what a server that caches its clients' models needs."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fairlag.core.buffer import Buffer
from fairlag.core.state import Savable, State, copy_into, take
from fairlag.core.types import Floats, Integers, Parts
from fairlag.core.vector import Matrix, Vector
from fairlag.core.view import View

_UNCHANGED = Parts(np.empty(0, np.int64), np.empty(0), 1.0)


class Reducer(Savable, Protocol):
    """The living half of a reduction with a memory: one for each server."""

    def reduce(self, weights: Floats, updates: Matrix, buffer: Buffer) -> Vector:
        """The updates of a buffer, as edited, become one step."""

    def parts(self, weights: Floats, buffer: Buffer) -> Parts:
        """Whose part of the version about to be made differs from the one before; asked also without parameters."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """A reduction that remembers something from one version to the next, made anew for each server."""

    label: str
    start: Callable[[View], Reducer]
    mixes_statistics: bool = False
    """May a model's statistics, of which the reducer sees nothing, be mixed by the weights?"""


def replacing() -> Keeping:
    """Each client's new model takes the place of its last one: Σ_j α_j (x_j − x'_j), x' being w_0 at first.

    >>> replacing().label
    'replacing()'
    """
    return Keeping("replacing()", _Replacing, mixes_statistics=True)


def averaging() -> Keeping:
    """The next version is the mean of all clients' last models by examples: Σ_k n_k/N x_k, x_k being w_0 at first.

    Of the updates in the buffer only those count that were drafted; the others are kept for the next version. A client
    that had to begin anew counts with the version that it was given.

    >>> averaging().label
    'averaging()'
    """
    return Keeping("averaging()", _Averaging, mixes_statistics=True)


class _Models:
    """The last model of each client, a row for each that was heard of; all others have the first version."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._first = view.parameters(view.version)
        self._places: dict[int, int] = {}
        self._rows: Matrix = np.empty((1, self._first.size), np.float32)

    def sent(self, updates: Matrix, buffer: Buffer) -> list[Vector]:
        """The whole model that came with each update."""
        return [self._view.parameters(task.version) + row for task, row in zip(buffer.tasks, updates, strict=True)]

    def of(self, client: int) -> Vector:
        place = self._places.get(client)
        return self._first if place is None else self._rows[place]

    def keep(self, client: int, model: Vector) -> None:
        place = self._places.setdefault(client, len(self._places))
        if place == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[place] = model

    def mean(self) -> Vector:
        """The mean of all clients' models by their examples."""
        shares = self._view.shares(self._clients())
        # In double precision: shares that are rounded first do not add up to one, version after version.
        mean = np.einsum("k,kp->p", shares, self._rows[: len(shares)], dtype=np.float64)
        if len(shares) < self._view.n:
            mean += (1 - math.fsum(shares)) * self._first
        rounded: Vector = mean.astype(np.float32)
        return rounded

    def _clients(self) -> Integers:
        return np.fromiter(self._places, np.int64, len(self._places))

    def state(self) -> State:
        count = len(self._places)
        return {"clients": self._clients(), "rows": self._rows[:count].copy(), "first": self._first}

    def restore(self, state: State) -> None:
        clients = take(state, "clients", np.ndarray).tolist()
        self._places = {client: place for place, client in enumerate(clients)}
        self._rows = np.empty((max(len(clients), 1), self._first.size), np.float32)
        copy_into(self._rows[: len(clients)], state, "rows")
        self._first = take(state, "first", np.ndarray).copy()


class _Replacing(_Models):
    def parts(self, weights: Floats, buffer: Buffer) -> Parts:
        # α x is added and α x' is taken away, of the same client unless x' is w_0: only its first update adds to its
        # part. What is left of x' if α has changed is still this client's.
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
            self.keep(task.client, model)
        return step


class _Averaging(_Models):
    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._next: list[int] = []
        """Whose updates were kept for the next version."""

    def parts(self, weights: Floats, buffer: Buffer) -> Parts:
        # A unit is an example, so that nothing must be done for all clients if their number grows. A client that had
        # to begin anew has the place of an earlier version: no update of its own is in it.
        view, came = self._view, list(zip(buffer.clients.tolist(), buffer.drafted, strict=True))
        counts = dict.fromkeys(self._next, True) | dict.fromkeys(view.restarted, False)
        counts |= {client: True for client, drafted in came if drafted}
        self._next = [client for client, drafted in came if not drafted]
        for client in self._next:  # it may have told of more examples: these count at once
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
            self.keep(client, now)
        came = list(zip(buffer.tasks, self.sent(updates, buffer), buffer.drafted, strict=True))
        for task, model, drafted in came:
            if drafted:
                self.keep(task.client, model)
        step = self.mean() - now
        for task, model, drafted in came:
            if not drafted:
                self.keep(task.client, model)
        return step
