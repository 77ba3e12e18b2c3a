"""The executor of worker processes, one thread each. They work ahead: what will be read first is computed first."""

import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from selectors import EVENT_READ, DefaultSelector
from subprocess import TimeoutExpired
from time import monotonic
from weakref import finalize

from fairlag.core.types import CheckedUpdate, Update
from fairlag.core.vector import Vector, published
from fairlag.data.dataset import Dataset
from fairlag.errors import InputError, ProtocolError
from fairlag.execute import children
from fairlag.execute.child import Failed
from fairlag.execute.pool import DEPTH, Job, Pool, Request, Worker
from fairlag.execute.worker import READY, Answer, Beginning, Evaluation, Shared, Trained, Training, work
from fairlag.learn import devices
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.descent import kept_numbers
from fairlag.learn.failure import Failure
from fairlag.learn.flat import Flat
from fairlag.learn.learner import Order
from fairlag.learn.placement import Placement
from fairlag.rules.local import Local

_END_TIMEOUT = 5.0
"""Seconds that a worker may take to end by itself after its connection was closed."""
_CHECK_INTERVAL = 1.0
"""Seconds between two checks of workers that do not answer."""


@dataclass(slots=True)
class _Worker(Worker[Training | Evaluation]):
    process: children.Process
    line: Connection
    rows: list[int]
    """Its free rows for updates."""
    device: str
    stopped: int = 0
    """How many checks in a row found it stopped."""


