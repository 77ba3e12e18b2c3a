"""Local training at a client: how many steps, on which batches, with which step size."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Literal, Protocol

from fairlag.errors import InputError
from fairlag.imported import name_of
from fairlag.learn.optimiser import Optimiser
from fairlag.learn.within import Within, no_call
from fairlag.rules.local import Direction, Local, SharingDirection
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


@dataclass(frozen=True, slots=True)
class Warmup(calls.Written):
    """``warmup(lr, versions)``: rises in equal steps to lr at the last of `versions` versions, then stays there.

    >>> [Warmup(1.0, 4).at(version) for version in (0, 1, 3, 100)]
    [0.25, 0.5, 1.0, 1.0]
    """

    lr: float
    versions: int

    def __post_init__(self) -> None:
        for name in ("lr", "versions"):
            calls.number(getattr(self, name), f"{name} of warmup", positive=True)

    def at(self, version: int) -> float:
        """Rises, then stays."""
        return self.lr * min((version + 1) / self.versions, 1.0)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": Constant,
    "step": Step,
    "cosine": Cosine,
    "warmup": Warmup,
}


def schedule(value: object) -> Schedule:
    """A step size as a number or as text.

    >>> schedule(0.01).at(7), schedule("step(0.1, every=10)").at(10)
    (0.01, 0.010000000000000002)
    """
    if isinstance(value, str):
        read = calls.read(value, "lr", "0.01 or step(0.1, every=1000)")
        if isinstance(read, calls.Call):
            return calls.build(read, SCHEDULES, "schedule", nested=no_call)
        value = read
    return Constant(value)  # type: ignore[arg-type]


_OF_STEPS = (
    "optimiser",
    "optimiser_state",
    "momentum",
    "weight_decay",
    "prox",
    "direction",
    "clip_norm",
    "clip_value",
    "accumulate",
    "lr_within_task",
    "precision",
)
"""The fields that say how a step is made."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Local training by stochastic gradient descent, or by another optimiser: steps or epochs per task.

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
    direction: Direction | SharingDirection | None = None
    """Turns the gradient into the direction of a step, with a memory per client; None for the gradient itself."""
    losses: bool = False
    """Are the losses of all training examples recorded?"""
    start_loss: bool = False
    """Is the mean loss of the client's examples computed before training?"""
    optimiser: Optimiser | None = None
    """Makes the steps; None for gradient descent with `momentum` and `weight_decay`."""
    optimiser_state: Literal["kept"] | None = None
    """Does a client keep the optimiser's state for its next task? None if every task begins without."""
    clip_norm: float | None = None
    """The largest Euclidean norm of a gradient; longer ones are scaled down."""
    clip_value: float | None = None
    """The largest absolute value in a gradient; larger ones are cut."""
    accumulate: int | None = None
    """How many batches a step takes its mean gradient from; None for 1."""
    lr_within_task: Within | None = None
    """A factor on the step size that changes with the steps of a task."""
    precision: Literal["bfloat16"] | None = None
    """The type in which the model and the loss are computed; None for float32."""
    train: str | Callable[..., object] | None = None
    """The user's own function that trains, by its name "module:function"; in Python also the function itself."""
    memory: int | None = None
    """How many vectors of the trained parameters' size that function keeps per client."""

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise InputError(f"steps is {self.steps} and epochs is {self.epochs}: give one of the two")
        for name in ("steps", "epochs", "batch", "accumulate", "memory"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}, it must be at least 1")
        calls.number(self.momentum, "momentum", most=0.999999)
        calls.number(self.weight_decay, "weight_decay")
        calls.number(self.prox, "prox")
        for name in ("clip_norm", "clip_value"):
            if getattr(self, name) is not None:
                calls.number(getattr(self, name), name, positive=True)
        if self.clip_norm is not None and self.clip_value is not None:
            raise InputError(f"clip_norm is {self.clip_norm:g} and clip_value is {self.clip_value:g}: give one of them")
        if self.optimiser is not None and (twice := self._given("momentum", "weight_decay")):
            raise InputError(
                f"{twice} of [local] is for gradient descent, but the optimiser is {self.optimiser}: "
                "write it among the optimiser's parameters, if it has one"
            )
        self._check_own_train()

    def _check_own_train(self) -> None:
        """Refuses keys that only a function of the user's own reads, and those that it would have to obey."""
        if self.train is None:
            if self.memory is not None:
                raise InputError(f"memory is {self.memory}, but only a function of your own keeps one: give train")
            return
        if found := self._given(*_OF_STEPS):
            raise InputError(
                f"train = {name_of(self.train)!r} makes its steps by itself, so {found} would change nothing: "
                "do that in the function, or remove it"
            )

    def _given(self, *names: str) -> str | None:
        """The first of these fields that is not at its default."""
        defaults = {field.name: field.default for field in fields(self)}
        return next((name for name in names if getattr(self, name) != defaults[name]), None)

    def batches(self, examples: int, steps: int = 0) -> int:
        """The number of batches of a task of a client with this many examples, or of one of that many steps.

        >>> Recipe(steps=3, accumulate=4).batches(100), Recipe(epochs=1, batch=10, accumulate=4).batches(100)
        (12, 10)
        """
        if steps or self.epochs is None:
            return (steps or self.steps or 0) * (self.accumulate or 1)
        return self.epochs * -(-examples // self.batch)

    def task_steps(self, examples: int) -> int:
        """The number of steps of a task of a client with this many examples.

        >>> Recipe(epochs=1, batch=10, accumulate=4).task_steps(100)
        3
        """
        return -(-self.batches(examples) // (self.accumulate or 1))

    def factor(self, step: int, steps: int) -> float:
        """What the step size of a task is multiplied by at a step, the first being 0.

        >>> from fairlag.learn.within import within
        >>> [Recipe(steps=4, lr_within_task=within("warmup(2)")).factor(step, 4) for step in range(4)]
        [0.5, 1.0, 1.0, 1.0]
        """
        return 1.0 if self.lr_within_task is None else self.lr_within_task.factor(step, steps)

    def effort(self, steps: int, lr: float) -> float:
        """How often gradients count in an update of `steps` steps of size `lr`: more than once per step with momentum.

        If all gradients are g, the update is −lr · effort · g. Weight decay is part of the gradient.

        >>> Recipe(steps=1).effort(3, 0.1), Recipe(steps=1, momentum=0.5).effort(3, 0.1)
        (3.0, 4.25)
        >>> round(Recipe(steps=1, momentum=0.9, prox=1.0).effort(10, 0.1), 6)
        15.887894
        """
        velocity = effort = 0.0
        for step in range(steps):
            # Momentum also accumulates the proximal term, which pulls back towards the start.
            velocity = self.momentum * velocity + 1 - lr * self.prox * effort
            effort += self.factor(step, steps) * velocity
        # If the pull overshoots, the effort may be 0 or less, and the server would refuse that report.
        return max(effort, sys.float_info.min) if steps else 0.0

    @property
    def uncounted(self) -> str | None:
        """Why `effort` does not say how often gradients count: FedNova cannot be used then. None if it does.

        >>> Recipe(steps=1).uncounted, Recipe(steps=1, optimiser=Optimiser("adam")).uncounted
        (None, 'the optimiser adam')
        """
        if self.train is not None:
            return f"train = {name_of(self.train)!r}"
        if self.optimiser is not None:
            return f"the optimiser {self.optimiser}"
        if self.momentum and self.optimiser_state is not None:
            return "a momentum that is kept between tasks"
        clipped = self._given("clip_norm", "clip_value")
        return f"a proximal term that {clipped} cuts" if clipped and self.prox else None

    def asked(self, local: Local) -> "Recipe":
        """The same recipe with what a strategy asks for; None in a field of Local asks for nothing.

        >>> Recipe(steps=1, prox=0.5).asked(Local(prox=0.1)).prox, Recipe(steps=1, prox=0.5).asked(Local()).prox
        (0.1, 0.5)
        """
        wanted = local.at_clients
        given = {field.name: getattr(wanted, field.name) for field in fields(wanted)}
        return replace(self, **{name: value for name, value in given.items() if value is not None})
