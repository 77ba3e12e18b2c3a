"""Executors: where a task is computed. The contract of all of them, and which there are.

A dispatched task is a future: it may be computed any time before it is read. To add an executor, write a module with a
class that does what Learning says, add it to EXECUTORS below, and give it a row in docs/executors.md.
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
    from fairlag.learn.learner import Blueprint, Learner, Placement, ScoreSums

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


class Evaluating(Protocol):
    """Evaluates versions."""

    def evaluate(self, version: int, parameters: Vector, due: float, stop: int) -> None:
        """A version is to be evaluated on the first test examples up to `stop`."""

    def evaluated(self, patience: float = 0.0) -> "list[tuple[int, ScoreSums]]":
        """The evaluations done since the last call, in the order asked for; waits up to `patience` seconds for one."""

    def close(self) -> None:
        """Ends whatever computes."""


class Learning(Evaluating, Executor, Protocol):
    """An executor that trains and evaluates, for one run after the other; always with the bytes of the serial one."""

    @property
    def learner(self) -> "Learner | None":
        """Who trains, if tasks are computed in this process: compiled loops call it directly. None: elsewhere."""

    def begin(self, seed: int, placement: "Placement", local: Local) -> None:
        """A new run with this seed, whose strategy asks for this local training; forgets all other tasks."""

    def warm_up(self) -> None:
        """Waits until no task would have to wait for a worker to start."""


class Work(NamedTuple):
    """What an executor is made for."""

    blueprint: "Blueprint"
    data: "Dataset"
    placement: "Placement"
    vectors: int
    """How many vectors a client remembers at most."""
    workers: int | None
    """How many workers the user asks for, if they do."""
    cores: int
    """How many cores of this machine may be used."""
    address: str


@dataclass(frozen=True, slots=True)
class Kind:
    """What is known of an executor before it is made."""

    make: Callable[[Work], Learning]
    """Imports what it needs only now: most of it is slow to import, or an extra."""
    check: Callable[[str], None] = lambda address: None
    """Refuses what cannot be had, before anything is written."""
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
    return Processes(work.blueprint, work.data, work.placement, workers=workers, vectors=work.vectors)


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
    """A task as messages name it.

    >>> named(7, 3)
    'task 7 of client 3'
    """
    return f"task {task} of client {client}"


def not_there(task: Dispatch) -> ProtocolError:
    """What to say where the result of a task is asked for that nobody computes: waiting for it would never end."""
    name = named(task.task, task.client)
    return ProtocolError(f"{name} was never submitted, or its result was already read or discarded")
