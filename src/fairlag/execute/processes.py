"""The executor of worker processes, one thread each, that look ahead: what will be read first is computed first."""

from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from threading import RLock
from typing import NamedTuple

from fairlag.data.dataset import Dataset
from fairlag.errors import InputError, ProtocolError, WorkerError
from fairlag.execute import children, named, not_there
from fairlag.execute.memories import Memories
from fairlag.execute.worker import READY, Answer, Beginning, Evaluation, Shared, Training, work
from fairlag.learn.flat import Flat
from fairlag.learn.learner import Blueprint, Order, Placement, Score, chunks, total
from fairlag.rules.local import Local
from fairlag.state import State
from fairlag.types import Dispatch, Report, Update
from fairlag.vector import Vector, published

_DEPTH = 2
"""How many jobs a worker has at hand: it begins the next while this process is busy elsewhere."""
_PATIENCE = 5.0
"""How many seconds a worker that has hung up may take to end by itself."""
_BEHIND = 3
"""How many evaluations may be under way before a further one waits: each holds a whole model."""


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    line: Connection
    rows: list[int]
    """Those of its rows for updates that are free."""
    jobs: deque[Training | Evaluation] = field(default_factory=deque)
    """What it was handed and has not answered, oldest first."""
    ready: bool = False


class _Order(NamedTuple):
    """Something to compute, of a version: a task, or a part of an evaluation."""

    version: int
    parameters: Vector
    due: float
    task: Dispatch | None
    part: tuple[int, int] = (0, 0)


