"""The other side of the Ray executor: an actor that is given the data once, and computes one job after the other."""

import os
import pickle
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fairlag.core.types import Integers, Report
from fairlag.core.vector import Vector
from fairlag.execute.worker import Beginning
from fairlag.learn.blas import ONE_THREAD
from fairlag.learn.failure import Failure
from fairlag.learn.learner import Blueprint, Learner, Order, Placement, ScoreSums, keep_memory

Trained = tuple[Vector, Vector, Report]
"""An update, what its client is to remember, and what is said of it."""


class Actor:
    """Computes as a worker process does: with one thread, and the same bytes."""

    def __init__(
        self, blueprint: bytes, inputs: NDArray[Any], labels: Integers, *, place: str, path: list[str]
    ) -> None:
        """The data are in the memory that all actors of a node share; the place is the folder to work in.

        The blueprint comes pickled: a user's own functions in it are found only once Python looks for modules where the
        main process does.
        """
        with suppress(OSError):  # on another machine there may be no such folder
            os.chdir(place)
        sys.path += [each for each in path if each not in sys.path]
        torch.set_num_threads(1)
        keep_memory()
        ONE_THREAD.__enter__()
        self._given: tuple[Blueprint, NDArray[Any], Integers] = pickle.loads(blueprint), inputs, labels

    def begin(self, beginning: Beginning, placement: Placement) -> tuple[str, int, Failure | None]:
        """From now on everything is for that run; answers which node and process this is, and why there is no model."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        try:
            self._learner = Learner(*self._given, placement, *beginning)
        except Exception as error:
            return node, os.getpid(), Failure.of(error)
        return node, os.getpid(), None

    def train(self, order: Order, parameters: Vector, memory: Vector) -> Trained | Failure:
        """The update of a task, or what went wrong."""
        delta, remembered = np.empty_like(parameters), memory.copy()  # what Ray hands over cannot be written
        try:
            report = self._learner.train(order, parameters, delta, remembered)
        except Exception as error:
            return Failure.of(error)
        return delta, remembered, report

    def evaluate(self, parameters: Vector, start: int, stop: int) -> ScoreSums | Failure:
        """The sums over some test examples, or what went wrong."""
        try:
            return self._learner.evaluate(parameters, start, stop)
        except Exception as error:
            return Failure.of(error)
