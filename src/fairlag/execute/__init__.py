"""Executors: where a task is computed. A dispatched task is a future: computed any time before it is read."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol

from fairlag.errors import ProtocolError
from fairlag.state import Savable
from fairlag.types import Dispatch, Update
from fairlag.vector import Vector

interrupted: ContextVar[Callable[[], bool]] = ContextVar("interrupted", default=lambda: False)
"""Has somebody pressed Ctrl-C? Whoever waits for a result that is computed elsewhere then raises Interrupted instead.

A variable of the context: other threads, which no Ctrl-C reaches, do not see it.
"""


class Executor(Savable, Protocol):
    """Computes tasks; the result depends only on the task, the parameters and what its client remembers.

    What clients remember changes when a result is read, and is all there is to save: tasks are submitted again. A
    runtime may ask for results, and discard tasks, from several threads at once, each task from one of them.
    """

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        """The task was dispatched; it may be computed from now on, and is asked for at time `due` of the fleet."""

    def result(self, task: Dispatch) -> Update:
        """The update of a task, each asked for at most once."""

    def discard(self, number: int) -> None:
        """The update of the task of that number will not be asked for."""


def named(task: int, client: int) -> str:
    """A task as messages name it.

    >>> named(7, 3)
    'task 7 of client 3'
    """
    return f"task {task} of client {client}"


def not_there(task: Dispatch) -> ProtocolError:
    """What to say where the result of a task is asked for that nobody computes: waiting for it would never end."""
    name = named(task.task, task.client)
    return ProtocolError(f"{name} was never submitted, or its result was already read or discarded")
