"""What clients remember between tasks, stored in the process that computes them."""

import numpy as np

from fairlag.core.state import State, take
from fairlag.core.vector import Vector
from fairlag.errors import InputError


class Memories:
    """One vector per client that has finished a task; all other clients have zeros.

    >>> memories = Memories(2)
    >>> memories.keep(7, np.ones(2, np.float32))
    >>> memories.of(7).tolist(), memories.of(8).tolist()
    ([1.0, 1.0], [0.0, 0.0])
    """

    def __init__(self, size: int) -> None:
        """`size` is how many numbers each client remembers; 0 if clients remember nothing."""
        self.size = size
        self._kept: dict[int, Vector] = {}

    def of(self, client: int) -> Vector:
        """A copy of the client's memory."""
        kept = self._kept.get(client)
        return np.zeros(self.size, np.float32) if kept is None else kept.copy()

    def keep(self, client: int, memory: Vector) -> None:
        """Stores the client's memory after a finished task."""
        if self.size:
            self._kept[client] = memory

    def state(self) -> State:
        """The memories of all clients."""
        clients = np.fromiter(self._kept, np.int64, len(self._kept))
        kept = np.array(list(self._kept.values()), np.float32)
        return {"clients": clients, "kept": kept.reshape(len(clients), self.size)}

    def restore(self, state: State) -> None:
        """Replaces the memories of all clients."""
        clients, kept = take(state, "clients", np.ndarray), take(state, "kept", np.ndarray)
        if kept.shape != (len(clients), self.size):
            shape = len(clients), self.size
            raise InputError(f"the saved memories have shape {kept.shape}, they must have shape {shape}")
        self._kept = {client: row.copy() for client, row in zip(clients.tolist(), kept, strict=True)}
