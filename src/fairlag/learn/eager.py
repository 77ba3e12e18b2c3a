"""Local training of any model in PyTorch, one task after the other."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fairlag.core.types import Integers
from fairlag.core.vector import Vector
from fairlag.learn import transfer
from fairlag.learn.batches import Batches
from fairlag.learn.descent import Descent
from fairlag.learn.examples import Examples
from fairlag.learn.exclusive import exclusive
from fairlag.learn.flat import Flat
from fairlag.learn.local import Recipe
from fairlag.learn.own import Context, OwnTraining
from fairlag.learn.task import Task
from fairlag.learn.transfer import CPU
from fairlag.rules.local import SharingDirection

_AS_IT_IS = nullcontext()


class LocalTask(NamedTuple):
    """What a task trains: on which examples, and how much."""

    key: int
    client: int
    version: int
    examples: Integers
    steps: int
    batches: int
    """How many batches the steps take together."""
    lr: float


class Eager:
    """Trains and evaluates a model; results depend only on the arguments and the data."""

    def __init__(
        self,
        model: torch.nn.Module,
        recipe: Recipe,
        examples: Examples,
        task: Task,
        train: Callable[..., Any] | None = None,
        device: torch.device = CPU,
    ) -> None:
        """`train` is the user's own function if the recipe names one; the model is moved to the device."""
        self._flat = Flat(model, device)
        self._recipe = recipe
        self._task = task
        self._batch = Batches(examples, device)
        self._descent = Descent(self._flat, recipe)
        self._shares = isinstance(recipe.direction, SharingDirection)
        self._own = None if train is None else OwnTraining(train, self._flat, recipe)

    @property
    def size(self) -> int:
        """The number of trained parameters."""
        return self._flat.trained

    @property
    def width(self) -> int:
        """How many numbers a version and an update have: the model's, and those of a vector from the server."""
        layout = self._flat.layout
        return layout.size + (layout.parameters.size if self._shares else 0)

    @property
    def remembered(self) -> int:
        """How many numbers a client remembers between tasks."""
        return self._descent.remembered

    def train(
        self, task: LocalTask, parameters: Vector, out: Vector, memory: Vector | None = None
    ) -> tuple[int, list[float]]:
        """Writes the update into `out`, and overwrites the client's memory.

        If the direction takes a vector from the server, the parameters end with it, and the update with its change.
        Returns the number of steps, and the squared losses of the examples if the recipe asks for them.
        """
        flat, size = self._flat, self._flat.layout.size
        start, shared = parameters[:size], parameters[size : size + flat.trained]
        flat.load(start)
        flat.model.train()
        with exclusive(task.key, flat.device):
            self._descent.begin(task.lr, memory, shared)
            chosen = _batches(task.examples, self._recipe.batch, task.batches, task.key)
            made = self._by_steps(task, chosen) if self._own is None else self._by_own(task, chosen, memory)
        flat.write_update(start, out[:size])
        if len(out) > size:
            reach = task.lr * self._recipe.effort(made[0], task.lr)
            self._descent.share(out[: flat.trained], reach, out[size:])
        return made

    def _by_steps(self, task: LocalTask, batches: Iterator[Integers]) -> tuple[int, list[float]]:
        flat, recipe, squares = self._flat, self._recipe, list[float]()
        together = recipe.accumulate or 1
        for step in range(task.steps):
            flat.gradient.zero_()
            count = min(together, task.batches - step * together)
            for chosen in islice(batches, count):
                inputs, labels = self._batch(chosen)
                with self._autocast():
                    output = flat.model(inputs)
                    losses = self._task.losses(output, labels)
                    loss = losses.mean()
                (loss if count == 1 else loss / count).backward()  # type: ignore[no-untyped-call]
                if recipe.losses:
                    squares += _per_example(transfer.fetched(losses.detach()), len(chosen)).double().square().tolist()
            self._descent.step(task.lr * recipe.factor(step, task.steps))
        self._descent.end()
        return task.steps, squares

    def _by_own(self, task: LocalTask, batches: Iterator[Integers], memory: Vector | None) -> tuple[int, list[float]]:
        assert self._own is not None
        key, client, version, _, steps, _, lr = task
        rows = self._own.rows(memory)
        made = self._own(map(self._batch, batches), Context(lr, steps, version, client, key, self._loss, rows))
        self._own.keep(rows, memory)
        return made

    def _loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The mean loss of a batch."""
        return self._task.losses(output, target).mean()

    def _autocast(self) -> AbstractContextManager[None]:
        """Inside, the model computes in the recipe's precision."""
        if self._recipe.precision is None:
            return _AS_IT_IS
        return torch.autocast(self._flat.device.type, getattr(torch, self._recipe.precision))

    def evaluated(
        self, parameters: Vector, examples: Integers, seed: int
    ) -> tuple[dict[str, NDArray[Any]], tuple[NDArray[Any], NDArray[Any]] | None]:
        """What each example adds to the loss and the metrics, and the predictions that metrics need."""
        self._flat.load(parameters[: self._flat.layout.size])
        self._flat.model.eval()
        # A model may draw random numbers here too. Not inference_mode: tensors that a model keeps could not be trained.
        with exclusive(seed, self._flat.device), torch.no_grad():
            inputs, labels = self._batch(examples)
            # Scores are computed on the CPU: they are summed in float64, which not every device has.
            output, labels = transfer.fetched(self._flat.model(inputs)), transfer.fetched(labels)
            return self._task.measured(output, labels), self._task.kept(output, labels)

    def moved(self, parameters: Vector, update: Vector) -> Vector:
        """The parameters after an update."""
        return self._flat.moved(parameters, update)


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
