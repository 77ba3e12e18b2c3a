"""The executor of worker processes, one thread each, that look ahead: what will be read first is computed first."""

from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from selectors import EVENT_READ, DefaultSelector

from fairlag.data.dataset import Dataset
from fairlag.errors import InputError, ProtocolError
from fairlag.execute import children
from fairlag.execute.pool import DEPTH, Asked, Handed, Pool, Worker
from fairlag.execute.worker import READY, Answer, Beginning, Evaluation, Shared, Trained, Training, work
from fairlag.learn.flat import Flat
from fairlag.learn.learner import Blueprint, Order, Placement, Score
from fairlag.rules.local import Local
from fairlag.types import Update, Vouched
from fairlag.vector import Vector, published

_PATIENCE = 5.0
"""How many seconds a worker that has hung up may take to end by itself."""


@dataclass(slots=True)
class _Worker(Worker[Training | Evaluation]):
    process: BaseProcess
    line: Connection
    rows: list[int]
    """Those of its rows for updates that are free."""


class Processes(Pool[_Worker]):
    """Computes in so many processes; results are the same bytes as those of one.

    A worker that dies is replaced and what it was at is computed again, once.
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
        self._slots, self._rows = self._shared.slots.array, self._shared.rows.array
        self._recalled = self._shared.memories.array
        self._lines = DefaultSelector()
        """Tells which workers have said something; made once, as asking anew each time takes several times as long."""
        super().__init__(flat.trained)
        self._workers = [self._hire(list(range(first, first + DEPTH))) for first in range(0, jobs, DEPTH)]
        for worker in self._workers:
            self._lines.register(worker.line, EVENT_READ, worker)

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
            worker.process.join()
            worker.process.close()
            worker.line.close()
        self._workers = []
        self._lines.close()

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
        """Takes the answers that are there, or waits for one; and hands out new work."""
        for key, _ in self._lines.select(patience):
            self._hear(key.data)
        self._hand_out()

    def _hear(self, worker: _Worker) -> None:
        try:
            said = worker.line.recv()
        except (EOFError, OSError):
            self._replace(worker)
            return
        if said is READY:
            worker.ready = True
            return
        if isinstance(said, str):
            raise InputError(f"a worker cannot build the model: {said}")
        number, answer = said
        job = worker.jobs.popleft().how
        self._release(worker, job)
        if self._orders.pop(number, None) is not None:
            self._take(job, answer)

    def _take(self, job: Training | Evaluation, answer: Answer) -> None:
        if isinstance(answer, Trained):
            assert isinstance(job, Training)
            memory = self._recalled[job.row, : self._memories.size].copy()
            kind = Vouched if answer.sound else Update
            self._done[job.number] = kind(published(self._rows[job.row]), answer.report), memory
        elif isinstance(answer, Score) or isinstance(job, Evaluation):
            self._scores[job.number] = answer
        else:
            self._done[job.number] = answer

    def _release(self, worker: _Worker, job: Training | Evaluation) -> None:
        self._pins[job.slot] -= 1
        if isinstance(job, Training):
            worker.rows.append(job.row)

    # The workers themselves

    def _hire(self, rows: list[int]) -> _Worker:
        here, there = children.CONTEXT.Pipe()
        given = (there, self._blueprint, self._shared, self._beginning)
        process = children.CONTEXT.Process(target=work, args=given, daemon=True)
        with children.interrupts_held_back(), children.large_pages():
            process.start()
        there.close()
        return _Worker(process, here, rows)

    def _replace(self, worker: _Worker) -> None:
        """A worker has died: another one does what it was at, unless that has already happened."""
        worker.process.join(_PATIENCE)
        worker.process.kill()
        worker.process.join()
        hint = "; a script must start its runs under if __name__ == '__main__'"
        self._blame(worker, "a worker process", f"exit code {worker.process.exitcode}", hint=hint)
        jobs = list(worker.jobs)
        old, fresh = (worker.process, worker.line), self._hire(worker.rows)
        self._lines.unregister(worker.line)
        worker.process, worker.line, worker.ready = fresh.process, fresh.line, False
        self._lines.register(worker.line, EVENT_READ, worker)
        worker.jobs.clear()
        for job in jobs:
            self._release(worker, job.how)
        self._wait_again(jobs)
        for each in old:
            each.close()


def _send(worker: _Worker, message: Beginning | Training | Evaluation) -> None:
    # Where nobody listens any more, what was said before is still to be heard; after it comes the end of the line.
    with suppress(OSError):
        worker.line.send(message)
