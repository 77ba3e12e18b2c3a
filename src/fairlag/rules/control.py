"""Control variates: a direction of local steps that takes the mean of what clients remember from the server."""

from dataclasses import dataclass

import numpy as np

from fairlag.core.state import State, copy_into
from fairlag.core.types import Floats
from fairlag.core.vector import Matrix, Vector


@dataclass(frozen=True, slots=True)
class Control:
    """SCAFFOLD's direction: g − c_i + c, with c_i what the client remembers, and c its mean over all clients.

    After a task, c_i ← c_i − c − Δ/a: the mean of its gradients, with a the sum of its step sizes.

    >>> gradient, memory, mean = np.array([4], np.float32), np.array([[1]], np.float32), np.array([0.5], np.float32)
    >>> Control().turn(gradient, memory, mean)
    >>> gradient.tolist()
    [3.5]
    >>> Control().share(np.array([-7], np.float32), 2.0, memory, mean).tolist(), memory.tolist()  # c_i is now 4
    ([3.0], [[4.0]])
    """

    @property
    def vectors(self) -> int:
        """c_i."""
        return 1

    def turn(self, gradient: Vector, memory: Matrix, shared: Vector) -> None:
        """Overwrites g with g − c_i + c."""
        gradient -= memory[0]
        gradient += shared

    def share(self, change: Vector, reach: float, memory: Matrix, shared: Vector) -> Vector:
        """Overwrites c_i after a task that changed the model by Δ, and returns by how much c_i has changed."""
        grown: Vector = -shared - change / np.float32(reach)
        memory[0] += grown
        return grown


class SharedMean:
    """The server's side: the mean over all clients of what they remember, from the changes that they send.

    >>> mean = SharedMean(1)
    >>> mean.next(np.array([[2], [4]], np.float32), 4).tolist(), mean.next(np.array([[2]], np.float32), 4).tolist()
    ([1.5], [2.0])
    """

    def __init__(self, size: int) -> None:
        self._sum: Floats = np.zeros(size)

    def next(self, changes: Matrix, clients: int) -> Vector:
        """The mean after these changes, one per row, of what this many clients remember."""
        self._sum += changes.sum(axis=0, dtype=np.float64)
        mean: Vector = (self._sum / clients).astype(np.float32)
        return mean

    def state(self) -> State:
        """The sum over all clients."""
        return {"sum": self._sum.copy()}

    def restore(self, state: State) -> None:
        """Replaces the sum."""
        copy_into(self._sum, state, "sum")
