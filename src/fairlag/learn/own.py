"""Local training by a function of the user's own: `train(model, batches, context)`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path

import torch

from fairlag import imported
from fairlag.core.vector import Vector
from fairlag.learn.flat import Flat
from fairlag.learn.local import Recipe
from fairlag.learn.transfer import download, upload

Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_MAY_RETURN = frozenset(("steps", "loss"))


@dataclass(frozen=True, slots=True)
class Context:
    """What a train function is told about its task."""

    lr: float
    """The step size: that of the experiment at the task's version, times the pace that a strategy asks for."""
    steps: int
    """The number of steps that is asked for; 0 if the client has no examples."""
    version: int
    """The version of the model that the client received."""
    client: int
    seed: int
    """A number that differs for every task; torch's own random numbers already follow from it."""
    loss: Loss
    """The loss of (outputs, targets)."""
    memory: torch.Tensor | None
    """The client's memory, one row per vector of `memory` in [local]; at first 0. What is written into it is kept."""


def found(recipe: Recipe, folder: Path | None) -> imported.Maker | None:
    """The train function of a recipe; None if it has none."""
    return None if recipe.train is None else imported.found(recipe.train, {}, "train function", folder)


class OwnTraining:
    """Calls the user's function, so that no task depends on what an earlier one did to the model."""

    def __init__(self, train: imported.Maker, flat: Flat, recipe: Recipe) -> None:
        self._train, self._flat, self._recipe = train, flat, recipe
        self._name = imported.name_of(recipe.train)
        self._parameters = {
            name: (each, each.data.data_ptr(), each.requires_grad) for name, each in flat.model.named_parameters()
        }

    def rows(self, memory: Vector | None) -> torch.Tensor | None:
        """The client's memory as the function sees it: on the CPU, changes are kept at once."""
        if memory is None or self._recipe.memory is None:
            return None
        return upload(memory, self._flat.device).view(self._recipe.memory, -1)

    def keep(self, rows: torch.Tensor | None, memory: Vector | None) -> None:
        """Writes what the function remembers back into the client's memory."""
        if rows is not None and memory is not None and rows.device.type != "cpu":
            memory[:] = download(rows).reshape(-1)

    def __call__(self, batches: Batches, context: Context) -> tuple[int, list[float]]:
        """The number of steps, and the squared loss if the recipe asks for losses."""
        for each, _, trained in self._parameters.values():
            each.grad = None
            each.requires_grad_(trained)
        told = self._train(self._flat.model, batches, context)
        for name, (each, place, _) in self._parameters.items():
            if each.data.data_ptr() != place:
                raise ValueError(f"{self._name} replaced the tensor of the parameter {name!r}: change it in place")
        return self._checked({} if told is None else told, context.steps)

    def _checked(self, told: object, steps: int) -> tuple[int, list[float]]:
        if not isinstance(told, Mapping):
            raise TypeError(f"{self._name} returned {type(told).__name__}, it must return a dictionary or None")
        for key, value in told.items():
            if key not in _MAY_RETURN or not isinstance(value, Real):
                known = " and ".join(map(repr, sorted(_MAY_RETURN)))
                raise ValueError(f"{self._name} returned {key!r}: {value!r}, it may return the numbers {known}")
        if self._recipe.losses and "loss" not in told:
            raise ValueError(
                f"the strategy asks for losses, so {self._name} must return {{'loss': …}}: "
                "the root of the mean squared loss of its examples"
            )
        squares = [float(told["loss"]) ** 2] if self._recipe.losses else []
        return int(told.get("steps", steps)), squares
