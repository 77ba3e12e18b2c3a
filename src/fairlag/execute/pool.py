"""What executors with workers share: a queue of jobs in the order in which they will be read, and their results."""

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from threading import RLock
from typing import Any, Generic, NamedTuple, TypeVar

from fairlag.core.state import State
from fairlag.core.types import Dispatch, Update
from fairlag.core.vector import Vector
from fairlag.errors import InputError, Interrupted, WorkerError
from fairlag.execute import interrupted, named, not_submitted
from fairlag.execute.memories import Memories
from fairlag.execute.worker import Beginning
from fairlag.learn.evaluation import Asked, Found, Part, joined, parts
from fairlag.learn.failure import Failure
from fairlag.learn.placement import Placement
from fairlag.rules.local import Local

DEPTH = 2
"""How many jobs a worker has at a time: it can start the next while this process is busy."""
_MAX_EVALUATIONS = 3
"""The most evaluations in progress; further ones wait, because each holds a whole model."""


class Request(NamedTuple):
    """A computation on a version: a task, or a part of an evaluation."""

    version: int
    parameters: Vector
    due: float
    task: Dispatch | None
    part: Part = (0, 0)

    def __str__(self) -> str:
        """Its name in messages."""
        if self.task is None:
            return f"evaluating version {self.version}"
        return named(self.task.task, self.task.client)


How = TypeVar("How")
"""What an executor keeps of a job that it sent to a worker."""


class Job(NamedTuple, Generic[How]):
    """A request that was sent to a worker. Parts of evaluations have negative numbers."""

    number: int
    request: Request
    how: How


@dataclass(slots=True)
class Worker(Generic[How]):
    """A worker and its jobs."""

    jobs: deque[Job[How]] = field(default_factory=deque, kw_only=True)
    """Its unfinished jobs, oldest first."""
    ready: bool = field(default=False, kw_only=True)
    """Has it started?"""

    @property
    def doing(self) -> str:
        """What it is doing, in words."""
        if not self.ready:
            return "its start"
        return str(self.jobs[0].request) if self.jobs else "waiting for a job"


AnyWorker = TypeVar("AnyWorker", bound=Worker[Any])