class Processes:
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
        self._blueprint = blueprint
        flat = Flat(blueprint.build(0))
        self._trained = flat.trained
        jobs = workers * _DEPTH
        self._shared = Shared.room(data, placement, flat.layout.size, vectors * flat.trained, jobs)
        self._slots, self._rows = self._shared.slots.array, self._shared.rows.array
        self._recalled = self._shared.memories.array
        self._lock = RLock()
        self._beginning = Beginning()
        self._forget()
        rows = [list(range(first, first + _DEPTH)) for first in range(0, workers * _DEPTH, _DEPTH)]
        self._workers = [self._hire(own) for own in rows]

    def _forget(self) -> None:
        self._orders: dict[int, _Order] = {}
        self._waiting: list[tuple[float, int, int]] = []
        self._sequence = count()
        self._done: dict[int, tuple[Update, Vector] | str] = {}
        self._memories = Memories(self._beginning.local.vectors * self._trained)
        self._deaths: Counter[tuple[str, int]] = Counter()
        self._versions: list[int | None] = [None] * len(self._slots)
        self._pins = [0] * len(self._slots)
        self._parts = count(-1, -1)
        self._evaluations: deque[tuple[int, list[int]]] = deque()
        self._scores: dict[int, Score | str] = {}

    def begin(self, seed: int, placement: Placement, local: Local = Local()) -> None:  # noqa: B008 (frozen)
        """A new run, whose strategy asks for that; whatever is still under way for another is not wanted any more."""
        if local.vectors * self._trained > self._recalled.shape[1]:
            raise ProtocolError(f"there is no room for the {local.vectors} vectors that clients are to remember")
        children.check_that_it_travels(local.at_clients)
        with self._lock:
            self._orders.clear()
            self._deaths.clear()
            while any(worker.jobs for worker in self._workers):
                self._pump(None)
            for room, array in zip(self._shared.placement, placement, strict=True):
                room.array[...] = array
            self._beginning = Beginning(seed, local.at_clients)
            self._forget()
            for worker in self._workers:
                _send(worker, self._beginning)

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        """The task takes its place among those that wait, by the time when it will be read."""
        with self._lock:
            self._put(task.task, _Order(task.version, parameters, due, task))

    def result(self, task: Dispatch) -> Update:
        """The update of a task; waits for it while the workers go on with what comes after."""
        number = task.task
        while True:
            with self._lock:
                if number in self._done:
                    done = self._done.pop(number)
                    if not isinstance(done, str):
                        self._memories.keep(task.client, done[1])
                    self._pump(0)
                    break
                if number not in self._orders:
                    raise not_there(task)
                self._pump(None)
        if isinstance(done, str):
            raise InputError(f"{named(number, task.client)} failed: {done}")
        return done[0]

    def discard(self, number: int) -> None:
        """The task is not computed if it still waits, and its result thrown away if not."""
        with self._lock:
            self._orders.pop(number, None)
            self._done.pop(number, None)

    def evaluate(self, version: int, parameters: Vector, due: float, stop: int) -> None:
        """A version is to be evaluated on the first test examples up to `stop`, by whoever is free."""
        with self._lock:
            while sum(self._is_open(parts) for _, parts in self._evaluations) > _BEHIND:
                self._pump(None)
            numbers = [next(self._parts) for _ in chunks(stop)]
            self._evaluations.append((version, numbers))
            for number, part in zip(numbers, chunks(stop), strict=True):
                self._put(number, _Order(version, parameters, due, None, part))

    def evaluated(self, patience: float = 0.0) -> list[tuple[int, Score]]:
        """The evaluations done since the last call, in the order asked for; waits so many seconds for an answer."""
        scores = []
        with self._lock:
            if self._evaluations:
                self._pump(patience)
            while self._evaluations and not self._is_open(self._evaluations[0][1]):
                version, numbers = self._evaluations.popleft()
                parts = [self._scores.pop(number) for number in numbers]
                if failed := next((part for part in parts if isinstance(part, str)), None):
                    raise InputError(f"evaluating version {version} failed: {failed}")
                scores.append((version, total([part for part in parts if not isinstance(part, str)])))
        return scores

    def state(self) -> State:
        """What clients remember; what is under way is no part of it."""
        with self._lock:
            return self._memories.state()

    def restore(self, state: State) -> None:
        """Clients remember that instead."""
        with self._lock:
            self._memories.restore(state)

    def close(self) -> None:
        """Ends the workers."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.process.close()
            worker.line.close()
        self._workers = []

    # Between this process and the workers

    def _is_open(self, numbers: list[int]) -> bool:
        return any(number not in self._scores for number in numbers)

    def _put(self, number: int, order: _Order) -> None:
        self._orders[number] = order
        heappush(self._waiting, (order.due, next(self._sequence), number))
        self._hand_out()

    def _hand_out(self) -> None:
        """Whoever has the least to do gets what will be read first, until everyone has enough."""
        while self._waiting:
            worker = min(self._workers, key=lambda each: len(each.jobs))
            if len(worker.jobs) == _DEPTH:
                return
            _, _, number = heappop(self._waiting)
            if number in self._orders:
                self._hand(worker, number, self._orders[number])

    def _hand(self, worker: _Worker, number: int, order: _Order) -> None:
        slot = self._slot(order.version, order.parameters)
        self._pins[slot] += 1
        job: Training | Evaluation
        if order.task is None:
            job = Evaluation(number, slot, *order.part)
        else:
            job = Training(number, slot, worker.rows.pop(), Order.of(order.task, self._beginning.seed))
            if size := self._memories.size:
                self._recalled[job.row, :size] = self._memories.of(order.task.client)
        worker.jobs.append(job)
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
        ready = wait([worker.line for worker in self._workers], patience)
        for worker in self._workers:
            if worker.line in ready:
                self._hear(worker)
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
        job = worker.jobs.popleft()
        self._release(worker, job)
        if self._orders.pop(number, None) is not None:
            self._take(job, answer)

    def _take(self, job: Training | Evaluation, answer: Answer) -> None:
        if isinstance(answer, Report):
            assert isinstance(job, Training)
            memory = self._recalled[job.row, : self._memories.size].copy()
            self._done[job.number] = Update(published(self._rows[job.row]), answer), memory
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
        code, jobs, what = worker.process.exitcode, list(worker.jobs), self._at(worker)
        # A job is to blame wherever it kills; a worker that has none, only for itself.
        blamed = jobs[0].number if worker.ready and jobs else id(worker)
        self._deaths[what, blamed] += 1
        if self._deaths[what, blamed] > 1:
            raise WorkerError(
                f"a worker process died twice at {what} (exit code {code}), perhaps for want of memory: try fewer "
                "workers; a script must start its runs under if __name__ == '__main__'"
            )
        old, fresh = (worker.process, worker.line), self._hire(worker.rows)
        worker.process, worker.line, worker.ready = fresh.process, fresh.line, False
        worker.jobs.clear()
        for job in jobs:
            self._release(worker, job)
            if job.number in self._orders:
                heappush(self._waiting, (self._orders[job.number].due, next(self._sequence), job.number))
        for each in old:
            each.close()

    def _at(self, worker: _Worker) -> str:
        """What a worker is doing."""
        if not worker.ready:
            return "its start"
        if not worker.jobs:
            return "waiting for a job"
        job = worker.jobs[0]
        if isinstance(job, Training):
            return named(job.number, job.order.client)
        return f"evaluating version {self._versions[job.slot]}"


def _send(worker: _Worker, message: Beginning | Training | Evaluation) -> None:
    # Where nobody listens any more, what was said before is still to be heard; after it comes the end of the line.
    with suppress(OSError):
        worker.line.send(message)
