"""The worker side of the Ray executor: an actor that gets the data once, and computes one job after the other."""

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
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.evaluation import Found, Part, scored
from fairlag.learn.failure import Failure
from fairlag.learn.learner import Learner, Order, keep_memory
from fairlag.learn.placement import Placement

Trained = tuple[Vector, Vector, Report]
"""An update, its client's new memory, and its report."""


class Actor:
    """Computes like a worker process: with one thread, and byte-identical."""

    def __init__(
        self, blueprint: bytes, inputs: NDArray[Any], labels: Integers, *, place: str, path: list[str]
    ) -> None:
        """The data are in memory that all actors of a node share; `place` is the working folder.

        The blueprint is pickled: it may name the user's own functions, which Python finds only after the main process's
        module path is set.
        """
        with suppress(OSError):  # on another machine the folder may not exist
            os.chdir(place)
        sys.path += [each for each in path if each not in sys.path]
        torch.set_num_threads(1)
        keep_memory()
        ONE_THREAD.__enter__()
        self._given: tuple[Blueprint, NDArray[Any], Integers] = pickle.loads(blueprint), inputs, labels

    def begin(self, beginning: Beginning, placement: Placement) -> tuple[str, int, Failure | None]:
        """Starts a run; returns the node and the process of this actor, and a failure if the model cannot be built."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        try:
            self._learner = Learner(*self._given, placement, *beginning)
        except Exception as error:
            return node, os.getpid(), Failure.of(error)
        return node, os.getpid(), None

    def train(self, order: Order, parameters: Vector, memory: Vector) -> Trained | Failure:
        """The update of a task, or the failure."""
        delta, remembered = np.empty_like(parameters), memory.copy()  # arrays from Ray are read-only
        try:
            report = self._learner.train(order, parameters, delta, remembered)
        except Exception as error:
            return Failure.of(error)
        return delta, remembered, report

    def evaluate(self, parameters: Vector, part: Part) -> Found | Failure:
        """What a part of an evaluation finds, or the failure."""
        try:
            return scored(self._learner, parameters, part)
        except Exception as error:
            return Failure.of(error)
