"""What clients remember from one task to the next, kept where their tasks are computed."""

import numpy as np

from fairlag.core.state import State, take
from fairlag.core.vector import Vector
from fairlag.errors import InputError


class Memories:
    """A vector for each client that has delivered a task; the others remember nothing, which is 0 everywhere.

    >>> memories = Memories(2)
    >>> memories.keep(7, np.ones(2, np.float32))
    >>> memories.of(7).tolist(), memories.of(8).tolist()
    ([1.0, 1.0], [0.0, 0.0])
    """

    def __init__(self, size: int) -> None:
        """How many numbers each remembers; where it is 0, nobody remembers anything."""
        self.size = size
        self._kept: dict[int, Vector] = {}

    def of(self, client: int) -> Vector:
        """A copy of what the client remembers."""
        kept = self._kept.get(client)
        return np.zeros(self.size, np.float32) if kept is None else kept.copy()

    def keep(self, client: int, memory: Vector) -> None:
        """The client has delivered a task, and remembers this from now on."""
        if self.size:
            self._kept[client] = memory

    def state(self) -> State:
        """What everyone remembers."""
        clients = np.fromiter(self._kept, np.int64, len(self._kept))
        kept = np.array(list(self._kept.values()), np.float32)
        return {"clients": clients, "kept": kept.reshape(len(clients), self.size)}

    def restore(self, state: State) -> None:
        """Everyone remembers that instead."""
        clients, kept = take(state, "clients", np.ndarray), take(state, "kept", np.ndarray)
        if kept.shape != (len(clients), self.size):
            raise InputError(f"{len(clients)} clients who remember {self.size} numbers each are not {kept.shape}")
        self._kept = {client: row.copy() for client, row in zip(clients.tolist(), kept, strict=True)}
