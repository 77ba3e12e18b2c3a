"""The published versions of the model, each kept exactly as long as a task can need it."""

from collections.abc import Iterable

import numpy as np

from fairlag.state import State, copy_into, rows, table, take
from fairlag.vector import Vector, published


class Versions:
    """Read-only parameters by version: the newest, and every older one that a task still holds.

    >>> versions = Versions(published([1.0]))
    >>> versions.hold(1)
    >>> versions.publish(published([2.0]))
    >>> versions.kept
    (0, 1)
    >>> versions.release([0])
    >>> versions.kept, versions.newest.tolist()
    ((1,), [2.0])
    """

    def __init__(self, parameters: Vector) -> None:
        self.newest = published(parameters)
        self._number = 0
        self._kept = {0: self.newest}
        self._holders = {0: 0}

    def __getitem__(self, version: int) -> Vector:
        return self._kept[version]

    @property
    def kept(self) -> tuple[int, ...]:
        """The versions that are in memory."""
        return tuple(self._kept)

    def publish(self, parameters: Vector) -> None:
        """A new version; the one before goes unless a task holds it."""
        old = self._number
        if not self._holders[old]:
            self._forget(old)
        self._number = old + 1
        self.newest = published(parameters) if parameters.flags.writeable else parameters
        self._kept[old + 1] = self.newest
        self._holders[old + 1] = 0

    def hold(self, times: int) -> None:
        """So many more tasks need the newest version."""
        self._holders[self._number] += times

    def release(self, versions: Iterable[int]) -> None:
        """One task for each of these versions does not need it any more."""
        holders, newest = self._holders, self._number
        for version in versions:
            left = holders[version] - 1
            if left or version == newest:
                holders[version] = left
            else:
                self._forget(version)

    def _forget(self, version: int) -> None:
        del self._kept[version], self._holders[version]

    def state(self) -> State:
        """The versions that are kept and how many tasks hold each; parameters are not copied, as they never change."""
        return {
            "holders": table(self._holders.items(), version=int, tasks=int),
            "parameters": {str(version): vector for version, vector in self._kept.items() if vector.size},
        }

    def restore(self, state: State) -> None:
        """Keeps the versions that were saved."""
        parameters = take(state, "parameters", dict)
        self._holders = dict(rows(take(state, "holders", dict), "version", "tasks"))
        self._number = max(self._holders)
        self._kept = {version: self._restored(parameters, version) for version in self._holders}
        self.newest = self._kept[self._number]

    def _restored(self, parameters: State, version: int) -> Vector:
        if not self.newest.size:  # nothing is saved of a model without parameters
            return self.newest
        vector = np.empty_like(self.newest)
        copy_into(vector, parameters, str(version))
        vector.flags.writeable = False
        return vector
