"""What clients remember between tasks, stored in the process that computes them."""

import numpy as np

from fairlag.core.rows import Rows
from fairlag.core.state import State
from fairlag.core.vector import Vector


class Memories:
    """One vector per client that has finished a task; all other clients have zeros.

    >>> memories = Memories(2, clients=10)
    >>> memories.keep(7, np.ones(2, np.float32))
    >>> memories.of(7).tolist(), memories.of(8).tolist()
    ([1.0, 1.0], [0.0, 0.0])
    """

    def __init__(self, size: int, clients: int) -> None:
        """`size` is how many numbers each of these clients remembers; 0 if clients remember nothing."""
        self.size = size
        self._kept = Rows(size, clients=clients, what="the memory")

    def of(self, client: int) -> Vector:
        """A copy of the client's memory."""
        kept = self._kept.of(client)
        return np.zeros(self.size, np.float32) if kept is None else kept.copy()

    def keep(self, client: int, memory: Vector) -> None:
        """Stores the client's memory after a finished task."""
        if self.size:
            self._kept.keep(client, memory)

    def state(self) -> State:
        """The memories of all clients."""
        state = self._kept.state()
        return {"clients": state["clients"], "kept": state["rows"]}

    def restore(self, state: State) -> None:
        """Replaces the memories of all clients."""
        self._kept.restore({"clients": state.get("clients"), "rows": state.get("kept")})
