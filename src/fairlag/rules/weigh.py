"""Weightings: pure functions of (buffer, view) to one weight per update, and the ways to combine them."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from fairlag.core.accounts import Entitlement
from fairlag.core.buffer import Buffer
from fairlag.core.ledger import Ledger
from fairlag.core.types import Floats, Report
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules import check
from fairlag.rules.drift import drifts
from fairlag.rules.rule import factory, reads_account, reads_intervals, reads_profiles, reads_updates, reads_window

Weigh = Callable[[Buffer, View], Floats]

_ZERO = np.zeros(())
"""An array, because numpy compares with it in a third less time than with a Python number."""

_NO_LOSS = 1e-10
"""The smallest loss that counts, so that powers of it are finite."""


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


def by_share(buffer: Buffer, view: View) -> Floats:
    """By each sender's share of all clients' training examples: α_j = n_j / N.

    >>> buffer, view = example(examples=[10, 30])
    >>> by_share(buffer, view).tolist()
    [0.25, 0.75]
    """
    return view.shares(buffer.clients)


def equal_share(buffer: Buffer, view: View) -> Floats:
    """By an equal share for each client: α_j = 1/n.

    >>> buffer, view = example()
    >>> equal_share(buffer, view).tolist()
    [0.5, 0.5]
    """
    return np.full(len(buffer), 1 / view.n)


def per_client(buffer: Buffer, view: View) -> Floats:
    """Every sender weighs the same, however many updates it sent: α_j = 1 / (m·B_i) for m senders, B_i updates of i.

    >>> buffer, view = example()
    >>> per_client(buffer, view).tolist()
    [0.5, 0.5]
    """
    counts = Counter(buffer.clients.tolist())
    return np.array([1 / (len(counts) * counts[client]) for client in buffer.clients.tolist()])


@factory
def by_loss(q: float, *, local_lr: float) -> Weigh:
    """Clients with a higher loss weigh more (q-FedAvg): F_j^q / Σ_k (q F_k^(q−1) L‖Δ_k‖² + F_k^q), L = 1/local_lr.

    F is the loss that a client reports, with `Local(start_loss=True)` that before training. The weights add up to at
    most 1.

    >>> buffer, view = example()
    >>> by_loss(2.0, local_lr=0.1)(buffer, view).tolist()
    [0.5, 0.5]
    """
    check.not_negative("q", q)
    check.positive("the local step size", local_lr)

    @reads_updates
    def weigh(buffer: Buffer, view: View) -> Floats:
        losses = np.maximum(buffer.losses, _NO_LOSS)
        largest = losses.max()
        # Divided by the largest, and bounded, so that no power overflows whatever a client reports.
        ratios = np.maximum(losses / largest, _NO_LOSS)
        squares = np.square(buffer.updates, dtype=np.float64).sum(axis=1)
        bends = q * np.power(ratios, q - 1) * squares / (local_lr * largest)
        shares: Floats = np.power(ratios, q)
        return shares / math.fsum([*bends.tolist(), *shares.tolist()])

    return weigh


def by_effort(buffer: Buffer, view: View) -> Floats:
    """By examples, divided by the work done, so that clients with more local steps do not pull more (FedNova).

    α_j = p_j · (Σ_k p_k a_k) / a_j with p_j = n_j / Σ_k n_k and a_j how often gradients count in the update: the steps
    q_j of plain gradient descent, (q − ρ(1−ρ^q)/(1−ρ))/(1−ρ) with local momentum ρ, less with a proximal term.

    >>> buffer, view = example(examples=[10, 30], efforts=[1.0, 5.0])
    >>> by_effort(buffer, view).tolist()
    [1.0, 0.6]
    """
    examples, efforts = buffer.examples, buffer.efforts
    whole = math.fsum(examples)
    usual = math.fsum((examples * efforts).tolist()) / whole
    weights: Floats = examples * (usual / efforts) / whole
    return weights


@factory
def constant(weight: float) -> Weigh:
    """Every update has this weight.

    >>> constant(0.6)(*example()).tolist()
    [0.6, 0.6]
    """
    if not math.isfinite(weight):
        raise StrategyError(f"the weight is {weight}, it must be a finite number")
    return lambda buffer, view: np.full(len(buffer), float(weight))


@factory
def hinge(slope: float, start: float) -> Weigh:
    """Stale updates weigh less: 1 up to τ = start, then 1 / (slope·(τ − start) + 1).

    >>> buffer, view = example(staleness=[4, 5])
    >>> hinge(10, start=4)(buffer, view).round(4).tolist()
    [1.0, 0.0909]
    """
    for name, value in (("slope", slope), ("start", start)):
        check.not_negative(f"the {name} of the hinge", value)
    return lambda buffer, view: 1 / (slope * np.maximum(buffer.staleness - start, 0) + 1)


@factory
def by_drift(factor: float, eps: float) -> Weigh:
    """Updates weigh less if the model has moved since their version: factor / (γ + eps), γ = ‖w_v − w_u‖ / ‖Δ‖.

    >>> by_drift(1.0, eps=0.5)(*example()).tolist()
    [2.0, 2.0]
    """
    for name, value in (("factor", factor), ("eps", eps)):
        check.positive(name, value)

    @reads_updates
    def weigh(buffer: Buffer, view: View) -> Floats:
        return factor / (drifts(buffer, view) + eps)

    return weigh


@factory
def by_ticks(interval: float) -> Weigh:
    """By the number of intervals that a client's tasks take: ⌈T_i / interval⌉, T_i their mean duration.

    >>> buffer, view = example(arrivals=[2.0, 8.0])
    >>> by_ticks(5.0)(buffer, view).tolist()
    [1.0, 2.0]
    """
    check.positive("the interval", interval)
    # At least one: a task that takes no time still waits for the end of its interval.
    return lambda buffer, view: np.maximum(np.ceil((view.mean_duration(buffer.clients) / interval).round(9)), 1.0)


@reads_profiles
def by_slowness(buffer: Buffer, view: View) -> Floats:
    """By how slow a client is: T_i · Σ_j 1/T_j, T_i the mean duration of its tasks.

    >>> buffer, view = example(arrivals=[2.0, 8.0])
    >>> by_slowness(buffer, view).tolist()
    [1.25, 5.0]
    """
    # The same lower bound as in the rates: a task that took no time would otherwise weigh 0.
    durations = np.array([view.mean_duration_of(task.client) for task in buffer.tasks])
    return durations * view.rate


@factory
def polynomial(power: float) -> Weigh:
    """Stale updates weigh less: s(τ) = (1 + τ)^−power.

    >>> buffer, view = example(staleness=[0, 3])
    >>> polynomial(0.5)(buffer, view).tolist()
    [1.0, 0.5]
    """
    check.not_negative("the power", power)
    return lambda buffer, view: np.power(1.0 + buffer.staleness, -power)


def delay_adaptive(buffer: Buffer, view: View) -> Floats:
    """Updates weigh less only if they are staler than the number of clients: n / max(n, τ).

    >>> buffer, view = example(staleness=[2, 8])
    >>> delay_adaptive(buffer, view).tolist()
    [1.0, 0.25]
    """
    return view.n / np.maximum(buffer.staleness, view.n)


@factory
def exponential(gamma: float) -> Weigh:
    """Stale updates weigh less (γ < 1) or more (γ > 1): γ^τ, up to a common factor.

    The factor makes the largest weight 1, so that no staleness overflows; it cancels out when normalised.

    >>> buffer, view = example(staleness=[0, 2])
    >>> exponential(0.5)(buffer, view).tolist(), exponential(2.0)(buffer, view).tolist()
    ([1.0, 0.25], [0.25, 1.0])
    """
    check.positive("gamma", gamma)

    def weigh(buffer: Buffer, view: View) -> Floats:
        powers = buffer.staleness * math.log(gamma)
        largest = powers.max(axis=-1, keepdims=True)
        weights: Floats = np.exp(powers - largest)
        return weights

    return weigh


@factory
def damped(rate: float) -> Weigh:
    """Stale updates weigh less, also alone in a buffer: e^(−rate·τ), as in Kardam.

    >>> buffer, view = example(staleness=[0, 2])
    >>> damped(0.5)(buffer, view).round(4).tolist()
    [1.0, 0.3679]
    """
    check.not_negative("the rate", rate)
    return lambda buffer, view: np.exp(-rate * buffer.staleness)


@factory
def mean_staleness(*, scale: float = 1.0, window: int | None = None) -> Weigh:
    """By a client's mean staleness: a_i = (mean staleness of i · scale + 1) / n.

    With scale = b this is 1/(n·p_i), where p_i is the client's share of all updates. The mean is over all of the
    client's updates, or its `window` most recent ones; the update in the buffer is included.

    >>> buffer, view = example(staleness=[0, 3])
    >>> mean_staleness(scale=2)(buffer, view).tolist()
    [0.5, 3.5]
    """
    check.not_negative("the scale", scale)
    check.window(window)

    @reads_window(window or 0)
    def weigh(buffer: Buffer, view: View) -> Floats:
        weights, n = view.mean_staleness(buffer.clients, window), view.n
        weights *= scale / n
        weights += 1 / n
        return weights

    return weigh


def mean_gap(buffer: Buffer, view: View) -> Floats:
    """By how rarely a client sends: a_i = g_i / n, g_i the mean number of updates from one of i's to its next.

    FedAU calls these participation intervals, and counts them in rounds (Wang and Ji, ICLR 2024, arXiv:2306.03401).

    >>> buffer, view = example()
    >>> mean_gap(buffer, view).tolist()
    [0.5, 1.0]
    """
    return view.mean_gap(buffer.clients) / view.n


@factory
def mean_rounds(*, longest: int = 50) -> Weigh:
    """By how rarely a client takes part: a_i = ω_i / n, ω_i the mean number of versions from one it is in to its next.

    ω_i is 1 before its second version. An interval ends after `longest` versions, and the next begins, even if the
    client has not taken part: so a client that stays away is not heard too loudly when it comes back (FedAU).

    >>> from fairlag.core.ledger import Ledger
    >>> buffer, _ = example()
    >>> ledger = Ledger(clients=2, longest=50)
    >>> [ledger.join(client) for client in range(2)]
    [True, True]
    >>> for version in (0, 3, 4):
    ...     ledger.intervals.merge(version, [0, 1])
    >>> mean_rounds()(buffer, View(ledger)).tolist()  # of 1 and 3 versions
    [1.0, 1.0]
    """
    check.whole("the longest interval", longest, 1, "version")

    @reads_intervals(longest)
    def weigh(buffer: Buffer, view: View) -> Floats:
        return view.mean_rounds(buffer.clients) / view.n

    return weigh


def mean_interval(buffer: Buffer, view: View) -> Floats:
    """The inverse of a client's rate, estimated from arrival times: a_i = mean time between updates of i.

    >>> buffer, view = example(arrivals=[2.0, 8.0])
    >>> mean_interval(buffer, view).tolist()
    [2.0, 8.0]
    """
    return view.mean_interval(buffer.clients)


@factory
def by_balance(
    *,
    entitled: Literal["present", "known"] = "present",
    importance: Literal["uniform", "examples"] | Mapping[str, float] = "uniform",
    limit: float | None = 5.0,
    reward: float = 0.0,
) -> Weigh:
    """By the client's balance (what it was entitled to and has not spent), split evenly over its updates in the buffer.

    Of each version, a first-time sender earns what its update weighs in FedAvg. All other entitled clients share the
    rest by importance, unless they hold `limit` already. The part `reward` goes to the senders instead.

    >>> buffer, view = example(account=Entitlement())
    >>> by_balance()(buffer, view).tolist()
    [0.5, 0.5]
    """

    @reads_account(Entitlement(entitled, importance, limit, reward))
    def weigh(buffer: Buffer, view: View) -> Floats:
        weights = np.maximum(view.balance(buffer.clients), _ZERO)
        senders = buffer.clients.tolist()
        if len(set(senders)) < len(senders):
            weights /= [senders.count(client) for client in senders]
        return weights

    return weigh


@factory
def at_most(rule: Weigh, most: float | None) -> Weigh:
    """Bounds the weight of each single update by `most`; None for no bound.

    >>> buffer, view = example()
    >>> at_most(mean_gap, 0.75)(buffer, view).tolist()
    [0.5, 0.75]
    """
    if most is not None and not most > 0:
        raise StrategyError(f"most is {most}, it must be positive, or none for no bound")
    if most is None:
        return lambda buffer, view: rule(buffer, view)
    return lambda buffer, view: np.minimum(rule(buffer, view), most)


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
    """Normalises the weights of a buffer to a total of one: α_j = a_j / Σ_k a_k.

    >>> buffer, view = example(staleness=[0, 3])
    >>> normalised(mean_staleness(scale=2))(buffer, view).tolist()
    [0.125, 0.875]
    """

    def weigh(buffer: Buffer, view: View) -> Floats:
        weights = rule(buffer, view)
        total = math.fsum(weights.tolist())
        if not total:
            raise StrategyError(f"the weights {weights.tolist()} add up to 0, they cannot be normalised")
        return weights / total

    return weigh


@factory
def capped(rule: Weigh, cap: float | None) -> Weigh:
    """Scales the weights down to a total of `cap` if it is more: α_j · min(1, cap / Σ_k α_k). None for no cap.

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
    efforts: list[float] | None = None,
    arrivals: list[float] | None = None,
    account: Entitlement | None = None,
) -> tuple[Buffer, View]:
    """A buffer with one update of each of two clients, as its server would see it: for doctests and experiments.

    >>> buffer, view = example(staleness=[0, 3])
    >>> buffer.clients.tolist(), view.n
    ([0, 1], 2)
    """
    late = staleness or [0, 0]
    ledger = Ledger(clients=2, profiles=True, account=account)
    ledger.version = max(late)
    for client in range(2):
        ledger.join(client)
    tasks = [ledger.dispatch(client, client, ledger.version - late[client]) for client in range(2)]
    ledger.running.clear()
    for task, time, count, effort in zip(
        tasks, arrivals or [1.0, 1.0], examples or [1, 1], efforts or [1.0, 1.0], strict=True
    ):
        ledger.time = time
        ledger.admit(task, Report(count, effort=effort))
    merged, lateness, reports, _ = ledger.merge()
    return Buffer(merged, lateness, reports, np.empty((2, 0), np.float32)), View(ledger)
