"""Local training at a client: how many steps, on which batches, with which step size."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Protocol

from fairlag.errors import InputError
from fairlag.rules.local import Direction, Local
from fairlag.text import calls


class Schedule(Protocol):
    """A local step size that depends on the version from which a task starts."""

    def at(self, version: int) -> float:
        """The step size of tasks that start from this version."""


@dataclass(frozen=True, slots=True)
class Constant(calls.Written):
    """``constant(lr)``: the same step size for every version; a plain number is the same."""

    lr: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", calls.number(self.lr, "lr", positive=True))

    def at(self, version: int) -> float:
        """Always the same."""
        return self.lr


@dataclass(frozen=True, slots=True)
class Step(calls.Written):
    """``step(lr, every, factor=0.1)``: lr · factor^⌊version / every⌋.

    >>> Step(0.1, every=1000, factor=0.5).at(2500)
    0.025
    """

    lr: float
    every: int
    factor: float = 0.1

    def __post_init__(self) -> None:
        for name in ("lr", "every", "factor"):
            calls.number(getattr(self, name), f"{name} of step", positive=True)

    def at(self, version: int) -> float:
        """Falls every `every` versions."""
        return self.lr * self.factor ** (version // self.every)


@dataclass(frozen=True, slots=True)
class Cosine(calls.Written):
    """``cosine(lr, versions, last=0)``: from lr down to last along half a cosine over `versions` versions, then last.

    >>> [round(Cosine(1.0, 100).at(version), 3) for version in (0, 50, 100, 200)]
    [1.0, 0.5, 0.0, 0.0]
    """

    lr: float
    versions: int
    last: float = 0.0

    def __post_init__(self) -> None:
        for name in ("lr", "versions"):
            calls.number(getattr(self, name), f"{name} of cosine", positive=True)
        calls.number(self.last, "last of cosine")

    def at(self, version: int) -> float:
        """Falls slowly, then fast, then slowly."""
        passed = min(version / self.versions, 1.0)
        return self.last + (self.lr - self.last) * (1 + math.cos(math.pi * passed)) / 2


SCHEDULES: dict[str, Callable[..., Schedule]] = {"constant": Constant, "step": Step, "cosine": Cosine}


def schedule(value: object) -> Schedule:
    """A step size as a number or as text.

    >>> schedule(0.01).at(7), schedule("step(0.1, every=10)").at(10)
    (0.01, 0.010000000000000002)
    """
    if isinstance(value, str):
        read = calls.read(value, "lr", "0.01 or step(0.1, every=1000)")
        if isinstance(read, calls.Call):
            return calls.build(read, SCHEDULES, "schedule", nested=_refuse)
        value = read
    return Constant(value)  # type: ignore[arg-type]


def _refuse(call: calls.Call) -> object:
    raise InputError(f"{call.text} cannot be part of a schedule, write a number")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Local training by stochastic gradient descent: a number of steps or of epochs per task.

    >>> Recipe(steps=1).batches(100)
    1
    >>> Recipe(epochs=2, batch=32).batches(100)
    8
    """

    steps: int | None = None
    epochs: int | None = None
    batch: int = 32
    lr: Schedule = Constant(0.01)
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0
    """The factor μ of (μ/2)‖x − w‖², which pulls towards the model that the client received."""
    direction: Direction | None = None
    """Turns the gradient into the direction of a step, with a memory per client; None for the gradient itself."""
    losses: bool = False
    """Are the losses of all training examples recorded?"""

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise InputError(f"steps is {self.steps} and epochs is {self.epochs}: give one of the two")
        for name in ("steps", "epochs", "batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}, it must be at least 1")
        calls.number(self.momentum, "momentum", most=0.999999)
        calls.number(self.weight_decay, "weight_decay")
        calls.number(self.prox, "prox")

    def batches(self, examples: int) -> int:
        """The number of batches of a task of a client with this many examples."""
        if self.epochs is None:
            return self.steps or 0
        return self.epochs * -(-examples // self.batch)

    def effort(self, steps: int, lr: float) -> float:
        """How often gradients count in an update of `steps` steps of size `lr`: more than once per step with momentum.

        If all gradients are g, the update is −lr · effort · g. Weight decay is part of the gradient.

        >>> Recipe(steps=1).effort(3, 0.1), Recipe(steps=1, momentum=0.5).effort(3, 0.1)
        (3.0, 4.25)
        >>> round(Recipe(steps=1, momentum=0.9, prox=1.0).effort(10, 0.1), 6)
        15.887894
        """
        velocity = effort = 0.0
        for _ in range(steps):
            # Momentum also accumulates the proximal term, which pulls back towards the start.
            velocity = self.momentum * velocity + 1 - lr * self.prox * effort
            effort += velocity
        # If the pull overshoots, the effort may be 0 or less, and the server would refuse that report.
        return max(effort, sys.float_info.min) if steps else 0.0

    def asked(self, local: Local) -> "Recipe":
        """The same recipe with what a strategy asks for; None in a field of Local asks for nothing.

        >>> Recipe(steps=1, prox=0.5).asked(Local(prox=0.1)).prox, Recipe(steps=1, prox=0.5).asked(Local()).prox
        (0.1, 0.5)
        """
        wanted = local.at_clients
        given = {field.name: getattr(wanted, field.name) for field in fields(wanted)}
        return replace(self, **{name: value for name, value in given.items() if value is not None})
