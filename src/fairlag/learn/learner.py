"""A model, the data and the rules of local training in one place: computes tasks and evaluations, in any process."""

import ctypes
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fairlag import seeds
from fairlag.data.stream import Stream
from fairlag.learn import models
from fairlag.learn.flat import Flat
from fairlag.learn.local import Recipe
from fairlag.rules.local import Local
from fairlag.types import Dispatch, Floats, Integers, Report
from fairlag.vector import Matrix, Vector

CHUNK = 250
"""How many examples are evaluated at once: the sums over a chunk do not depend on who computes it."""

_ALLOCATOR = {-3: 1 << 25, -1: 1 << 29, -2: 1 << 26}
"""M_MMAP_THRESHOLD (as high as glibc takes it), M_TRIM_THRESHOLD and M_TOP_PAD: memory of big tensors is used again."""


@dataclass(frozen=True, slots=True)
class Blueprint:
    """All that another process needs to build the same learner, apart from the data; it travels once."""

    model: str | Callable[..., torch.nn.Module]
    parameters: dict[str, object]
    recipe: Recipe
    shape: tuple[int, ...]
    classes: int
    scale: float
    offset: float
    stream: Stream | None = None
    folder: Path | None = None

    def build(self, seed: int) -> torch.nn.Module:
        """The model with the first weights of that seed."""
        return models.build(
            self.model, self.parameters, shape=self.shape, classes=self.classes, seed=seed, folder=self.folder
        )


class Placement(NamedTuple):
    """Who holds which examples in a run, and which ones nobody trains on."""

    holdings: Integers
    """The training examples, client after client."""
    bounds: Integers
    """Client c holds holdings[bounds[c] : bounds[c + 1]]."""
    tests: Integers
    """The test examples, those of the sample first."""
    steps: Integers
    """Per client: how many local steps it makes by itself; 0: as the recipe says."""

    def of(self, client: int) -> Integers:
        """The examples of a client."""
        return self.holdings[self.bounds[client] : self.bounds[client + 1]]


class Score(NamedTuple):
    """Sums over evaluated examples, per class."""

    examples: Integers
    correct: Integers
    loss: Floats


def total(parts: Sequence[Score]) -> Score:
    """All parts together, added in their order."""
    return Score(*(sum(column[1:], column[0]) for column in zip(*parts, strict=True)))


def chunks(stop: int) -> list[tuple[int, int]]:
    """The pieces in which the first test examples up to `stop` are evaluated.

    >>> chunks(600)
    [(0, 250), (250, 500), (500, 600)]
    """
    return [(start, min(start + CHUNK, stop)) for start in range(0, stop, CHUNK)]


class Order(NamedTuple):
    """What a task is to compute: with which randomness, whose, from which version, and what is asked of it."""

    key: int
    client: int
    version: int
    time: float = 0.0
    steps: int = 0
    pace: float = 1.0

    @classmethod
    def of(cls, task: Dispatch, seed: int) -> "Order":
        """What a dispatched task of the run of that seed is to compute."""
        key = task_key(seed, task.client, task.ordinal)
        return cls(key, task.client, task.version, task.time, task.steps, task.pace)


