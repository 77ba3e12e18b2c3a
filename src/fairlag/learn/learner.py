"""A model, the data and the rules of local training in one place: computes tasks and evaluations, in any process."""

import ctypes
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
from fairlag.learn import models
from fairlag.learn.flat import Flat
from fairlag.learn.local import Local
from fairlag.types import Floats, Integers
from fairlag.vector import Vector

CHUNK = 250
"""How many examples are evaluated at once: the sums over a chunk do not depend on who computes it."""

_ALLOCATOR = {-3: 1 << 25, -1: 1 << 29, -2: 1 << 26}
"""M_MMAP_THRESHOLD (as high as glibc takes it), M_TRIM_THRESHOLD and M_TOP_PAD: memory of big tensors is used again."""


@dataclass(frozen=True, slots=True)
class Blueprint:
    """All that another process needs to build the same learner, apart from the data; it travels once."""

    model: str | Callable[..., torch.nn.Module]
    parameters: dict[str, object]
    local: Local
    shape: tuple[int, ...]
    classes: int
    scale: float
    offset: float
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


class Learner:
    """Computes what tasks compute; every result is a function of its arguments and of the data alone."""

    def __init__(
        self, blueprint: Blueprint, inputs: NDArray[Any], labels: Integers, placement: Placement, seed: int = 0
    ) -> None:
        """The seed is that of the run: what does not travel, such as integer buffers, has the value it gives."""
        self._blueprint = blueprint
        self._local = blueprint.local
        self._inputs = inputs
        self._labels = labels
        self._placement = placement
        self._flat = Flat(blueprint.build(seed))
        self._start = torch.empty_like(self._flat.vector)
        self._velocity = torch.empty_like(self._flat.weights) if self._local.momentum else None
        self._drift = torch.empty_like(self._flat.weights) if self._local.prox else None

    def train(self, key: int, client: int, version: int, parameters: Vector, out: Vector) -> int:
        """Writes the update of a task into `out`; returns the number of the client's examples.

        The key determines all that is random: the batches, dropout, and whatever else the model draws from torch.
        """
        flat, local = self._flat, self._local
        flat.load(parameters)
        self._start.copy_(flat.vector)
        flat.model.train()
        if self._velocity is not None:
            self._velocity.zero_()
        torch.default_generator.manual_seed(key)  # torch.manual_seed also looks for every kind of device, each time
        lr = local.lr.at(version)
        mine = self._placement.of(client)
        for chosen in _batches(mine, local, key):
            flat.gradient.zero_()
            inputs, labels = self._batch(chosen)
            functional.cross_entropy(flat.model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            self._step(lr)
        flat.subtract(parameters, out)
        return len(mine)

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

    def _step(self, lr: float) -> None:
        """One step of gradient descent on the flat vector: decay, pull, momentum, step."""
        local, weights, gradient = self._local, self._flat.weights, self._flat.gradient
        if local.weight_decay:
            gradient.add_(weights, alpha=local.weight_decay)
        if self._drift is not None:
            torch.sub(weights, self._start[: self._flat.trained], out=self._drift)
            gradient.add_(self._drift, alpha=local.prox)
        if self._velocity is not None:
            gradient = self._velocity.mul_(local.momentum).add_(gradient)
        weights.add_(gradient, alpha=-lr)


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


def _batches(examples: Integers, local: Local, key: int) -> Iterator[Integers]:
    """Batches drawn without replacement within each epoch."""
    generator = np.random.Generator(np.random.PCG64(key))
    left = local.batches(len(examples)) if len(examples) else 0
    while left:
        order = generator.permutation(examples)
        for start in range(0, len(order), local.batch):
            if not left:
                return
            left -= 1
            yield order[start : start + local.batch]


def reason(error: Exception) -> str:
    """An exception of the model's own code in one line.

    >>> reason(ValueError("no\\nsuch layer"))
    'ValueError: no such layer'
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
