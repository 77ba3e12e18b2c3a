"""Executors: where a task is computed. A dispatched task is a future: computed any time before it is read."""

from typing import Protocol

from fairlag.types import Dispatch, Update
from fairlag.vector import Vector


class Executor(Protocol):
    """Computes tasks; the result depends only on the task and the parameters, never on when or where.

    A runtime may ask for results, and discard tasks, from several threads at once, each task from one of them.
    """

    def submit(self, task: Dispatch, parameters: Vector) -> None:
        """The task was dispatched; it may be computed from now on."""

    def result(self, task: Dispatch) -> Update:
        """The update of a task, each asked for at most once."""

    def discard(self, number: int) -> None:
        """The update of the task of that number will not be asked for."""
