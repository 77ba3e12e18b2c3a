"""The published versions of the model, each kept exactly as long as it may be needed."""

from collections.abc import Iterable

import numpy as np

from fairlag.core.state import State, copy_into, rows, table, take
from fairlag.core.vector import Vector, published


class Versions:
    """Read-only parameters by version: the newest, `before` versions before it, and older ones that tasks still hold.

    >>> versions = Versions(published([1.0]))
    >>> versions.hold(0, times=1)
    >>> versions.publish(published([2.0]))
    >>> versions.kept
    (0, 1)
    >>> versions.release([0])
    >>> versions.kept, versions.newest.tolist()
    ((1,), [2.0])
    """

    def __init__(self, parameters: Vector, *, before: int = 0) -> None:
        self.newest = published(parameters)
        self._before = before
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
        """Adds a new version; drops the oldest of the recent ones, unless a task holds it."""
        self._number = number = self._number + 1
        self.newest = published(parameters) if parameters.flags.writeable else parameters
        self._kept[number] = self.newest
        self._holders[number] = 0
        last = number - self._before - 1
        if self._holders.get(last) == 0:
            self._forget(last)

    def hold(self, version: int, times: int) -> None:
        """`times` more tasks need this version."""
        self._holders[version] += times

    def release(self, versions: Iterable[int]) -> None:
        """For each of these versions, one task no longer needs it."""
        holders, recent = self._holders, self._number - self._before
        for version in versions:
            left = holders[version] - 1
            if left or version >= recent:
                holders[version] = left
            else:
                self._forget(version)

    def _forget(self, version: int) -> None:
        del self._kept[version], self._holders[version]

    def state(self) -> State:
        """The kept versions and how many tasks hold each. Parameters are not copied, because they never change."""
        return {
            "holders": table(self._holders.items(), version=int, tasks=int),
            "parameters": {str(version): vector for version, vector in self._kept.items() if vector.size},
        }

    def restore(self, state: State) -> None:
        """Replaces the versions with the saved ones."""
        parameters = take(state, "parameters", dict)
        self._holders = dict(rows(take(state, "holders", dict), "version", "tasks"))
        self._number = max(self._holders)
        self._kept = {version: self._restored(parameters, version) for version in self._holders}
        self.newest = self._kept[self._number]

    def _restored(self, parameters: State, version: int) -> Vector:
        if not self.newest.size:  # a model without parameters saves nothing
            return self.newest
        vector = np.empty_like(self.newest)
        copy_into(vector, parameters, str(version))
        vector.flags.writeable = False
        return vector
