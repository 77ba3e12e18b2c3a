"""The worker side of the process executor: what a worker gets at the start, and its loop of jobs."""

import mmap
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from fairlag.core.types import Report, Update
from fairlag.core.vector import Matrix
from fairlag.data.dataset import Dataset
from fairlag.execute.child import received
from fairlag.learn.blas import ONE_THREAD
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.evaluation import Found, Part, scored
from fairlag.learn.failure import Failure
from fairlag.learn.learner import Learner, Order, keep_memory
from fairlag.learn.placement import Placement
from fairlag.rules.admit import well_formed
from fairlag.rules.local import Local


class Beginning(NamedTuple):
    """The start of a run with this seed, whose strategy asks for `local`; not a job."""

    seed: int = 0
    local: Local = Local()


class Training(NamedTuple):
    """A job: trains a task from the parameters in a slot into a row; the client's memory is in a row too."""

    number: int
    slot: int
    row: int
    order: Order


class Evaluation(NamedTuple):
    """A job: a part of an evaluation, with the parameters in a slot."""

    number: int
    slot: int
    part: Part


class Trained(NamedTuple):
    """The update of a task is in its row: its report, and whether it is well formed."""

    report: Report
    sound: bool


Answer = Trained | Found | Failure
"""The answer to a job: the report of an update, what an evaluation found, or a failure."""


READY = None
"""A worker's first message if it is ready for jobs; otherwise it sends a failure."""


@dataclass(frozen=True, slots=True)
class SharedArray:
    """An array in memory that this process and its workers share: an unnamed file, so nothing is left behind."""

    file: int
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def room(cls, dtype: str, shape: Sequence[int]) -> Self:
        """An uninitialised array."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        file = _nameless()
        os.ftruncate(file, max(size, 1))
        return cls(file, dtype, tuple(shape))

    @classmethod
    def copy(cls, array: NDArray[Any]) -> Self:
        """A copy of an array."""
        room = cls.room(array.dtype.str, array.shape)
        room.array[...] = array
        return room

    @property
    def array(self) -> NDArray[Any]:
        """The array, as a view of the shared memory."""
        size = int(np.prod(self.shape, dtype=np.int64))
        return np.frombuffer(mmap.mmap(self.file, 0), self.dtype, size).reshape(self.shape)


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fairlag")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


@dataclass(frozen=True, slots=True)
class Shared:
    """What all workers share: the data, its placement, and memory for parameters and updates."""

    inputs: SharedArray
    labels: SharedArray
    placement: tuple[SharedArray, ...]
    slots: SharedArray
    rows: SharedArray
    memories: SharedArray

    @classmethod
    def room(cls, data: Dataset, placement: Placement, size: int, remembered: int, jobs: int) -> Self:
        """The data, and memory for `jobs` jobs: models of `size` numbers, client memories of `remembered` numbers."""
        # Seeds may give out different numbers of examples, but never more than there are.
        holdings, times = (_padded(each, len(data)) for each in (placement.holdings, placement.times))
        return cls(
            SharedArray.copy(data.inputs),
            SharedArray.copy(data.labels),
            tuple(SharedArray.copy(each) for each in placement._replace(holdings=holdings, times=times)),
            SharedArray.room("f4", (jobs, size)),
            SharedArray.room("f4", (jobs, size)),
            SharedArray.room("f4", (jobs, remembered)),
        )

    @property
    def files(self) -> tuple[int, ...]:
        """The files that a worker must inherit."""
        each = (self.inputs, self.labels, *self.placement, self.slots, self.rows, self.memories)
        return tuple(array.file for array in each)

    def close(self) -> None:
        """Closes the files; no further worker can be started."""
        for file in self.files:
            os.close(file)

    @property
    def holders(self) -> Placement:
        """The placement of the examples in the current run."""
        found = Placement(*(each.array for each in self.placement))
        held = int(found.bounds[-1])
        return found._replace(holdings=found.holdings[:held], times=found.times[:held])


def _padded(array: NDArray[Any], size: int) -> NDArray[Any]:
    """The array with zeros up to this size; an empty one stays empty."""
    return np.append(array, np.zeros(size - len(array), array.dtype)) if array.size else array


def work(line: Connection, blueprint: Blueprint, shared: Shared, beginning: Beginning) -> None:
    """The main loop of a worker: a job, an answer, until the connection closes."""
    torch.set_num_threads(1)
    keep_memory()
    inputs, labels = shared.inputs.array, shared.labels.array
    room = _Room(shared.slots.array, shared.rows.array, shared.memories.array)
    with ONE_THREAD, suppress(EOFError, ConnectionError):  # the parent has ended
        try:
            learner = Learner(blueprint, inputs, labels, shared.holders, *beginning)
        except Exception as error:
            line.send(Failure.of(error))
            return
        line.send(READY)
        while True:
            job: Beginning | Training | Evaluation = received(line)
            if isinstance(job, Beginning):
                learner = Learner(blueprint, inputs, labels, shared.holders, *job)
            else:
                line.send((job.number, _answer(learner, job, room)))


class _Room(NamedTuple):
    slots: Matrix
    rows: Matrix
    memories: Matrix


def _answer(learner: Learner, job: Training | Evaluation, room: _Room) -> Answer:
    try:
        if isinstance(job, Training):
            memory = room.memories[job.row, : learner.remembered]
            row = room.rows[job.row, : learner.width]
            report = learner.train(job.order, room.slots[job.slot, : learner.width], row, memory)
            return Trained(report, well_formed(Update(row, report), len(row)) is None)
        return scored(learner, room.slots[job.slot, : learner.width], job.part)
    except Exception as error:
        return Failure.of(error)
