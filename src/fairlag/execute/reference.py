"""The step that the server makes on its own trusted examples: computed by any executor, when a rule first asks."""

from fairlag.core.types import Dispatch
from fairlag.core.vector import EMPTY, Vector
from fairlag.core.view import Reference
from fairlag.execute import Executor

_FIRST = 1 << 60
"""The first number of such a task: no task of a client gets that far."""


class ReferenceStep:
    """Makes a step from a version, at most once per version.

    >>> trained = []
    >>> step = ReferenceStep(lambda version, parameters: trained.append(version) or parameters)
    >>> _ = [step(version, EMPTY) for version in (0, 0, 1)]
    >>> trained
    [0, 1]
    """

    def __init__(self, make: Reference) -> None:
        self._make = make
        self._version, self._step = -1, EMPTY

    def __call__(self, version: int, parameters: Vector) -> Vector:
        """The update that training this version on the server's examples gives."""
        if version != self._version:
            self._step, self._version = self._make(version, parameters), version
        return self._step


def reference_task(version: int, client: int) -> Dispatch:
    """The task of training a version on the server's examples, which it holds as one more client.

    The version is the ordinal of the task, so the step depends on nothing that happened before.
    """
    return Dispatch(_FIRST + version, client, version, version, 0.0)


def trained_by(executor: Executor, client: int) -> Reference:
    """Trains versions on an executor, whose placement gives the server's examples to this client."""

    def make(version: int, parameters: Vector) -> Vector:
        task = reference_task(version, client)
        executor.submit(task, parameters, 0.0)
        return executor.result(task).delta

    return make
