"""The executor that computes in this process: each task when it is read, each evaluation when it is asked for."""

from threading import Lock

import numpy as np
import torch

from fairlag.data.dataset import Dataset
from fairlag.errors import InputError
from fairlag.execute import named, not_there
from fairlag.learn.learner import Blueprint, Learner, Placement, Score, chunks, keep_memory, reason, task_key, total
from fairlag.learn.models import one_thread
from fairlag.types import Dispatch, Update
from fairlag.vector import Vector


class Serial:
    """Trains and evaluates one after the other, with one thread."""

    def __init__(self, blueprint: Blueprint, data: Dataset, placement: Placement) -> None:
        keep_memory()
        self._random = torch.get_rng_state()
        self._blueprint = blueprint
        self._data = data
        self._lock = Lock()
        """There is only one model: whoever asks from another thread waits."""
        self._engage(0, placement)
        self._parameters: dict[int, Vector] = {}
        self._scores: list[tuple[int, Score]] = []

    def begin(self, seed: int, placement: Placement) -> None:
        """A new run, of that seed."""
        self._engage(seed, placement)
        self._parameters.clear()
        self._scores.clear()

    def _engage(self, seed: int, placement: Placement) -> None:
        self._seed = seed
        self._learner = Learner(self._blueprint, self._data.inputs, self._data.labels, placement, seed)

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        """Remembers what the task starts from."""
        self._parameters[task.task] = parameters

    def result(self, task: Dispatch) -> Update:
        """Trains, now."""
        parameters = self._parameters.pop(task.task, None)
        if parameters is None:
            raise not_there(task)
        delta = np.empty_like(parameters)
        key = task_key(self._seed, task.client, task.ordinal)
        try:
            with self._lock, one_thread():
                examples = self._learner.train(key, task.client, task.version, parameters, delta)
        except Exception as error:
            raise InputError(f"{named(task.task, task.client)} failed: {reason(error)}") from error
        delta.flags.writeable = False
        return Update(delta, examples)

    def discard(self, number: int) -> None:
        """Forgets the task."""
        self._parameters.pop(number, None)

    def evaluate(self, version: int, parameters: Vector, due: float, stop: int) -> None:
        """Evaluates a version on the first test examples up to `stop`, now."""
        try:
            with self._lock, one_thread():
                parts = [self._learner.evaluate(parameters, *part) for part in chunks(stop)]
        except Exception as error:
            raise InputError(f"evaluating version {version} failed: {reason(error)}") from error
        self._scores.append((version, total(parts)))

    def evaluated(self, patience: float = 0.0) -> list[tuple[int, Score]]:
        """The evaluations that are done since the last call, in the order in which they were asked for."""
        scores, self._scores = self._scores, []
        return scores

    def close(self) -> None:
        """Gives torch's own generator back as it was found: every task seeds it."""
        torch.set_rng_state(self._random)
