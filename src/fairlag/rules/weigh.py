"""Weightings: pure functions of (buffer, view) to one weight per update, and the ways to combine them."""

import math
from collections.abc import Callable

import numpy as np

from fairlag.buffer import Buffer
from fairlag.errors import StrategyError
from fairlag.ledger import Ledger
from fairlag.rules.rule import factory, reads_window
from fairlag.types import Dispatch, Floats
from fairlag.view import View

Weigh = Callable[[Buffer, View], Floats]


def uniform(buffer: Buffer, view: View) -> Floats:
    """Every update weighs the same: α_j = 1/b.

    >>> buffer, view = example()
    >>> uniform(buffer, view).tolist()
    [0.5, 0.5]
    """
    return np.array([1 / len(buffer)] * len(buffer))


def by_examples(buffer: Buffer, view: View) -> Floats:
    """In proportion to the training examples behind each update: α_j = n_j / Σ_k n_k.

    >>> buffer, view = example(examples=[10, 30])
    >>> by_examples(buffer, view).tolist()
    [0.25, 0.75]
    """
    examples = buffer.examples
    return examples / math.fsum(examples)


@factory
def polynomial(power: float) -> Weigh:
    """Stale updates weigh less: s(τ) = (1 + τ)^−power.

    >>> buffer, view = example(staleness=[0, 3])
    >>> polynomial(0.5)(buffer, view).tolist()
    [1.0, 0.5]
    """
    if not (power >= 0 and math.isfinite(power)):
        raise StrategyError(f"the power is {power}, it must be a number of at least 0")
    return lambda buffer, view: np.power(1.0 + buffer.staleness, -power)


@factory
def exponential(gamma: float) -> Weigh:
    """Stale updates weigh less (γ < 1) or more (γ > 1): γ^τ, up to a common factor.

    The factor makes the largest weight 1, so that no staleness overflows: it disappears when normalised.

    >>> buffer, view = example(staleness=[0, 2])
    >>> exponential(0.5)(buffer, view).tolist(), exponential(2.0)(buffer, view).tolist()
    ([1.0, 0.25], [0.25, 1.0])
    """
    if not (gamma > 0 and math.isfinite(gamma)):
        raise StrategyError(f"gamma is {gamma}, it must be a positive number")

    def weigh(buffer: Buffer, view: View) -> Floats:
        powers = buffer.staleness * math.log(gamma)
        largest: float = powers.max()
        weights: Floats = np.exp(powers - largest)
        return weights

    return weigh


@factory
def mean_staleness(*, scale: float = 1.0, window: int | None = None) -> Weigh:
    """How stale a client usually is: a_i = (mean staleness of i · scale + 1) / n.

    With scale = b this is 1/(n·p_i), p_i being the client's share of all updates. The mean includes the update in
    the buffer and goes over all of the client's past, or its `window` most recent updates.

    >>> buffer, view = example(staleness=[0, 3])
    >>> mean_staleness(scale=2)(buffer, view).tolist()
    [0.5, 3.5]
    """
    if not (scale >= 0 and math.isfinite(scale)):
        raise StrategyError(f"the scale is {scale}, it must be a number of at least 0")
    if window is not None and window < 1:
        raise StrategyError(f"the window is {window}, it must be at least 1 update, or none for all of the past")

    @reads_window(window or 0)
    def weigh(buffer: Buffer, view: View) -> Floats:
        weights = view.mean_staleness(buffer.clients, window)
        weights *= scale / view.n
        weights += 1 / view.n
        return weights

    return weigh


def mean_gap(buffer: Buffer, view: View) -> Floats:
    """How rarely a client is heard: a_i = g_i / n, g_i the mean number of updates from one of i's to its next.

    >>> buffer, view = example()
    >>> mean_gap(buffer, view).tolist()
    [0.5, 1.0]
    """
    return view.mean_gap(buffer.clients) / view.n


def mean_interval(buffer: Buffer, view: View) -> Floats:
    """The inverse of a client's rate, estimated from arrival times: a_i = mean time between updates of i.

    >>> buffer, view = example(arrivals=[2.0, 8.0])
    >>> mean_interval(buffer, view).tolist()
    [2.0, 8.0]
    """
    return view.mean_interval(buffer.clients)


@factory
def times(*rules: Weigh) -> Weigh:
    """The product of several weightings.

    >>> buffer, view = example(staleness=[0, 3])
    >>> times(uniform, polynomial(0.5))(buffer, view).tolist()
    [0.5, 0.25]
    """
    if not rules:
        raise StrategyError("times() needs at least one weighting to multiply")

    def weigh(buffer: Buffer, view: View) -> Floats:
        product = rules[0](buffer, view)
        for rule in rules[1:]:
            product = product * rule(buffer, view)
        return product

    return weigh


@factory
def divided(rule: Weigh, by: float) -> Weigh:
    """Every weight divided by a constant, such as the buffer size: α_j = a_j / b.

    >>> buffer, view = example()
    >>> divided(uniform, 2)(buffer, view).tolist()
    [0.25, 0.25]
    """
    return lambda buffer, view: rule(buffer, view) / by


@factory
def normalised(rule: Weigh) -> Weigh:
    """Within the buffer, to a total of one: α_j = a_j / Σ_k a_k.

    >>> buffer, view = example(staleness=[0, 3])
    >>> normalised(mean_staleness(scale=2))(buffer, view).tolist()
    [0.125, 0.875]
    """

    def weigh(buffer: Buffer, view: View) -> Floats:
        weights = rule(buffer, view)
        total = math.fsum(weights.tolist())
        if not total:
            raise StrategyError(f"the weights {weights.tolist()} add up to nothing, they cannot be normalised")
        return weights / total

    return weigh


@factory
def capped(rule: Weigh, cap: float | None) -> Weigh:
    """Scaled down to a total of `cap` where it is more: α_j · min(1, cap / Σ_k α_k). None caps nothing.

    >>> buffer, view = example()
    >>> capped(mean_gap, 0.75)(buffer, view).tolist()
    [0.25, 0.5]
    """
    if cap is not None and not cap > 0:
        raise StrategyError(f"the cap is {cap}, it must be positive, or none for no cap")
    if cap is None:
        return lambda buffer, view: rule(buffer, view)

    def weigh(buffer: Buffer, view: View) -> Floats:
        weights = rule(buffer, view)
        total = math.fsum(weights.tolist())
        return weights * (cap / total) if total > cap else weights

    return weigh


def example(
    *,
    staleness: list[int] | None = None,
    examples: list[int] | None = None,
    arrivals: list[float] | None = None,
) -> tuple[Buffer, View]:
    """A buffer with one update of each of two clients, as its server would see it: for doctests and experiments.

    >>> buffer, view = example(staleness=[0, 3])
    >>> buffer.clients.tolist(), view.n
    ([0, 1], 2)
    """
    late = staleness or [0, 0]
    ledger = Ledger(clients=2)
    ledger.version = max(late)
    tasks = [Dispatch(task=i, client=i, version=max(late) - late[i], ordinal=0, time=0.0) for i in range(2)]
    for task in tasks:
        ledger.join(task.client)
        ledger.dispatch(task.task, task.client)
        ledger.running.clear()
    for task, time in zip(tasks, arrivals or [1.0, 1.0], strict=True):
        ledger.time = time
        ledger.admit(task, 1)
    _, lateness, _, _ = ledger.merge()
    return Buffer(tuple(tasks), lateness, examples or [1, 1]), View(ledger)
