"""Server rules: pairs of pure functions (init, update) that turn a step into the change of the model; they chain."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fairlag.core.buffer import Buffer
from fairlag.core.vector import Layout, Vector
from fairlag.errors import StrategyError
from fairlag.rules import check
from fairlag.rules.rule import with_provenance

State = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Apply:
    """A server rule: `init` makes its state from the first parameters, `update` maps (step, state, parameters)."""

    label: str
    init: Callable[[Vector, Layout], State]
    """Also gets the layout, which names the parts of the parameters."""
    update: Callable[[Vector, State, Vector], tuple[Vector, State]]
    """Returns the step for the next rule and the new state. They share no memory: the next rule may write into it."""
    observe: Callable[[Buffer, State], State] | None = None
    """Called before `update` with the buffer, without its updates; returns the state that `update` gets."""


def scale(lr: float) -> Apply:
    """The step times a server learning rate: w ← w + η_g · step.

    >>> example(scale(0.5), 2.0, 4.0)
    [1.0, 2.0]
    """
    rate = _rate(lr)

    def update(step: Vector, state: State, parameters: Vector) -> tuple[Vector, State]:
        return step if rate == 1 else step * rate, state

    return Apply(f"scale({lr})", lambda parameters, layout: (), with_provenance(update, scale, lr=lr))


def chain(*rules: Apply) -> Apply:
    """One rule after the other, each with its own state.

    >>> rule = chain(scale(0.5), scale(4.0))
    >>> rule.label
    'chain(scale(0.5), scale(4.0))'
    >>> example(rule, 1.0)
    [2.0]
    """

    def update(step: Vector, state: State, parameters: Vector) -> tuple[Vector, State]:
        after: list[State] = []
        for rule, own in zip(rules, state, strict=True):
            step, new = rule.update(step, own, parameters)
            after.append(new)
        return step, tuple(after)

    def observe(buffer: Buffer, state: State) -> State:
        seen = zip(rules, state, strict=True)
        return tuple(own if rule.observe is None else rule.observe(buffer, own) for rule, own in seen)

    return Apply(
        f"chain({', '.join(rule.label for rule in rules)})",
        lambda parameters, layout: tuple(rule.init(parameters, layout) for rule in rules),
        update,
        observe if any(rule.observe is not None for rule in rules) else None,
    )


def momentum(beta: float) -> Apply:
    """Momentum: m ← βm + step, and m is the next step (Hsu et al., 2019).

    >>> example(momentum(0.5), 1.0, 1.0, 1.0)
    [1.0, 1.5, 1.75]
    """
    kept = _decay("beta", beta)

    def update(step: Vector, state: State, parameters: Vector) -> tuple[Vector, State]:
        (speed,) = state
        speed = kept * speed + step if kept else step.copy()  # 0 · m + step would turn −0 into 0
        return speed.copy(), (speed,)

    return Apply(f"momentum({beta})", lambda parameters, layout: (np.zeros_like(parameters),), update)


def adagrad(lr: float, beta1: float = 0.0, eps: float = 1e-3) -> Apply:
    """Smaller steps where steps were large: s ← s + step², w ← w + η_g m / (√s + ε) (Reddi et al., 2021).

    m ← β1 m + (1 − β1) step begins at 0, s at ε².

    >>> example(adagrad(8.0, eps=3.0), 4.0, 12.0)  # 8 · 4 / (√(9 + 16) + 3), 8 · 12 / (√(25 + 144) + 3)
    [4.0, 6.0]
    """
    return _adaptive(f"adagrad({lr}, beta1={beta1}, eps={eps})", lr, beta1, eps, lambda size, square: size + square)


def adam(lr: float, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-3) -> Apply:
    """Steps in units of their recent size: s ← β2 s + (1 − β2) step², otherwise as `adagrad`; without bias correction.

    >>> example(adam(6.0, beta1=0.5, beta2=0.5, eps=1.0), 7.0, 5.0)  # m = 3.5, 4.25 and √s = 5, 5
    [3.5, 4.25]
    """
    kept = _decay("beta2", beta2)
    label = f"adam({lr}, beta1={beta1}, beta2={beta2}, eps={eps})"
    return _adaptive(label, lr, beta1, eps, lambda size, square: kept * size + (1 - kept) * square)


def yogi(lr: float, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-3) -> Apply:
    """As `adam`, but large steps are forgotten slowly: s ← s − (1 − β2) step² sign(s − step²).

    >>> example(yogi(4.0, beta1=0.5, beta2=0.5, eps=1.0), 4.0, 3.0)  # m = 2, 2.5 and √s = 3, 3
    [2.0, 2.5]
    """
    kept = _decay("beta2", beta2)
    label = f"yogi({lr}, beta1={beta1}, beta2={beta2}, eps={eps})"
    return _adaptive(label, lr, beta1, eps, lambda size, square: size - (1 - kept) * square * np.sign(size - square))


def amsgrad(lr: float, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-8) -> Apply:
    """As `adam`, but the size of steps never falls: ŝ ← max(ŝ, s), w ← w + η_g m / (√ŝ + ε). s and ŝ begin at 0.

    >>> example(amsgrad(3.0, beta1=0.5, beta2=0.75, eps=1.0), 4.0, 0.0)  # m = 2, 1 and √ŝ = 2, 2
    [2.0, 1.0]
    """
    rate, kept, kept_size, least = _rate(lr), _decay("beta1", beta1), _decay("beta2", beta2), _least(eps)

    def init(parameters: Vector, layout: Layout) -> State:
        return np.zeros_like(parameters), np.zeros_like(parameters), np.zeros_like(parameters)

    def update(step: Vector, state: State, parameters: Vector) -> tuple[Vector, State]:
        mean, size, largest = state
        mean = kept * mean + (1 - kept) * step
        size = kept_size * size + (1 - kept_size) * step * step
        largest = np.maximum(largest, size)
        return rate * mean / (np.sqrt(largest) + least), (mean, size, largest)

    return Apply(f"amsgrad({lr}, beta1={beta1}, beta2={beta2}, eps={eps})", init, update)


def by_staleness(lr: float, *, limit: float) -> Apply:
    """A step size that sees the buffer: η_g, or min(η_g, 1/τ) if its largest staleness τ is above the limit.

    >>> by_staleness(0.5, limit=1).label
    'by_staleness(0.5, limit=1)'
    """
    rate = _rate(lr)
    if not limit >= 0:
        raise StrategyError(f"the staleness up to which steps keep their size is {limit}, it must be at least 0")

    def observe(buffer: Buffer, state: State) -> State:
        latest = buffer.staleness.max().item()
        return (min(rate, 1 / latest) if latest > limit else rate,)

    def update(step: Vector, state: State, parameters: Vector) -> tuple[Vector, State]:
        (now,) = state
        return step if now == 1 else step * now, state

    return Apply(f"by_staleness({lr}, limit={limit})", lambda parameters, layout: (rate,), update, observe)


def attention(kind: Literal["normalised", "paper"]) -> Apply:
    """Rescales the first array after the step, so that large weights count more (Chen et al., 2020). Chain it last.

    For each of its rows w_ij ← w_ij · softmax_j(|w_ij|) · (row length); "paper" leaves out the row length, as the
    paper does, and the array shrinks with every version.

    >>> parameters, layout = np.array([0, 0, 7], np.float32), Layout(("weight", "bias"), ((1, 2), (1,)))
    >>> rule = attention("paper")
    >>> change, _ = rule.update(np.array([2, 2, 1], np.float32), rule.init(parameters, layout), parameters)
    >>> (parameters + change).tolist()
    [1.0, 1.0, 8.0]
    """
    if kind not in ("normalised", "paper"):
        raise StrategyError(f"the attention is {kind!r}, it must be one of normalised, paper")

    def init(parameters: Vector, layout: Layout) -> State:
        shape = layout.shapes[0] if layout.shapes else (0,)
        rows, *rest = shape if len(shape) > 1 else (1, *shape)
        return rows, math.prod(rest)

    def update(step: Vector, state: State, parameters: Vector) -> tuple[Vector, State]:
        rows, length = state
        first = slice(rows * length)
        weights = (parameters[first] + step[first]).reshape(rows, length)
        sizes = np.abs(weights)
        shares = np.exp(sizes - sizes.max(axis=1, keepdims=True, initial=0))  # subtracting the largest avoids overflow
        shares /= shares.sum(axis=1, keepdims=True)
        if kind == "normalised":
            shares *= length
        change = step.copy()
        change[first] = (weights * shares).reshape(-1) - parameters[first]
        return change, state

    return Apply(f"attention({kind!r})", init, update)


def example(rule: Apply, *steps: float) -> list[float]:
    """The steps that a rule returns for these steps of a model with one parameter: for doctests and experiments.

    >>> example(chain(scale(0.5), momentum(0.5)), 2.0, 2.0)
    [1.0, 1.5]
    """
    parameters = np.zeros(1, np.float32)
    state, changes = rule.init(parameters, Layout(("weight",), ((1,),))), list[float]()
    for step in steps:
        change, state = rule.update(np.array([step], np.float32), state, parameters)
        parameters = parameters + change
        changes.append(round(change.item(), 6))
    return changes


def _adaptive(label: str, lr: float, beta1: float, eps: float, grown: Callable[[Vector, Vector], Vector]) -> Apply:
    """The step in units of its size; `grown` computes the next second moment from the last one and step²."""
    rate, kept, least = _rate(lr), _decay("beta1", beta1), _least(eps)

    def init(parameters: Vector, layout: Layout) -> State:
        return np.zeros_like(parameters), np.full_like(parameters, least**2)

    def update(step: Vector, state: State, parameters: Vector) -> tuple[Vector, State]:
        mean, size = state
        mean = kept * mean + (1 - kept) * step
        size = grown(size, step * step)
        return rate * mean / (np.sqrt(size) + least), (mean, size)

    return Apply(label, init, update)


# These return Python floats: a numpy float64 would turn the arrays into float64.


def _rate(lr: float) -> float:
    check.positive("the server learning rate", lr)
    return float(lr)


def _least(eps: float) -> float:
    if not 1e-15 <= eps <= 1e15:  # beyond, float32 cannot hold ε²
        raise StrategyError(f"eps is {eps}, it must be a number from 1e-15 to 1e15")
    return float(eps)


def _decay(name: str, beta: float) -> float:
    if not 0 <= beta < 1:
        raise StrategyError(f"{name} is {beta}, it must be at least 0 and below 1")
    return float(beta)
