"""Local training of any model in PyTorch, one task after the other."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fairlag.core.types import Integers
from fairlag.core.vector import Matrix, Vector
from fairlag.learn.examples import Examples
from fairlag.learn.exclusive import exclusive
from fairlag.learn.flat import Flat
from fairlag.learn.local import Recipe
from fairlag.learn.task import Task


class Eager:
    """Trains and evaluates a model; results depend only on the arguments and the data."""

    def __init__(self, model: torch.nn.Module, recipe: Recipe, examples: Examples, task: Task) -> None:
        self._flat = Flat(model)
        self._recipe = recipe
        self._task = task
        self._inputs, self._labels = examples.inputs, examples.labels
        self._scaling = examples.scaling
        self._velocity = torch.empty_like(self._flat.weights) if recipe.momentum else None
        self._start = torch.empty_like(self._flat.weights) if recipe.prox else None
        self._drift = torch.empty_like(self._flat.weights) if recipe.prox else None

    @property
    def size(self) -> int:
        """The number of trained parameters."""
        return self._flat.trained

    @property
    def remembered(self) -> int:
        """How many numbers a client remembers between tasks."""
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
        """Writes the update into `out`, and overwrites the client's memory.

        Returns the squared losses of the examples if the recipe asks for them.
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
                losses = self._task.losses(output, labels)
                losses.mean().backward()  # type: ignore[no-untyped-call]
                if recipe.losses:
                    squares += _per_example(losses.detach(), len(chosen)).double().square().tolist()
                self._step(lr, recalled)
        flat.write_update(parameters, out)
        return squares

    def evaluated(
        self, parameters: Vector, examples: Integers, seed: int
    ) -> tuple[dict[str, NDArray[Any]], tuple[NDArray[Any], NDArray[Any]] | None]:
        """What each example adds to the loss and the metrics, and the predictions that metrics need."""
        self._flat.load(parameters)
        self._flat.model.eval()
        # A model may draw random numbers here too. Not inference_mode: tensors that a model keeps could not be trained.
        with exclusive(seed), torch.no_grad():
            inputs, labels = self._batch(examples)
            output = self._flat.model(inputs)
            return self._task.measured(output, labels), self._task.kept(output, labels)

    def _batch(self, chosen: Integers) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.from_numpy(self._labels[chosen])
        if self._inputs.dtype == np.int64:
            return torch.from_numpy(self._inputs[chosen]), labels
        # Into a new tensor: torch's results depend on the strides, even those of axes of length 1.
        inputs = torch.empty(len(chosen), *self._inputs.shape[1:]).copy_(torch.from_numpy(self._inputs[chosen]))
        if self._scaling is not None:
            inputs = inputs.mul_(self._scaling[0]).add_(self._scaling[1])
        return inputs, labels

    def _step(self, lr: float, memory: Matrix | None) -> None:
        """One step of gradient descent on the flat vector: weight decay, proximal term, direction, momentum, step."""
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


def _per_example(losses: torch.Tensor, examples: int) -> torch.Tensor:
    """One loss per example: the mean over its labels, or the batch's if the task has only that."""
    return losses.expand(examples) if losses.ndim == 0 else losses.flatten(1).mean(1) if losses.ndim > 1 else losses


def _batches(examples: Integers, size: int, count: int, key: int) -> Iterator[Integers]:
    """A number of batches, drawn without replacement within each epoch."""
    generator = np.random.Generator(np.random.PCG64(key))
    left = count
    while left:
        order = generator.permutation(examples)
        for start in range(0, len(order), size):
            if not left:
                return
            left -= 1
            yield order[start : start + size]