class Learner:
    """Computes what tasks compute; every result is a function of its arguments and of the data alone."""

    def __init__(
        self,
        blueprint: Blueprint,
        inputs: NDArray[Any],
        labels: Integers,
        placement: Placement,
        seed: int = 0,
        local: Local = Local(),  # noqa: B008 (frozen)
    ) -> None:
        """The seed is that of the run: what does not travel, such as integer buffers, has the value it gives."""
        self._blueprint = blueprint
        self._recipe = blueprint.recipe.asked(local)
        self._inputs = inputs
        self._labels = labels
        self._placement = placement
        self._streams = seeds.key(seed, "stream")
        self._flat = Flat(blueprint.build(seed))
        self._start = torch.empty_like(self._flat.vector)
        self._velocity = torch.empty_like(self._flat.weights) if self._recipe.momentum else None
        self._drift = torch.empty_like(self._flat.weights) if self._recipe.prox else None

    @property
    def remembered(self) -> int:
        """How many numbers a client remembers from one task to the next."""
        return 0 if self._recipe.direction is None else self._recipe.direction.vectors * self._flat.trained

    def train(self, order: Order, parameters: Vector, out: Vector, memory: Vector | None = None) -> Report:
        """Writes the update of a task into `out`, and what its client is to remember over its memory.

        The order's key determines all that is random: the batches, dropout, and what else the model draws from torch.
        """
        flat, recipe = self._flat, self._recipe
        flat.load(parameters)
        self._start.copy_(flat.vector)
        flat.model.train()
        if self._velocity is not None:
            self._velocity.zero_()
        # Not torch.manual_seed, which also looks for every kind of device, each time.
        torch.default_generator.manual_seed(order.key)
        mine = self._visible(order)
        steps = order.steps or int(self._placement.steps[order.client]) or recipe.batches(len(mine))
        toll = _Toll(recipe, recipe.lr.at(order.version) * order.pace)
        recalled = None if recipe.direction is None or memory is None else memory.reshape(recipe.direction.vectors, -1)
        for chosen in _batches(mine, recipe.batch, steps, order.key):
            flat.gradient.zero_()
            inputs, labels = self._batch(chosen)
            output = flat.model(inputs)
            functional.cross_entropy(output, labels).backward()  # type: ignore[no-untyped-call]
            toll.count(output, labels)
            self._step(toll.lr, recalled)
        flat.subtract(parameters, out)
        return toll.report(len(mine))

    def _visible(self, order: Order) -> Integers:
        """The examples that the client has when the task begins."""
        mine, stream = self._placement.of(order.client), self._blueprint.stream
        if stream is None:
            return mine
        return mine[: stream.visible(len(mine), order.time, seeds.subkey(self._streams, order.client))]

    def evaluate(self, parameters: Vector, start: int, stop: int) -> Score:
        """The sums over the test examples from start to stop."""
        self._flat.load(parameters)
        self._flat.model.eval()
        torch.default_generator.manual_seed(start)  # a model may draw even now
        inputs, labels = self._batch(self._placement.tests[start:stop])
        with torch.no_grad():  # not inference_mode: what a model keeps from it could not be used in training
            output = self._flat.model(inputs)
            losses = functional.cross_entropy(output, labels, reduction="none").double().numpy()
            right = (output.argmax(1) == labels).numpy()
        count, each = self._blueprint.classes, labels.numpy()
        return Score(
            np.bincount(each, minlength=count),
            np.bincount(each[right], minlength=count),
            np.bincount(each, losses, minlength=count).astype(np.float64),
        )

    def _batch(self, chosen: Integers) -> tuple[torch.Tensor, torch.Tensor]:
        # Into a tensor of our own: how torch computes depends on the strides, even on those of axes of length 1.
        inputs = torch.empty(len(chosen), *self._blueprint.shape).copy_(torch.from_numpy(self._inputs[chosen]))
        if self._blueprint.scale != 1 or self._blueprint.offset != 0:
            inputs = inputs.mul_(self._blueprint.scale).add_(self._blueprint.offset)
        return inputs, torch.from_numpy(self._labels[chosen])

    def _step(self, lr: float, memory: Matrix | None) -> None:
        """One step of gradient descent on the flat vector: decay, pull, turn, momentum, step."""
        recipe, weights, gradient = self._recipe, self._flat.weights, self._flat.gradient
        if recipe.weight_decay:
            gradient.add_(weights, alpha=recipe.weight_decay)
        if self._drift is not None:
            torch.sub(weights, self._start[: self._flat.trained], out=self._drift)
            gradient.add_(self._drift, alpha=recipe.prox)
        if recipe.direction is not None and memory is not None:
            recipe.direction.turn(gradient.numpy(), memory)
        if self._velocity is not None:
            gradient = self._velocity.mul_(recipe.momentum).add_(gradient)
        weights.add_(gradient, alpha=-lr)


class _Toll:
    """Counts what a task does: its steps, how often its gradients count in the update, and its losses."""

    def __init__(self, recipe: Recipe, lr: float) -> None:
        self.lr = lr
        self._recipe = recipe
        self._steps = 0
        self._pushed = 0.0
        """How often gradients count in the present step: more than once with momentum."""
        self._effort = 0.0
        self._squares: list[float] = []

    def count(self, output: torch.Tensor, labels: torch.Tensor) -> None:
        """A step is made."""
        recipe = self._recipe
        self._steps += 1
        self._pushed = recipe.momentum * self._pushed + 1
        # The proximal term pulls back, at every step, a part of what was reached before.
        self._effort = self._effort * (1 - self.lr * recipe.prox) + self._pushed
        if recipe.losses:
            losses = functional.cross_entropy(output.detach(), labels, reduction="none").double()
            self._squares += (losses * losses).tolist()

    def report(self, examples: int) -> Report:
        """All that is said of the update."""
        squares = self._squares
        loss = math.sqrt(math.fsum(squares) / len(squares)) if squares else 0.0
        # Where a proximal term overshoots, what is left may be nothing; a report of nothing would be refused.
        effort = max(self._effort, sys.float_info.min) if self._steps else 0.0
        return Report(examples, self._steps, effort, loss)


def task_key(seed: int, client: int, ordinal: int) -> int:
    """The address of all randomness of a client's task of that ordinal."""
    return seeds.subkey(seeds.subkey(seeds.key(seed, "task"), client), ordinal)


def keep_memory() -> None:
    """Makes the allocator of this process keep the memory of big tensors, instead of giving it back and asking anew."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it, musl has not
        if mallopt is not None:
            for option, size in _ALLOCATOR.items():
                mallopt(option, size)


def _batches(examples: Integers, size: int, count: int, key: int) -> Iterator[Integers]:
    """So many batches, drawn without replacement within each epoch."""
    generator = np.random.Generator(np.random.PCG64(key))
    left = count if len(examples) else 0
    while left:
        order = generator.permutation(examples)
        for start in range(0, len(order), size):
            if not left:
                return
            left -= 1
            yield order[start : start + size]


def reason(error: Exception) -> str:
    """An exception of the model's own code in one line.

    >>> reason(ValueError("no\\nsuch layer"))
    'ValueError: no such layer'
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
