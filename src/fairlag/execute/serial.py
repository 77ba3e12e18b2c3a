"""The executor that computes in this process: each task when it is read, each evaluation when it is requested.

For small models, a task is computed together with those that will be read next.
"""

from contextlib import ExitStack
from heapq import heappop, heappush
from threading import Lock

import numpy as np

from fairlag.core.state import State
from fairlag.core.types import Dispatch, Update
from fairlag.core.vector import Vector
from fairlag.data.dataset import Dataset
from fairlag.errors import InputError
from fairlag.execute import named, not_submitted
from fairlag.execute.memories import Memories
from fairlag.learn.blas import ONE_THREAD
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.evaluation import Asked, Found, joined, parts, scored
from fairlag.learn.failure import reason
from fairlag.learn.learner import Learner, Order, keep_memory
from fairlag.learn.placement import Placement
from fairlag.rules.local import Local

_MAX_TOGETHER = 64
"""The most tasks computed together: their results are kept until they are read."""


class Serial:
    """Trains and evaluates one after the other, with one thread."""

    def __init__(self, blueprint: Blueprint, data: Dataset, placement: Placement) -> None:
        keep_memory()
        self._blueprint = blueprint
        self._data = data
        self._held = ExitStack()
        self._lock = Lock()
        """There is only one model, so a second thread waits."""
        self._reset(0, placement, Local())

    def begin(self, seed: int, placement: Placement, local: Local = Local()) -> None:  # noqa: B008 (frozen)
        """Starts a new run with this seed, whose strategy asks for `local`."""
        self._reset(seed, placement, local)

    def warm_up(self) -> None:
        """Returns at once: there are no workers to start."""

    def _reset(self, seed: int, placement: Placement, local: Local) -> None:
        self._seed = seed
        self._tasks: dict[int, tuple[Dispatch, Vector]] = {}
        self._waiting: list[tuple[float, int]] = []
        """A heap of tasks that may be computed together, by when they will be read; some may have been discarded."""
        self._done: dict[int, Update] = {}
        self._scores: list[tuple[int, Found]] = []
        self._learner = Learner(self._blueprint, self._data.inputs, self._data.labels, placement, seed, local)
        self._memories = Memories(self._learner.remembered, len(placement.steps))
        self._batched = self._learner.batched
        self._held.close()
        if self._batched:
            self._held.enter_context(ONE_THREAD)

    @property
    def learner(self) -> Learner:
        """The learner; its caller must not use the executor at the same time."""
        return self._learner

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        """Keeps the task and its parameters."""
        number = task[0]
        self._tasks[number] = task, parameters
        if self._batched:
            heappush(self._waiting, (due, number))

    def result(self, task: Dispatch) -> Update:
        """Trains the task now, unless it was already trained together with another."""
        done = self._done.pop(task[0], None)
        if done is not None:
            return done
        with self._lock:
            done = self._done.pop(task[0], None)  # another thread may have trained it meanwhile
            if done is not None:
                return done
            if task[0] not in self._tasks:
                raise not_submitted(task)
            try:
                return self._together(task) if self._batched else self._alone(task)
            except Exception as error:
                raise InputError(f"{named(task.task, task.client)} failed: {reason(error)}") from error

    def _alone(self, task: Dispatch) -> Update:
        _, parameters = self._tasks.pop(task.task)
        delta, memory = np.empty_like(parameters), self._memories.of(task.client)
        report = self._learner.train(Order.of(task, self._seed), parameters, delta, memory)
        self._memories.keep(task.client, memory)
        delta.flags.writeable = False
        return Update(delta, report)

    def _together(self, task: Dispatch) -> Update:
        """Trains the task together with those that will be read next; each result is the same as alone."""
        tasks, waiting, some = self._tasks, self._waiting, [self._tasks.pop(task[0])]
        while waiting and len(some) < _MAX_TOGETHER:
            found = tasks.pop(heappop(waiting)[1], None)
            if found is not None:
                some.append(found)
        together, starts = zip(*some, strict=True)
        first, *others = self._learner.train_all(together, starts)
        self._done.update(zip([each[0] for each in together[1:]], others, strict=True))
        return first

    def discard(self, number: int) -> None:
        """Forgets the task."""
        with self._lock:
            self._tasks.pop(number, None)
            self._done.pop(number, None)

    def evaluate(self, version: int, parameters: Vector, due: float, asked: Asked) -> None:
        """Evaluates a version on the test examples up to a number, or on clients' own, now."""
        try:
            with self._lock:
                found = joined([scored(self._learner, parameters, part) for part in parts(asked)])
        except Exception as error:
            raise InputError(f"evaluating version {version} failed: {reason(error)}") from error
        self._scores.append((version, found))

    def evaluated(self, patience: float = 0.0) -> list[tuple[int, Found]]:
        """The evaluations since the last call, in order of request."""
        scores, self._scores = self._scores, []
        return scores

    def state(self) -> State:
        """The clients' memories."""
        return self._memories.state()

    def restore(self, state: State) -> None:
        """Replaces the clients' memories."""
        self._memories.restore(state)

    def close(self) -> None:
        """Restores NumPy's number of threads."""
        self._held.close()
