"""Local training of any model in PyTorch, one task after the other."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fairlag.core.types import Floats, Integers
from fairlag.core.vector import Matrix, Vector
from fairlag.learn.examples import Examples
from fairlag.learn.exclusive import exclusive
from fairlag.learn.flat import Flat
from fairlag.learn.local import Recipe


class Eager:
    """Trains and judges a model; what comes out is a function of what goes in, and of the data."""

    def __init__(self, model: torch.nn.Module, recipe: Recipe, examples: Examples) -> None:
        self._flat = Flat(model)
        self._recipe = recipe
        self._inputs, self._labels = examples.inputs, examples.labels
        self._scaling = examples.scaling
        self._velocity = torch.empty_like(self._flat.weights) if recipe.momentum else None
        self._start = torch.empty_like(self._flat.weights) if recipe.prox else None
        self._drift = torch.empty_like(self._flat.weights) if recipe.prox else None

    @property
    def size(self) -> int:
        """How many numbers of the model are trained."""
        return self._flat.trained

    @property
    def remembered(self) -> int:
        """How many numbers a client remembers from one task to the next."""
        return 0 if self._recipe.direction is None else self._recipe.direction.vectors * self._flat.trained

    def train(
        self,
        key: int,
        examples: Integers,
        steps: int,
        lr: float,
        parameters: Vector,
        out: Vector,
        memory: Vector | None = None,
    ) -> list[float]:
        """Writes the update into `out`, and what the client is to remember over its memory.

        Returns the squared losses of the examples where the recipe asks for them.
        """
        flat, recipe, squares = self._flat, self._recipe, list[float]()
        flat.load(parameters)
        if self._start is not None:
            self._start.copy_(flat.weights)
        flat.model.train()
        if self._velocity is not None:
            self._velocity.zero_()
        recalled = None if recipe.direction is None or memory is None else memory.reshape(recipe.direction.vectors, -1)
        with exclusive(key):
            for chosen in _batches(examples, recipe.batch, steps, key):
                flat.gradient.zero_()
                inputs, labels = self._batch(chosen)
                output = flat.model(inputs)
                functional.cross_entropy(output, labels).backward()  # type: ignore[no-untyped-call]
                if recipe.losses:
                    losses = functional.cross_entropy(output.detach(), labels, reduction="none").double()
                    squares += (losses * losses).tolist()
                self._step(lr, recalled)
        flat.write_update(parameters, out)
        return squares

    def judged(self, parameters: Vector, examples: Integers, seed: int) -> tuple[Floats, NDArray[Any]]:
        """The loss of each example, and whether the model is right about it."""
        self._flat.load(parameters)
        self._flat.model.eval()
        # A model may draw even now. Not inference_mode: what a model keeps from it could not be used in training.
        with exclusive(seed), torch.no_grad():
            inputs, labels = self._batch(examples)
            output = self._flat.model(inputs)
            losses = functional.cross_entropy(output, labels, reduction="none").double().numpy()
            return losses, (output.argmax(1) == labels).numpy()

    def _batch(self, chosen: Integers) -> tuple[torch.Tensor, torch.Tensor]:
        # Into a tensor of our own: how torch computes depends on the strides, even on those of axes of length 1.
        inputs = torch.empty(len(chosen), *self._inputs.shape[1:]).copy_(torch.from_numpy(self._inputs[chosen]))
        if self._scaling is not None:
            inputs = inputs.mul_(self._scaling[0]).add_(self._scaling[1])
        return inputs, torch.from_numpy(self._labels[chosen])

    def _step(self, lr: float, memory: Matrix | None) -> None:
        """One step of gradient descent on the flat vector: decay, pull, turn, momentum, step."""
        recipe, weights, gradient = self._recipe, self._flat.weights, self._flat.gradient
        if recipe.weight_decay:
            gradient.add_(weights, alpha=recipe.weight_decay)
        if self._start is not None:
            gradient.add_(torch.sub(weights, self._start, out=self._drift), alpha=recipe.prox)
        if recipe.direction is not None and memory is not None:
            recipe.direction.turn(gradient.numpy(), memory)
        if self._velocity is not None:
            gradient = self._velocity.mul_(recipe.momentum).add_(gradient)
        weights.add_(gradient, alpha=-lr)


def _batches(examples: Integers, size: int, count: int, key: int) -> Iterator[Integers]:
    """So many batches, drawn without replacement within each epoch."""
    generator = np.random.Generator(np.random.PCG64(key))
    left = count
    while left:
        order = generator.permutation(examples)
        for start in range(0, len(order), size):
            if not left:
                return
            left -= 1
            yield order[start : start + size]
