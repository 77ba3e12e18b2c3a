"""The executor of worker processes, one thread each, that look ahead: what will be read first is computed first."""

import sys
from contextlib import suppress
from dataclasses import dataclass
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
from fairlag.execute.pool import DEPTH, Asked, Handed, Pool, Worker
from fairlag.execute.worker import READY, Answer, Beginning, Evaluation, Shared, Trained, Training, work
from fairlag.learn.failure import Failure
from fairlag.learn.flat import Flat
from fairlag.learn.learner import Blueprint, Order, Placement, ScoreSums
from fairlag.rules.local import Local

_PATIENCE = 5.0
"""How many seconds a worker that has hung up may take to end by itself."""
_LOOK = 1.0
"""How many seconds pass between two looks at workers that say nothing."""


@dataclass(slots=True)
class _Worker(Worker[Training | Evaluation]):
    process: children.Process
    line: Connection
    rows: list[int]
    """Those of its rows for updates that are free."""
    stopped: int = 0
    """At how many looks in a row it was found stopped."""


class Processes(Pool[_Worker]):
    """Computes in so many processes; results are the same bytes as those of one.

    A worker that dies is replaced and what it was at is computed again, once; so is one that somebody has stopped.
    """

    def __init__(
        self, blueprint: Blueprint, data: Dataset, placement: Placement, *, workers: int, vectors: int = 0
    ) -> None:
        """Room for clients who remember up to so many vectors."""
        if workers < 1:
            raise InputError(f"workers is {workers}, it must be at least 1")
        children.check_that_it_travels(blueprint)
        flat = Flat(blueprint.build(0))
        jobs = workers * DEPTH
        self._blueprint = blueprint
        self._shared = Shared.room(data, placement, flat.layout.size, vectors * flat.trained, jobs)
        self._closed = finalize(self, self._shared.close)
        self._slots, self._rows = self._shared.slots.array, self._shared.rows.array
        self._recalled = self._shared.memories.array
        self._lines = DefaultSelector()
        """Tells which workers have said something; made once, as asking anew each time takes several times as long."""
        self._looked = monotonic()
        super().__init__(flat.trained)
        try:
            for start in range(0, jobs, DEPTH):
                self._workers.append(self._hire(list(range(start, start + DEPTH))))
                self._lines.register(self._workers[-1].line, EVENT_READ, self._workers[-1])
        except BaseException:  # such as Ctrl-C
            self.close()
            raise

    def _forget(self) -> None:
        super()._forget()
        self._versions: list[int | None] = [None] * len(self._slots)
        self._pins = [0] * len(self._slots)

    def _check(self, local: Local) -> None:
        if local.vectors * self._trained > self._recalled.shape[1]:
            raise ProtocolError(f"there is no room for the {local.vectors} vectors that clients are to remember")
        children.check_that_it_travels(local)

    def _announce(self, placement: Placement) -> None:
        for room, array in zip(self._shared.placement, placement, strict=True):
            room.array[...] = array
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

    # Between this process and the workers

    def _hand(self, worker: _Worker, number: int, asked: Asked) -> None:
        slot = self._slot(asked.version, asked.parameters)
        self._pins[slot] += 1
        job: Training | Evaluation
        if asked.task is None:
            job = Evaluation(number, slot, *asked.part)
        else:
            job = Training(number, slot, worker.rows.pop(), Order.of(asked.task, self._beginning.seed))
            if size := self._memories.size:
                self._recalled[job.row, :size] = self._memories.of(asked.task.client)
        worker.jobs.append(Handed(number, asked, job))
        _send(worker, job)

    def _slot(self, version: int, parameters: Vector) -> int:
        """Where the parameters of a version are, or now are put: there are as many slots as jobs under way."""
        if version in self._versions:
            return self._versions.index(version)
        slot = self._pins.index(0)
        self._versions[slot] = version
        self._slots[slot] = parameters
        return slot

    def _pump(self, patience: float | None) -> None:
        """Takes the answers that are there, or waits a moment for one; and hands out new work."""
        for key, _ in self._lines.select(_LOOK if patience is None else patience):
            self._hear(key.data)
        if patience != 0:
            self._look_for_the_stopped()
        self._hand_out()

    def _look_for_the_stopped(self) -> None:
        """Whoever is waited for may have been stopped by somebody: then it would never answer."""
        if monotonic() - self._looked < _LOOK:
            return
        self._looked = monotonic()
        for worker in self._workers:
            worker.stopped = worker.stopped + 1 if children.is_stopped(worker.process.pid) else 0
            if worker.stopped >= children.STOPPED:
                print(children.replaced(worker.process.pid), file=sys.stderr, flush=True)
                worker.process.kill()
                self._succeed(worker)

    def _hear(self, worker: _Worker) -> None:
        try:
            said = worker.line.recv()
        except (EOFError, OSError):
            self._replace(worker)
            return
        if said is READY:
            worker.ready = True
            return
        if isinstance(said, Failed):
            raise InputError(f"a worker cannot start: {said.reason}")
        if isinstance(said, Failure):
            raise InputError(f"a worker cannot build the model: {said.sentence}") from said.cause
        number, answer = said
        job = worker.jobs.popleft().how
        self._release(worker, job)
        if self._orders.pop(number, None) is not None:
            self._take(job, answer)

    def _take(self, job: Training | Evaluation, answer: Answer) -> None:
        if isinstance(answer, Trained):
            assert isinstance(job, Training)
            memory = self._recalled[job.row, : self._memories.size].copy()
            kind = CheckedUpdate if answer.sound else Update
            self._done[job.number] = kind(published(self._rows[job.row]), answer.report), memory
        elif isinstance(answer, ScoreSums) or isinstance(job, Evaluation):
            self._scores[job.number] = answer
        else:
            self._done[job.number] = answer

    def _release(self, worker: _Worker, job: Training | Evaluation) -> None:
        self._pins[job.slot] -= 1
        if isinstance(job, Training):
            worker.rows.append(job.row)

    # The workers themselves

    def _hire(self, rows: list[int]) -> _Worker:
        given = (self._blueprint, self._shared, self._beginning)
        return _Worker(*children.started(work, *given, files=self._shared.files), rows)

    def _replace(self, worker: _Worker) -> None:
        """A worker has died: another one does what it was at, unless that has already happened."""
        with suppress(TimeoutExpired):
            worker.process.wait(_PATIENCE)
        worker.process.kill()
        self._blame(worker, "a worker process", f"exit code {worker.process.wait()}")
        self._succeed(worker)

    def _succeed(self, worker: _Worker) -> None:
        """A new process takes the place of one that was ended, and what that was at waits for whoever is free."""
        worker.process.wait()
        self._lines.unregister(worker.line)
        worker.line.close()
        fresh, jobs = self._hire(worker.rows), list(worker.jobs)
        worker.process, worker.line, worker.ready, worker.stopped = fresh.process, fresh.line, False, 0
        self._lines.register(worker.line, EVENT_READ, worker)
        worker.jobs.clear()
        for job in jobs:
            self._release(worker, job.how)
        self._wait_again(jobs)


def _send(worker: _Worker, message: Beginning | Training | Evaluation) -> None:
    # Where nobody listens any more, what was said before is still to be heard; after it comes the end of the line.
    with suppress(OSError):
        worker.line.send(message)
