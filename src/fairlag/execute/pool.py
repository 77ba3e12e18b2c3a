"""What executors with workers share: what is asked for, in the order in which it will be read, and what came back."""

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
from fairlag.execute import interrupted, named, not_there
from fairlag.execute.memories import Memories
from fairlag.execute.worker import Beginning
from fairlag.learn.failure import Failure
from fairlag.learn.learner import Placement, ScoreSums, chunks, total
from fairlag.rules.local import Local

DEPTH = 2
"""How many jobs a worker has at hand: it begins the next while this process is busy elsewhere."""
_BEHIND = 3
"""How many evaluations may be under way before a further one waits: each holds a whole model."""


class Asked(NamedTuple):
    """Something to compute, of a version: a task, or a part of an evaluation."""

    version: int
    parameters: Vector
    due: float
    task: Dispatch | None
    part: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        """As messages name it."""
        if self.task is None:
            return f"evaluating version {self.version}"
        return named(self.task.task, self.task.client)


How = TypeVar("How")
"""How an executor tells a worker what to do, or hears of it."""


class Handed(NamedTuple, Generic[How]):
    """A job: what a worker was handed. That of a part of an evaluation has a negative number."""

    number: int
    asked: Asked
    how: How


@dataclass(slots=True)
class Worker(Generic[How]):
    """One of those who compute."""

    jobs: deque[Handed[How]] = field(default_factory=deque, kw_only=True)
    """What it was handed and has not answered, oldest first."""
    ready: bool = field(default=False, kw_only=True)
    """Has it started?"""

    @property
    def doing(self) -> str:
        """What it is at."""
        if not self.ready:
            return "its start"
        return str(self.jobs[0].asked) if self.jobs else "waiting for a job"


Hand = TypeVar("Hand", bound=Worker[Any])


class Pool(ABC, Generic[Hand]):
    """Answers the runtime; who the workers are, and how they are spoken to, is for the executors to say."""

    def __init__(self, trained: int) -> None:
        """Of a model with so many trained parameters."""
        self._trained = trained
        self._workers: list[Hand] = []
        self._lock = RLock()
        self._beginning = Beginning()
        self._forget()

    def _forget(self) -> None:
        self._orders: dict[int, Asked] = {}
        self._waiting: list[tuple[float, int, int]] = []
        self._sequence = count()
        self._done: dict[int, tuple[Update, Vector] | Failure] = {}
        self._memories = Memories(self._beginning.local.vectors * self._trained)
        self._deaths: Counter[tuple[str, str, int]] = Counter()
        self._parts = count(-1, -1)
        self._evaluations: deque[tuple[int, list[int]]] = deque()
        self._scores: dict[int, ScoreSums | Failure] = {}

    @property
    def learner(self) -> None:
        """The workers train."""

    def begin(self, seed: int, placement: Placement, local: Local = Local()) -> None:  # noqa: B008 (frozen)
        """A new run, whose strategy asks for that; whatever is still under way for another is not wanted any more."""
        self._check(local.at_clients)
        with self._lock:
            self._orders.clear()
            self._deaths.clear()
            while any(worker.jobs for worker in self._workers):
                self._pump(None)
            self._beginning = Beginning(seed, local.at_clients)
            self._forget()
            self._announce(placement)

    def warm_up(self) -> None:
        """Waits until one worker has started, and all those that are handed tasks before they have started."""
        with self._lock:
            while not any(worker.ready for worker in self._workers) or any(
                not worker.ready and self._may_be_handed(worker) for worker in self._workers
            ):
                self._pump(None)

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        """The task takes its place among those that wait, by the time when it will be read."""
        with self._lock:
            self._put(task.task, Asked(task.version, parameters, due, task))

    def result(self, task: Dispatch) -> Update:
        """The update of a task; waits for it while the workers go on with what comes after."""
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
                    raise not_there(task)
                if interrupted.get()():
                    raise Interrupted(f"interrupted while {named(number, task.client)} was waited for")
                self._pump(None)
        if isinstance(done, Failure):
            raise InputError(f"{named(number, task.client)} failed: {done.sentence}") from done.cause
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
                self._put(number, Asked(version, parameters, due, None, part))

    def evaluated(self, patience: float = 0.0) -> list[tuple[int, ScoreSums]]:
        """The evaluations done since the last call, in the order asked for; waits so many seconds for an answer."""
        scores = []
        with self._lock:
            if self._evaluations:
                self._pump(patience)
            while self._evaluations and not self._is_open(self._evaluations[0][1]):
                version, numbers = self._evaluations.popleft()
                parts = [self._scores.pop(number) for number in numbers]
                if failed := next((part for part in parts if isinstance(part, Failure)), None):
                    raise InputError(f"evaluating version {version} failed: {failed.sentence}") from failed.cause
                scores.append((version, total([part for part in parts if isinstance(part, ScoreSums)])))
        return scores

    def state(self) -> State:
        """What clients remember; what is under way is no part of it."""
        with self._lock:
            return self._memories.state()

    def restore(self, state: State) -> None:
        """Clients remember that instead."""
        with self._lock:
            self._memories.restore(state)

    # For the executors

    @abstractmethod
    def _check(self, local: Local) -> None:
        """Refuses a strategy's local rules that the workers cannot be given."""

    @abstractmethod
    def _announce(self, placement: Placement) -> None:
        """Tells the workers, who have nothing to do, that a run begins."""

    @abstractmethod
    def _pump(self, patience: float | None) -> None:
        """Takes the answers that are there, or waits a moment for one; and hands out new work."""

    @abstractmethod
    def _hand(self, worker: Hand, number: int, asked: Asked) -> None:
        """Gives a worker something to compute."""

    def _may_be_handed(self, worker: Hand) -> bool:
        return len(worker.jobs) < DEPTH

    def _hand_out(self) -> None:
        """Whoever has the least to do gets what will be read first, until everyone has enough."""
        while self._waiting:
            free = filter(self._may_be_handed, self._workers)
            worker = min(free, key=lambda each: len(each.jobs), default=None)
            if worker is None:
                return
            _, _, number = heappop(self._waiting)
            if number in self._orders:
                self._hand(worker, number, self._orders[number])

    def _blame(self, worker: Hand, kind: str, how: str, *, allowed: int = 1) -> None:
        """A worker has died, not more often than is allowed: by its job, wherever that kills, or else by itself."""
        what = worker.doing
        blamed = worker.jobs[0].number if worker.ready and worker.jobs else id(worker)
        self._deaths[kind, what, blamed] += 1
        if self._deaths[kind, what, blamed] > allowed:
            times = "twice" if allowed == 1 else f"{allowed + 1} times"
            raise WorkerError(f"{kind} died {times} at {what} ({how}), perhaps for want of memory: try fewer workers")

    def _wait_again(self, jobs: Iterable[Handed[Any]]) -> None:
        for job in jobs:
            if job.number in self._orders:
                heappush(self._waiting, (job.asked.due, next(self._sequence), job.number))

    def _is_open(self, numbers: list[int]) -> bool:
        return any(number not in self._scores for number in numbers)

    def _put(self, number: int, asked: Asked) -> None:
        self._orders[number] = asked
        heappush(self._waiting, (asked.due, next(self._sequence), number))
        self._hand_out()
