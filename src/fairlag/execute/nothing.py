"""The executor that computes nothing: the server becomes a queueing simulator, for audits."""

from fairlag.types import NOTHING, Dispatch, Update
from fairlag.vector import Vector


class Nothing:
    """Answers every task with an empty update.

    >>> Nothing().result(Dispatch(task=0, client=0, version=0, ordinal=0, time=0.0)).delta.size
    0
    """

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        """Nothing to prepare."""

    def result(self, task: Dispatch) -> Update:
        """The empty update."""
        return NOTHING

    def discard(self, number: int) -> None:
        """Nothing to forget."""
