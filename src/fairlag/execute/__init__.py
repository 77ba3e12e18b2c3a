"""Executors: where a task is computed. Their contract, and their registry.

A dispatched task is a future: it may be computed any time before its result is read. To add an executor, write a module
with a class that implements Learning, add it to EXECUTORS below, and add a row to docs/executors.md.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fairlag.core.state import Savable
from fairlag.core.types import Dispatch, Update
from fairlag.core.vector import Vector
from fairlag.errors import ProtocolError
from fairlag.rules.local import Local

if TYPE_CHECKING:
    from fairlag.data.dataset import Dataset
    from fairlag.learn.blueprint import Blueprint
    from fairlag.learn.evaluation import Asked, Found
    from fairlag.learn.learner import Learner
    from fairlag.learn.placement import Placement

interrupted: ContextVar[Callable[[], bool]] = ContextVar("interrupted", default=lambda: False)
"""Has the user pressed Ctrl-C? Then an executor that waits for a result computed elsewhere raises Interrupted.

A context variable: other threads, which Ctrl-C does not reach, do not see it.
"""


class Executor(Savable, Protocol):
    """Computes tasks; a result depends only on the task, the parameters and the client's memory.

    The clients' memory changes when a result is read. It is the only saved state: after a restart, tasks are submitted
    again. A runtime may read results and discard tasks from several threads at once, each task from one of them.
    """

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        """The task was dispatched. It may be computed from now on; its result is read at the fleet's time `due`."""

    def result(self, task: Dispatch) -> Update:
        """The update of a task; called at most once per task."""

    def discard(self, number: int) -> None:
        """The update of the task with this number will not be read."""


class Evaluating(Protocol):
    """Evaluates versions on the test examples."""

    def evaluate(self, version: int, parameters: Vector, due: float, asked: "Asked") -> None:
        """Requests the evaluation of a version: on the test examples up to a number, or on clients' own."""

    def evaluated(self, patience: float = 0.0) -> "list[tuple[int, Found]]":
        """The evaluations finished since the last call, in order of request; waits up to `patience` seconds for one."""

    def close(self) -> None:
        """Ends the workers."""


class Learning(Evaluating, Executor, Protocol):
    """An executor that trains and evaluates, for one run after the other; byte-identical to the serial executor."""

    @property
    def learner(self) -> "Learner | None":
        """The learner, if tasks are computed in this process: compiled loops call it directly. None if elsewhere."""

    def begin(self, seed: int, placement: "Placement", local: Local) -> None:
        """Starts a new run with this seed, whose strategy asks for this local training; forgets all other tasks."""

    def warm_up(self) -> None:
        """Waits until no task would have to wait for a worker to start."""


class Work(NamedTuple):
    """What an executor is made for."""

    blueprint: "Blueprint"
    data: "Dataset"
    placement: "Placement"
    vectors: int
    """The most vectors that a client remembers."""
    shares: bool
    """Do versions of some strategy carry a vector for local training?"""
    workers: int | None
    """The number of workers that the user asks for; None for the default."""
    cores: int
    """The number of cores of this machine that may be used."""
    address: str


@dataclass(frozen=True, slots=True)
class Kind:
    """What is known about an executor before it is made."""

    make: Callable[[Work], Learning]
    """Makes the executor. It imports its module only now, because most are slow to import, or need an extra."""
    check: Callable[[str], None] = lambda address: None
    """Refuses an executor that is not available, before anything is written."""
    alone: bool = False
    """Does it compute in this process, without workers?"""
    cluster: str = ""
    """What its workers run on, if they run elsewhere and need an address; and how to start it."""


def _serial(work: Work) -> Learning:
    from fairlag.execute.serial import Serial

    return Serial(work.blueprint, work.data, work.placement)


def _processes(work: Work) -> Learning:
    from fairlag.execute.processes import Processes

    workers = work.workers or work.cores
    return Processes(
        work.blueprint, work.data, work.placement, workers=workers, vectors=work.vectors, shares=work.shares
    )


def _ray(work: Work) -> Learning:
    from fairlag.execute.ray import Actors

    return Actors(work.blueprint, work.data, work.placement, address=work.address, workers=work.workers)


def _check_ray(address: str) -> None:
    from fairlag.execute import cluster

    cluster.check(address)


EXECUTORS: dict[str, Kind] = {
    "serial": Kind(_serial, alone=True),
    "processes": Kind(_processes),
    "ray": Kind(_ray, _check_ray, cluster="a Ray cluster: run `ray start --head`, then give `--address auto`"),
}


def named(task: int, client: int) -> str:
    """A task's name in messages.

    >>> named(7, 3)
    'task 7 of client 3'
    """
    return f"task {task} of client {client}"


def not_submitted(task: Dispatch) -> ProtocolError:
    """The error for reading a task that no worker computes: waiting for it would never end."""
    name = named(task.task, task.client)
    return ProtocolError(f"{name} was never submitted, or its result was already read or discarded")