class Pool(ABC, Generic[AnyWorker]):
    """The side towards the runtime; each executor defines its workers and how to communicate with them."""

    def __init__(self, trained: int, kept: int = 0) -> None:
        """`trained` is the model's number of trained parameters, `kept` how many numbers a client always remembers."""
        self._trained, self._kept = trained, kept
        self._workers: list[AnyWorker] = []
        self._lock = RLock()
        self._beginning = Beginning()
        self._clients = 0
        self._forget()

    def _forget(self) -> None:
        self._orders: dict[int, Request] = {}
        self._waiting: list[tuple[float, int, int]] = []
        self._sequence = count()
        self._done: dict[int, tuple[Update, Vector] | Failure] = {}
        self._memories = Memories(self._remembered(self._beginning.local.vectors), self._clients)
        self._deaths: Counter[tuple[str, str, int]] = Counter()
        self._parts = count(-1, -1)
        self._evaluations: deque[tuple[int, list[int]]] = deque()
        self._scores: dict[int, Found | Failure] = {}

    def _remembered(self, vectors: int) -> int:
        """How many numbers a client remembers under a strategy that asks for this many vectors."""
        return vectors * self._trained + self._kept

    @property
    def learner(self) -> None:
        """None: the workers train."""

    def begin(self, seed: int, placement: Placement, local: Local = Local()) -> None:  # noqa: B008 (frozen)
        """Starts a new run, whose strategy asks for `local`; drops everything still in progress for another run."""
        self._check(local.at_clients)
        with self._lock:
            self._orders.clear()
            self._deaths.clear()
            while any(worker.jobs for worker in self._workers):
                self._pump(None)
            self._beginning, self._clients = Beginning(seed, local.at_clients), len(placement.steps)
            self._forget()
            self._announce(placement)

    def warm_up(self) -> None:
        """Waits until a worker has started, and every worker that accepts jobs before it has."""
        with self._lock:
            while not any(worker.ready for worker in self._workers) or any(
                not worker.ready and self._accepts_jobs(worker) for worker in self._workers
            ):
                self._pump(None)

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        """Queues the task by the time at which its result will be read."""
        with self._lock:
            self._put(task.task, Request(task.version, parameters, due, task))

    def result(self, task: Dispatch) -> Update:
        """The update of a task; waits for it while the workers continue with later tasks."""
        number = task.task
        while True:
            with self._lock:
                if number in self._done:
                    done = self._done.pop(number)
                    if not isinstance(done, Failure):
                        self._memories.keep(task.client, done[1])
                    self._pump(0)
                    break
                if number not in self._orders:
                    raise not_submitted(task)
                if interrupted.get()():
                    raise Interrupted(f"interrupted while {named(number, task.client)} was running")
                self._pump(None)
        if isinstance(done, Failure):
            raise InputError(f"{named(number, task.client)} failed: {done.sentence}") from done.cause
        return done[0]

    def discard(self, number: int) -> None:
        """Drops the task if it is still queued, otherwise its result."""
        with self._lock:
            self._orders.pop(number, None)
            self._done.pop(number, None)

    def evaluate(self, version: int, parameters: Vector, due: float, asked: Asked) -> None:
        """Requests the evaluation of a version, by any free workers."""
        with self._lock:
            while sum(self._is_open(numbers) for _, numbers in self._evaluations) > _MAX_EVALUATIONS:
                self._pump(None)
            numbers = [next(self._parts) for _ in parts(asked)]
            self._evaluations.append((version, numbers))
            for number, part in zip(numbers, parts(asked), strict=True):
                self._put(number, Request(version, parameters, due, None, part))

    def evaluated(self, patience: float = 0.0) -> list[tuple[int, Found]]:
        """The evaluations finished since the last call, in order of request; waits up to `patience` seconds for one."""
        scores = []
        with self._lock:
            if self._evaluations:
                self._pump(patience)
            while self._evaluations and not self._is_open(self._evaluations[0][1]):
                version, numbers = self._evaluations.popleft()
                found = [self._scores.pop(number) for number in numbers]
                if failed := next((part for part in found if isinstance(part, Failure)), None):
                    raise InputError(f"evaluating version {version} failed: {failed.sentence}") from failed.cause
                scores.append((version, joined([part for part in found if not isinstance(part, Failure)])))
        return scores

    def state(self) -> State:
        """The clients' memories; tasks in progress are not included."""
        with self._lock:
            return self._memories.state()

    def restore(self, state: State) -> None:
        """Replaces the clients' memories."""
        with self._lock:
            self._memories.restore(state)

    # For the executors

    @abstractmethod
    def _check(self, local: Local) -> None:
        """Refuses local rules of a strategy that cannot be sent to the workers."""

    @abstractmethod
    def _announce(self, placement: Placement) -> None:
        """Tells the idle workers that a run begins."""

    @abstractmethod
    def _pump(self, patience: float | None) -> None:
        """Takes the available answers, or waits a moment for one; then sends new jobs."""

    @abstractmethod
    def _send_job(self, worker: AnyWorker, number: int, request: Request) -> None:
        """Sends a job to a worker."""

    def _accepts_jobs(self, worker: AnyWorker) -> bool:
        return len(worker.jobs) < DEPTH

    def _dispatch(self) -> None:
        """Gives the jobs that will be read first to the workers with the fewest jobs, until all have enough."""
        while self._waiting:
            free = filter(self._accepts_jobs, self._workers)
            worker = min(free, key=lambda each: len(each.jobs), default=None)
            if worker is None:
                return
            _, _, number = heappop(self._waiting)
            if number in self._orders:
                self._send_job(worker, number, self._orders[number])

    def _count_death(self, worker: AnyWorker, kind: str, how: str, *, allowed: int = 1) -> None:
        """Counts a worker's death, by its job or else by the worker; raises if there are more than allowed."""
        what = worker.doing
        cause = worker.jobs[0].number if worker.ready and worker.jobs else id(worker)
        self._deaths[kind, what, cause] += 1
        if self._deaths[kind, what, cause] > allowed:
            times = "twice" if allowed == 1 else f"{allowed + 1} times"
            raise WorkerError(f"{kind} died {times} at {what} ({how}), perhaps out of memory: try fewer workers")

    def _requeue(self, jobs: Iterable[Job[Any]]) -> None:
        for job in jobs:
            if job.number in self._orders:
                heappush(self._waiting, (job.request.due, next(self._sequence), job.number))

    def _is_open(self, numbers: list[int]) -> bool:
        return any(number not in self._scores for number in numbers)

    def _put(self, number: int, request: Request) -> None:
        self._orders[number] = request
        heappush(self._waiting, (request.due, next(self._sequence), number))
        self._dispatch()