class Processes(Pool[_Worker]):
    """Computes in a number of processes; results are byte-identical to those of one process.

    A worker that dies or is stopped from outside is replaced, and its jobs are computed again. A job that kills two
    workers ends the run.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        data: Dataset,
        placement: Placement,
        *,
        workers: int,
        vectors: int = 0,
        shares: bool = False,
    ) -> None:
        """Reserves memory for clients that remember up to `vectors` vectors, and for versions that carry another."""
        if workers < 1:
            raise InputError(f"workers is {workers}, it must be at least 1")
        children.check_picklable(blueprint)
        flat = Flat(blueprint.build(0))
        jobs = workers * DEPTH
        self._blueprint = blueprint
        kept = kept_numbers(flat, blueprint.recipe)
        self._sizes = flat.layout.size, flat.layout.size + flat.layout.parameters.size
        """How many numbers a version has, without and with a vector for local training."""
        self._shared = Shared.room(data, placement, self._sizes[shares], vectors * flat.trained + kept, jobs)
        self._closed = finalize(self, self._shared.close)
        self._slots, self._rows = self._shared.slots.array, self._shared.rows.array
        self._recalled = self._shared.memories.array
        self._lines = DefaultSelector()
        """Selects the workers that have sent something; made once, because one per call takes several times as long."""
        self._checked = monotonic()
        super().__init__(flat.trained, kept)
        try:
            for number in range(workers):
                rows = list(range(number * DEPTH, (number + 1) * DEPTH))
                self._workers.append(self._start(rows, devices.of_worker(blueprint.device, number)))
                self._lines.register(self._workers[-1].line, EVENT_READ, self._workers[-1])
        except BaseException:  # for example Ctrl-C
            self.close()
            raise

    def _forget(self) -> None:
        super()._forget()
        self._versions: list[int | None] = [None] * len(self._slots)
        self._pins = [0] * len(self._slots)
        self._width = self._sizes[self._beginning.local.shares]

    def _check(self, local: Local) -> None:
        if (
            self._remembered(local.vectors) > self._recalled.shape[1]
            or self._sizes[local.shares] > self._slots.shape[1]
        ):
            raise ProtocolError(f"clients are to remember {local.vectors} vectors, the workers have no memory for them")
        children.check_picklable(local)

    def _announce(self, placement: Placement) -> None:
        for room, array in zip(self._shared.placement, placement, strict=True):
            room.array[: len(array)] = array
        for worker in self._workers:
            _send(worker, self._beginning)

    def close(self) -> None:
        """Ends the workers."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.wait()
            worker.line.close()
        self._workers = []
        self._lines.close()
        self._closed()

    # Communication with the workers

    def _send_job(self, worker: _Worker, number: int, request: Request) -> None:
        slot = self._slot(request.version, request.parameters)
        self._pins[slot] += 1
        job: Training | Evaluation
        if request.task is None:
            job = Evaluation(number, slot, request.part)
        else:
            job = Training(number, slot, worker.rows.pop(), Order.of(request.task, self._beginning.seed))
            if size := self._memories.size:
                self._recalled[job.row, :size] = self._memories.of(request.task.client)
        worker.jobs.append(Job(number, request, job))
        _send(worker, job)

    def _slot(self, version: int, parameters: Vector) -> int:
        """The slot of a version's parameters, filled if needed: there are as many slots as jobs in progress."""
        if version in self._versions:
            return self._versions.index(version)
        slot = self._pins.index(0)
        self._versions[slot] = version
        self._slots[slot, : self._width] = parameters
        return slot

    def _pump(self, patience: float | None) -> None:
        """Takes the available answers, or waits a moment for one; then sends new jobs."""
        for key, _ in self._lines.select(_CHECK_INTERVAL if patience is None else patience):
            self._receive(key.data)
        if patience != 0:
            self._check_stopped()
        self._dispatch()

    def _check_stopped(self) -> None:
        """Replaces workers that were stopped from outside: they would never answer."""
        if monotonic() - self._checked < _CHECK_INTERVAL:
            return
        self._checked = monotonic()
        for worker in self._workers:
            worker.stopped = worker.stopped + 1 if children.is_stopped(worker.process.pid) else 0
            if worker.stopped >= children.STOPPED:
                print(children.replaced(worker.process.pid), file=sys.stderr, flush=True)
                worker.process.kill()
                self._restart(worker)

    def _receive(self, worker: _Worker) -> None:
        try:
            message = worker.line.recv()
        except (EOFError, OSError):
            self._replace(worker)
            return
        if message is READY:
            worker.ready = True
            return
        if isinstance(message, Failed):
            raise InputError(f"a worker cannot start: {message.reason}")
        if isinstance(message, Failure):
            raise InputError(f"a worker cannot build the model: {message.sentence}") from message.cause
        number, answer = message
        job = worker.jobs.popleft().how
        self._release(worker, job)
        if self._orders.pop(number, None) is not None:
            self._take(job, answer)

    def _take(self, job: Training | Evaluation, answer: Answer) -> None:
        if isinstance(job, Evaluation):
            assert not isinstance(answer, Trained)
            self._scores[job.number] = answer
        elif isinstance(answer, Trained):
            memory = self._recalled[job.row, : self._memories.size].copy()
            kind = CheckedUpdate if answer.sound else Update
            self._done[job.number] = kind(published(self._rows[job.row, : self._width]), answer.report), memory
        else:
            assert isinstance(answer, Failure)
            self._done[job.number] = answer

    def _release(self, worker: _Worker, job: Training | Evaluation) -> None:
        self._pins[job.slot] -= 1
        if isinstance(job, Training):
            worker.rows.append(job.row)

    # The workers themselves

    def _start(self, rows: list[int], device: str) -> _Worker:
        given = (replace(self._blueprint, device=device), self._shared, self._beginning)
        return _Worker(*children.started(work, *given, files=self._shared.files), rows, device)

    def _replace(self, worker: _Worker) -> None:
        """A worker has died: starts another one for its jobs, unless the same job has killed a worker before."""
        with suppress(TimeoutExpired):
            worker.process.wait(_END_TIMEOUT)
        worker.process.kill()
        self._count_death(worker, "a worker process", f"exit code {worker.process.wait()}")
        self._restart(worker)

    def _restart(self, worker: _Worker) -> None:
        """Starts a new process in place of one that has ended, and queues its jobs again."""
        worker.process.wait()
        self._lines.unregister(worker.line)
        worker.line.close()
        fresh, jobs = self._start(worker.rows, worker.device), list(worker.jobs)
        worker.process, worker.line, worker.ready, worker.stopped = fresh.process, fresh.line, False, 0
        self._lines.register(worker.line, EVENT_READ, worker)
        worker.jobs.clear()
        for job in jobs:
            self._release(worker, job.how)
        self._requeue(jobs)


def _send(worker: _Worker, message: Beginning | Training | Evaluation) -> None:
    # If the worker has ended, its earlier messages are still to be read; after them comes the end of the connection.
    with suppress(OSError):
        worker.line.send(message)
