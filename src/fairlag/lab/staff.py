"""Who computes the runs of an experiment: which executor, with how many workers, and where."""

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fairlag.errors import InputError, nearest
from fairlag.execute import Executor
from fairlag.rules.local import Local
from fairlag.vector import Vector

if TYPE_CHECKING:
    from fairlag.data.dataset import Dataset
    from fairlag.learn.learner import Blueprint, Placement, Score

EXECUTORS = ("serial", "processes", "ray")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable(workers: int, *, jobs: int | None = None, here: bool = True) -> int:
    """That many workers; or fewer, which is said, if more could only wait for a core of this machine, or for a job.

    >>> usable(1, jobs=3), usable(2, jobs=3, here=False)
    (1, 2)
    """
    limits = [(cores(), f"this machine has {cores()} cores")] if here else []
    limits += [(jobs, f"at most {jobs} jobs are computed at once")] if jobs is not None else []
    most, why = min(limits)
    if workers <= most:
        return workers
    print(f"{most} workers instead of {workers}: {why}", file=sys.stderr, flush=True)
    return most


class Evaluating(Protocol):
    """Whoever evaluates versions."""

    def evaluate(self, version: int, parameters: Vector, due: float, stop: int) -> None:
        """A version is to be evaluated on the first test examples up to `stop`."""

    def evaluated(self, patience: float = 0.0) -> "list[tuple[int, Score]]":
        """The evaluations done since the last call, in the order asked for; waits so many seconds for news."""

    def close(self) -> None:
        """Ends whatever computes."""


class Learning(Evaluating, Executor, Protocol):
    """An executor that trains and evaluates."""

    def begin(self, seed: int, placement: "Placement", local: Local) -> None:
        """A new run, of that seed, whose strategy asks for that."""


@dataclass(frozen=True, slots=True)
class Staff:
    """What a user says about who computes; where they say nothing, it is chosen by the model and the machine.

    >>> Staff("serial", workers=4)
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: workers is 4, but the serial executor is one: take processes or ray
    >>> Staff("processes", address="10.0.0.1:6379")
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: the address '10.0.0.1:6379' is that of a Ray cluster: it needs the executor ray
    """

    executor: str | None = None
    workers: int | None = None
    address: str | None = None
    folder: Path = Path()
    """Where temporary files may be kept."""

    def __post_init__(self) -> None:
        if self.executor not in (None, *EXECUTORS):
            raise InputError(f"unknown executor {self.executor!r}: {nearest(str(self.executor), EXECUTORS)}")
        if self.executor == "serial" and self.workers not in (None, 1):
            raise InputError(f"workers is {self.workers}, but the serial executor is one: take processes or ray")
        if self.address is not None and self.executor != "ray":
            raise InputError(f"the address {self.address!r} is that of a Ray cluster: it needs the executor ray")

    def check(self) -> None:
        """Refuses, before anything is written, what cannot be had on this machine or at that address."""
        if self.executor == "ray":
            from fairlag.execute import cluster

            cluster.check(self.address)

    def limited(self, jobs: int) -> "Staff":
        """The same, with no more workers than the cores and that many jobs at once can use."""
        if self.workers is None:
            return self
        return replace(self, workers=usable(self.workers, jobs=jobs, here=not self._elsewhere))

    @property
    def _elsewhere(self) -> bool:
        """Does it compute on a Ray cluster that is not our own? How many CPUs that has is not for us to say."""
        if self.executor != "ray":
            return False
        from fairlag.execute import cluster

        return self.address is not None or cluster.library().is_initialized()

    def chosen(self, *, batched: bool) -> str:
        """The executor, where tasks are trained together or are not: then, handing them over takes longer than they."""
        if self.executor is not None:
            return self.executor
        workers = self.workers or (1 if batched else cores())
        return "serial" if workers == 1 else "processes"

    def engaged(
        self, executor: str, blueprint: "Blueprint", data: "Dataset", placement: "Placement", vectors: int
    ) -> Learning:
        """The executor of that name, for clients who remember up to so many vectors."""
        if executor == "serial":
            from fairlag.execute.serial import Serial

            return Serial(blueprint, data, placement)
        if executor == "processes":
            from fairlag.execute.processes import Processes

            return Processes(blueprint, data, placement, workers=self.workers or cores(), vectors=vectors)
        from fairlag.execute.ray import Actors

        return Actors(
            blueprint,
            data,
            placement,
            folder=self.folder,
            workers=self.workers,
            cores=cores(),
            address=self.address,
        )
