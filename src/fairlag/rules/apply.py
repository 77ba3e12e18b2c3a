"""Server rules: pairs of pure functions (init, update) that turn a step into the change of the model; they chain."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlag.errors import StrategyError
from fairlag.vector import Layout, Vector

State = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Apply:
    """A server rule: `init` makes its state from the first parameters, `update` maps (step, state, parameters)."""

    label: str
    init: Callable[[Vector, Layout], State]
    """Is given the layout too, which names the parts of the parameters."""
    update: Callable[[Vector, State, Vector], tuple[Vector, State]]
    """Returns the step for the next rule, which may write into it, and the new state: the two share no memory."""


def scale(lr: float) -> Apply:
    """The step times a server learning rate: w ← w + η_g · step.

    >>> rule = scale(0.5)
    >>> rule.update(np.array([2, 4], np.float32), (), np.zeros(2, np.float32))[0].tolist()
    [1.0, 2.0]
    """
    if not (lr > 0 and math.isfinite(lr)):
        raise StrategyError(f"the server learning rate is {lr}, it must be a positive number")
    factor = np.float32(lr)
    return Apply(f"scale({lr})", lambda parameters, layout: (), lambda step, state, parameters: (step * factor, state))


def chain(*rules: Apply) -> Apply:
    """One rule after the other, each with its own state.

    >>> rule = chain(scale(0.5), scale(4.0))
    >>> rule.label
    'chain(scale(0.5), scale(4.0))'
    >>> rule.update(np.array([1], np.float32), ((), ()), np.zeros(1, np.float32))[0].tolist()
    [2.0]
    """

    def update(step: Vector, state: State, parameters: Vector) -> tuple[Vector, State]:
        after: list[State] = []
        for rule, own in zip(rules, state, strict=True):
            step, new = rule.update(step, own, parameters)
            after.append(new)
        return step, tuple(after)

    return Apply(
        f"chain({', '.join(rule.label for rule in rules)})",
        lambda parameters, layout: tuple(rule.init(parameters, layout) for rule in rules),
        update,
    )
