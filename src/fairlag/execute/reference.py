"""The step that the server makes on its own trusted examples: computed by any executor, when a rule first asks."""

from fairlag.core.types import Dispatch
from fairlag.core.vector import EMPTY, Vector
from fairlag.execute import Executor

_FIRST = 1 << 60
"""The first number of such a task: no task of a client gets that far."""


class ReferenceStep:
    """Trains a version as one more client, which holds the server's examples; at most once per version.

    The version is the ordinal of the task, so the step depends on nothing that happened before.
    """

    def __init__(self, executor: Executor, client: int) -> None:
        """`client` is the number after the last client of the fleet: the placement gives it the server's examples."""
        self._executor, self._client = executor, client
        self._version, self._step = -1, EMPTY

    def __call__(self, version: int, parameters: Vector) -> Vector:
        """The update that training this version on the server's examples gives."""
        if version != self._version:
            task = Dispatch(_FIRST + version, self._client, version, version, 0.0)
            self._executor.submit(task, parameters, 0.0)
            self._step, self._version = self._executor.result(task).delta, version
        return self._step
