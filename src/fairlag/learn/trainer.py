"""Small models trained by compiled loops, task by task: the arrays that kernel.py works on. Needs the extra `fast`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlag.core import seeds
from fairlag.core.types import Integers
from fairlag.core.vector import Matrix
from fairlag.jit import make_ready
from fairlag.learn import kernel
from fairlag.learn.examples import Examples
from fairlag.learn.local import Recipe
from fairlag.learn.product import DEPTH, WIDTH
from fairlag.learn.stack import Stack


class CompiledTrainer:
    """Trains tasks of one kind of model; not from several threads at once, as they would write into the same room."""

    def __init__(self, stack: Stack, recipe: Recipe, examples: Examples, most: int) -> None:
        """The inputs are one row of numbers per example; a client has at most `most` of them."""
        batch = min(recipe.batch, most)
        settings = np.zeros(1, kernel.SETTINGS)
        settings["batch"], settings["stream"] = batch, seeds.key("batches")
        settings["factor"], settings["offset"] = examples.factor, examples.offset
        for name in ("momentum", "weight_decay", "prox"):
            settings[name] = getattr(recipe, name)
        layers, room = _laid_out(stack, batch)
        widest = int(layers[:, : kernel.WEIGHTS].max())
        self._known = settings, layers, *map(_fixed, (examples.inputs, examples.labels, examples.holdings))
        self._room = (
            np.empty(room, np.float32),
            np.empty((DEPTH + widest, WIDTH), np.float32),
            np.empty((3, stack.size), np.float32),
            np.empty((2, batch), np.float32),
            np.empty(batch, np.int64),
            np.empty((2, most), np.uint64),
            np.empty(2 * most, np.int64),
        )
        tasks, rates = np.empty((0, kernel.START + 1), np.int64), np.empty(0, np.float32)
        deltas = np.empty((0, stack.size), np.float32)
        make_ready(kernel.train, *self._arguments(tasks, rates, deltas, deltas))

    def train(self, tasks: Integers, rates: NDArray[np.float32], starts: Matrix, deltas: Matrix) -> bool:
        """Writes what each task changes, a row each, as the columns of kernel.py say; is all of it finite?"""
        return kernel.train(*self._arguments(tasks, rates, starts, deltas))

    def _arguments(self, *lot: NDArray[Any]) -> tuple[Any, ...]:
        return *self._known, *lot, *self._room


def _fixed(array: NDArray[Any]) -> NDArray[Any]:
    """The same, and never written to: arrays that may be are another kind to numba, and would be compiled for anew."""
    view = array.view()
    view.flags.writeable = False
    return view


def _laid_out(stack: Stack, batch: int) -> tuple[Integers, int]:
    """The layers as kernel.py has them, and how much room they need."""
    rows, room = [], 0
    for layer in stack.layers:
        _, outputs, inputs = layer.shape
        biases = -1 if layer.biases is None else layer.biases.start
        rows.append([inputs, outputs, layer.where.start, biases, room, room + inputs * batch])
        room += (inputs + outputs) * batch
    return np.array(rows), room
