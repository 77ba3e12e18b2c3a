"""What another process needs to build the same learner, and which way of training it then chooses."""

from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fairlag.data.stream import Stream
from fairlag.fastpath import other_field
from fairlag.learn import models, own
from fairlag.learn.devices import CPU
from fairlag.learn.local import Recipe
from fairlag.learn.small import BATCHED, BATCHED_TASK, COMPILED
from fairlag.learn.stack import Stack, recognised
from fairlag.learn.tasks import TaskUse
from fairlag.rules.local import Local


@dataclass(frozen=True, slots=True)
class Blueprint:
    """Everything that another process needs to build the same learner, except the data; it is sent once."""

    model: str | Callable[..., torch.nn.Module]
    parameters: dict[str, object]
    recipe: Recipe
    shape: tuple[int, ...]
    classes: int
    scale: float
    offset: float
    stream: Stream | None = None
    folder: Path | None = None
    compiled: bool = False
    """Does the experiment ask for compiled training? It needs the extra `fast` in every process that trains tasks."""
    task: TaskUse = TaskUse()  # noqa: RUF009 (frozen)
    target: tuple[int, ...] = ()
    """The shape of one label."""
    tokens: bool = False
    """Are the inputs token ids, which are int64?"""
    device: str = CPU
    """Where models are trained and evaluated; they are always built on the CPU, so they begin the same everywhere."""

    def build(self, seed: int) -> torch.nn.Module:
        """The model with the initial weights of this seed."""
        task = self.task.build(self.folder)
        return models.build(
            self.model,
            self.parameters,
            shape=self.shape,
            classes=self.classes,
            seed=seed,
            folder=self.folder,
            fits=lambda name, output: task.check(name, output, self.target, self.classes),
            tokens=self.tokens,
        )

    @property
    def train(self) -> Callable[..., Any] | None:
        """The user's own train function, imported; None if there is none."""
        return own.found(self.recipe, self.folder)

    def is_batched(self, local: Local) -> bool:
        """Are tasks trained together in a run whose strategy asks for `local`?"""
        return self.stack(self.build(0), local) is not None

    def is_compiled(self, local: Local) -> bool:
        """Are tasks trained by compiled loops in a run whose strategy asks for `local`?"""
        return self.compiles(self.stack(self.build(0), local), local)

    def stack(self, model: torch.nn.Module, local: Local) -> Stack | None:
        """The model as a stack, if its tasks are trained together; depends only on the model and the settings."""
        return recognised(model, self.shape) if self._unknown_to(BATCHED, local) is None else None

    def unimplemented(self, local: Local) -> str | None:
        """The key that keeps a small model from being trained the fast way; None if there is none."""
        key = self._unknown_to(COMPILED if self.compiled else BATCHED, local)
        return None if key is None or recognised(self.build(0), self.shape) is None else key

    def _unknown_to(self, known: Set[str], local: Local) -> str | None:
        """The first key of the experiment that a way of training does not know, which knows these of [local]."""
        if self.device != CPU:
            return "device"
        if self.tokens:
            return "data.use"
        if (field := other_field(self.task, BATCHED_TASK)) is not None:
            return f"task.{field}"
        return None if (field := other_field(self.recipe.asked(local), known)) is None else f"local.{field}"

    def compiles(self, stack: Stack | None, local: Local) -> bool:
        """Do compiled loops train this stack? Only if the experiment asks for it and they know all of the recipe."""
        return self.compiled and stack is not None and other_field(self.recipe.asked(local), COMPILED) is None
