"""How the step size changes within a task: a factor per local step, on top of the schedule over versions."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fairlag.errors import InputError
from fairlag.limits import shown
from fairlag.text import calls


class Within(Protocol):
    """A factor on the step size of a task."""

    def factor(self, step: int, steps: int) -> float:
        """The factor at a step of a task of that many steps; the first is 0."""


@dataclass(frozen=True, slots=True)
class Warmup(calls.Written):
    """``warmup(steps)``: rises in equal parts to 1 at the last of `steps` steps, then stays there.

    >>> [Warmup(4).factor(step, 100) for step in (0, 1, 3, 99)]
    [0.25, 0.5, 1.0, 1.0]
    """

    steps: int

    def __post_init__(self) -> None:
        calls.number(self.steps, "steps of warmup", positive=True)

    def factor(self, step: int, steps: int) -> float:
        """Rises, then stays."""
        return min((step + 1) / self.steps, 1.0)


@dataclass(frozen=True, slots=True)
class Linear(calls.Written):
    """``linear(last=0)``: falls from 1 in equal parts; it would reach `last` one step after the end of the task.

    >>> [Linear().factor(step, 4) for step in range(4)]
    [1.0, 0.75, 0.5, 0.25]
    """

    last: float = 0.0

    def __post_init__(self) -> None:
        calls.number(self.last, "last of linear")

    def factor(self, step: int, steps: int) -> float:
        """Falls."""
        return 1 + (self.last - 1) * step / steps


@dataclass(frozen=True, slots=True)
class Cosine(calls.Written):
    """``cosine(last=0)``: falls from 1 along half a cosine; it would reach `last` one step after the end of the task.

    >>> [round(Cosine().factor(step, 4), 3) for step in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """

    last: float = 0.0

    def __post_init__(self) -> None:
        calls.number(self.last, "last of cosine")

    def factor(self, step: int, steps: int) -> float:
        """Falls slowly, then fast, then slowly."""
        return self.last + (1 - self.last) * (1 + math.cos(math.pi * step / steps)) / 2


WITHIN: dict[str, Callable[..., Within]] = {"warmup": Warmup, "linear": Linear, "cosine": Cosine}


def within(text: str) -> Within:
    """A schedule within a task, from text.

    >>> within("warmup(5)")
    Warmup(steps=5)
    """
    example = "warmup(5)"
    read = calls.read(text, "lr_within_task", example)
    if not isinstance(read, calls.Call):
        raise InputError(f"lr_within_task is {shown(text)}, but must be a schedule such as {example}")
    return calls.build(read, WITHIN, "schedule within a task", nested=no_call)


def no_call(call: calls.Call) -> object:
    """Refuses a call among the arguments of a schedule."""
    raise InputError(f"{call.text} cannot be part of a schedule, write a number")
