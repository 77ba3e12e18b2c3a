"""Which seeds the keeper has used: in memory for a simulation, on disk for a process. It keeps hashes, not seeds."""

from collections.abc import Collection
from hashlib import sha256
from typing import Protocol

import numpy as np

from fairlag.core.state import State, take


def mark(seed: bytes) -> bytes:
    """What is kept of a used seed: a hash, from which nobody can compute the seed."""
    return sha256(b"fairlag used 1" + seed).digest()


class Used(Protocol):
    """The marks of the seeds that were used."""

    def known(self, marks: Collection[bytes]) -> set[bytes]:
        """Those of the marks that were added before."""

    def add(self, marks: Collection[bytes]) -> None:
        """Adds new marks. When this returns, they are safe."""


class UsedInMemory:
    """The marks of used seeds in memory, savable with a simulation.

    >>> used = UsedInMemory()
    >>> used.add([mark(b"seed")])
    >>> again = UsedInMemory()
    >>> again.restore(used.state())
    >>> again.known([mark(b"seed"), mark(b"other")]) == {mark(b"seed")}
    True
    """

    def __init__(self) -> None:
        self._marks: set[bytes] = set()

    def known(self, marks: Collection[bytes]) -> set[bytes]:
        """Those of the marks that were added before."""
        return self._marks.intersection(marks)

    def add(self, marks: Collection[bytes]) -> None:
        """Adds new marks."""
        self._marks.update(marks)

    def state(self) -> State:
        """All marks as one array, sorted."""
        return {"marks": np.frombuffer(b"".join(sorted(self._marks)), np.uint8).reshape(-1, 32)}

    def restore(self, state: State) -> None:
        """Replaces the marks by saved ones."""
        self._marks = {row.tobytes() for row in take(state, "marks", np.ndarray)}
