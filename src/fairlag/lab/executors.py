"""Chooses which executor computes the runs of an experiment, with how many workers, and where."""

import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fairlag.errors import InputError, nearest
from fairlag.execute import EXECUTORS, Kind, Learning, Work
from fairlag.learn import devices

if TYPE_CHECKING:
    from fairlag.data.dataset import Dataset
    from fairlag.learn.blueprint import Blueprint
    from fairlag.learn.placement import Placement


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable(workers: int, *, jobs: int | None = None, here: bool = True) -> int:
    """This many workers, or fewer if the rest would only wait for a core of this machine or for a job; prints why.

    >>> usable(1, jobs=3), usable(2, jobs=3, here=False)
    (1, 2)
    """
    limits = [(cores(), f"this machine has {cores()} cores")] if here else []
    limits += [(jobs, f"at most {jobs} jobs run at the same time")] if jobs is not None else []
    most, why = min(limits)
    if workers <= most:
        return workers
    print(f"{most} workers instead of {workers}: {why}", file=sys.stderr, flush=True)
    return most


@dataclass(frozen=True, slots=True)
class ExecutorChoice:
    """The user's choice of an executor; the model and the machine determine what is left open.

    >>> ExecutorChoice("serial", workers=4)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: workers is 4, but the executor serial has only one: use processes ...
    >>> ExecutorChoice("processes", address="10.0.0.1:6379")
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: the address '10.0.0.1:6379' is only for the executor ray
    >>> ExecutorChoice("ray")
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: the executor ray needs the address of a Ray cluster: run `ray start --head`, then give \
`--address auto`
    """

    executor: str | None = None
    workers: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.executor not in (None, *EXECUTORS):
            raise InputError(f"unknown executor {self.executor!r}: {nearest(str(self.executor), EXECUTORS)}")
        kind = self._kind
        if kind is not None and kind.alone and self.workers not in (None, 1):
            others = " or ".join(name for name, each in EXECUTORS.items() if not each.alone)
            raise InputError(f"workers is {self.workers}, but the executor {self.executor} has only one: use {others}")
        if kind is not None and kind.cluster and self.address is None:
            raise InputError(f"the executor {self.executor} needs the address of {kind.cluster}")
        if self.address is not None and not (kind and kind.cluster):
            takers = " or ".join(name for name, each in EXECUTORS.items() if each.cluster)
            raise InputError(f"the address {self.address!r} is only for the executor {takers}")

    def check(self) -> None:
        """Refuses, before anything is written, an executor that cannot start on this machine or at that address."""
        if self._kind is not None:
            self._kind.check(self.address or "")

    def on(self, device: str) -> "ExecutorChoice":
        """The same choice for models on this device: on accelerators, one worker each unless the user says otherwise.

        >>> ExecutorChoice("ray", address="auto").on("mps")
        Traceback (most recent call last):
        ...
        fairlag.errors.InputError: the executor ray trains on CPUs only, but the device is mps: use processes
        """
        if device == devices.CPU:
            return self
        if self._kind is not None and self._kind.cluster:
            here = " or ".join(name for name, each in EXECUTORS.items() if not (each.cluster or each.alone))
            raise InputError(
                f"the executor {self.executor} trains on CPUs only, but the device is {device}: use {here}"
            )
        return self if self.workers is not None else replace(self, workers=len(devices.meant(device)))

    def limited(self, jobs: int) -> "ExecutorChoice":
        """The same choice, with no more workers than the cores and this many simultaneous jobs can use."""
        if self.workers is None:
            return self
        # The number of CPUs of a cluster is not known here.
        return replace(self, workers=usable(self.workers, jobs=jobs, here=self.address is None))

    @property
    def _kind(self) -> Kind | None:
        return None if self.executor is None else EXECUTORS[self.executor]

    def chosen(self, *, batched: bool) -> str:
        """The name of the executor. Small models, whose tasks are batched, default to `serial`: sending a task to a
        worker would take longer than training it.
        """
        if self.executor is not None:
            return self.executor
        workers = self.workers or (1 if batched else cores())
        return "serial" if workers == 1 else "processes"

    def engaged(
        self, executor: str, blueprint: "Blueprint", data: "Dataset", placement: "Placement", vectors: int, shares: bool
    ) -> Learning:
        """The executor of that name, for clients that remember up to this many vectors."""
        work = Work(blueprint, data, placement, vectors, shares, self.workers, cores(), self.address or "")
        return EXECUTORS[executor].make(work)
