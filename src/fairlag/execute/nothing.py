"""The executor that computes nothing: the server becomes a queueing simulator, for audits."""

from fairlag.core.state import State
from fairlag.core.types import NOTHING, Dispatch, Integers, Report, Update
from fairlag.core.vector import EMPTY, Vector


class Nothing:
    """Returns an empty update for every task, with the number of local steps that was asked for or is the client's own.

    >>> import numpy as np
    >>> Nothing().result(Dispatch(task=0, client=0, version=0, ordinal=0, time=0.0)).delta.size
    0
    >>> Nothing(np.array([1, 4])).result(Dispatch(task=0, client=1, version=0, ordinal=0, time=0.0)).report.steps
    4
    """

    def __init__(self, steps: Integers | None = None) -> None:
        """`steps` is each client's own number of local steps; None for one step each."""
        self._steps = None if steps is None or (steps == 1).all() else steps.tolist()

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        """Nothing to prepare."""

    def result(self, task: Dispatch) -> Update:
        """The empty update."""
        if self._steps is None and not task.steps:
            return NOTHING
        steps = task.steps or (1 if self._steps is None else self._steps[task.client])
        return Update(EMPTY, Report(steps=steps, effort=float(steps)))

    def discard(self, number: int) -> None:
        """Nothing to forget."""

    def state(self) -> State:
        """Empty: there is nothing to remember."""
        return {}

    def restore(self, state: State) -> None:
        """Nothing to restore."""
