"""Every published algorithm as one short function that returns a composition, and the registry of their names."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from fairlag.errors import StrategyError
from fairlag.rules import admit, apply, select, trigger, weigh
from fairlag.strategy import Strategy

Maker = TypeVar("Maker", bound=Callable[..., Strategy])
Choice = TypeVar("Choice")


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A registered algorithm: its name in files, its title for people, and the function that makes it."""

    name: str
    title: str
    make: Callable[..., Strategy]

    @property
    def description(self) -> str:
        """The first sentence of its docstring."""
        return (inspect.getdoc(self.make) or "").partition("\n")[0]

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Its parameters, with annotations and defaults."""
        return inspect.signature(self.make).parameters


ALGORITHMS: dict[str, Algorithm] = {}
"""Every algorithm by name."""


def algorithm(title: str) -> Callable[[Maker], Maker]:
    """Registers a function that makes a strategy under its own name.

    >>> ALGORITHMS["fedbuff"].title
    'FedBuff'
    """

    def register(make: Maker) -> Maker:
        ALGORITHMS[make.__name__] = Algorithm(make.__name__, title, make)
        return make

    return register


def buffered(rule: weigh.Weigh, *, buffer: int = 5, lr: float = 1.0, fresh: bool = True) -> Strategy:
    """Any weighting in the paper's loop: all clients train all the time, every `buffer` updates make a version.

    >>> buffered(weigh.uniform, buffer=3).trigger.label
    'count(3)'
    """
    return Strategy(select.all_idle(fresh=fresh), trigger.count(buffer), rule, apply=apply.scale(lr))


@algorithm("FedAvg")
def fedavg(*, cohort: int = 10, over: float = 0.0, deadline: float | None = None, lr: float = 1.0) -> Strategy:
    """Synchronous rounds of a random cohort, weighted by examples (McMahan et al., 2017).

    w ← w + η_g Σ_i n_i/Σn_j Δ_i

    >>> fedavg(cohort=4).select.label
    'cohort(4)'
    """
    return Strategy(
        select.cohort(cohort, over=over, deadline=deadline),
        trigger.cohort_done(),
        weigh.by_examples,
        apply=apply.scale(lr),
    )


@algorithm("FedAvgM")
def fedavgm(
    *, cohort: int = 10, over: float = 0.0, deadline: float | None = None, lr: float = 1.0, beta: float = 0.9
) -> Strategy:
    """FedAvg with momentum at the server (Hsu et al., 2019).

    m ← βm + step, w ← w + η_g m

    >>> fedavgm(beta=0.5).apply.label
    'chain(momentum(0.5), scale(1.0))'
    """
    rounds = fedavg(cohort=cohort, over=over, deadline=deadline)
    return replace(rounds, apply=apply.chain(apply.momentum(beta), apply.scale(lr)))


@algorithm("FedAdagrad")
def fedadagrad(
    *,
    cohort: int = 10,
    over: float = 0.0,
    deadline: float | None = None,
    lr: float = 0.01,
    beta1: float = 0.0,
    eps: float = 1e-3,
) -> Strategy:
    """FedAvg with Adagrad at the server (Reddi et al., 2021).

    m ← β1 m + (1 − β1) step, s ← s + step², w ← w + η_g m / (√s + ε)

    >>> fedadagrad(lr=0.1).apply.label
    'adagrad(0.1, beta1=0.0, eps=0.001)'
    """
    return replace(fedavg(cohort=cohort, over=over, deadline=deadline), apply=apply.adagrad(lr, beta1, eps))


@algorithm("FedAdam")
def fedadam(
    *,
    cohort: int = 10,
    over: float = 0.0,
    deadline: float | None = None,
    lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-3,
) -> Strategy:
    """FedAvg with Adam at the server (Reddi et al., 2021).

    m ← β1 m + (1 − β1) step, s ← β2 s + (1 − β2) step², w ← w + η_g m / (√s + ε)

    >>> fedadam(lr=0.1).apply.label
    'adam(0.1, beta1=0.9, beta2=0.99, eps=0.001)'
    """
    return replace(fedavg(cohort=cohort, over=over, deadline=deadline), apply=apply.adam(lr, beta1, beta2, eps))


@algorithm("FedYogi")
def fedyogi(
    *,
    cohort: int = 10,
    over: float = 0.0,
    deadline: float | None = None,
    lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-3,
) -> Strategy:
    """FedAvg with Yogi at the server (Reddi et al., 2021).

    m ← β1 m + (1 − β1) step, s ← s − (1 − β2) step² sign(s − step²), w ← w + η_g m / (√s + ε)

    >>> fedyogi(lr=0.1).apply.label
    'yogi(0.1, beta1=0.9, beta2=0.99, eps=0.001)'
    """
    return replace(fedavg(cohort=cohort, over=over, deadline=deadline), apply=apply.yogi(lr, beta1, beta2, eps))


@algorithm("Buffered FedAvg")
def buffered_fedavg(*, buffer: int = 5, lr: float = 1.0, fresh: bool = True) -> Strategy:
    """Asynchronous, every update weighs the same ("FedAvg" in the figures of Ma et al., 2024).

    w ← w + η_g Σ_j Δ_j / b

    >>> buffered_fedavg(buffer=5).trigger.label
    'count(5)'
    """
    return buffered(weigh.uniform, buffer=buffer, lr=lr, fresh=fresh)


@algorithm("FedStaleWeight")
def fedstaleweight(
    *,
    buffer: int = 5,
    scaling: Literal["derivation", "algorithm1"] = "derivation",
    window: int | None = None,
    lr: float = 1.0,
    fresh: bool = True,
) -> Strategy:
    """Weighs each update by how stale its sender usually is, normalised over the buffer (Ma et al., 2024).

    a_i = (mean staleness of i · b + 1) / n, α_j = a_j / Σ_k a_k, w ← w + η_g Σ_j α_j Δ_j.
    `scaling="algorithm1"` leaves out the b, as the paper's Algorithm 1 does.

    >>> fedstaleweight(buffer=5, window=20).window
    20
    """
    scale_by = _choice("scaling", scaling, {"derivation": buffer, "algorithm1": 1})
    rule = weigh.normalised(weigh.mean_staleness(scale=scale_by, window=window))
    return buffered(rule, buffer=buffer, lr=lr, fresh=fresh)


@algorithm("FairShare")
def fairshare(
    *,
    buffer: int = 5,
    estimator: Literal["gap", "staleness"] = "gap",
    normalise: Literal["expectation", "buffer"] = "expectation",
    cap: float | None = 1.5,
    lr: float = 1.0,
    fresh: bool = True,
) -> Strategy:
    """Weighs each update by how rarely its sender is heard, so that every client's influence is 1/n.

    a_i = g_i / n with g_i the mean number of updates from one of i's to its next; α_j = a_j / b; a total weight
    above `cap` is scaled down to it (None or inf: no cap).

    >>> fairshare(buffer=5, cap=None).trigger.label
    'count(5)'
    """
    rarities = {"gap": weigh.mean_gap, "staleness": weigh.mean_staleness(scale=buffer)}
    rarity = _choice("estimator", estimator, rarities)
    ways = {"expectation": weigh.divided(rarity, buffer), "buffer": weigh.normalised(rarity)}
    share = _choice("normalise", normalise, ways)
    return buffered(weigh.capped(share, cap), buffer=buffer, lr=lr, fresh=fresh)


@algorithm("FedBuff")
def fedbuff(
    *,
    buffer: int = 10,
    concurrency: int = 10,
    power: float = 0.5,
    max_staleness: int | None = None,
    lr: float = 1.0,
) -> Strategy:
    """A limited number of clients train at once, a buffer of updates, stale ones weigh less (Nguyen et al., 2022).

    w ← w + η_g (1/K) Σ_j (1 + τ_j)^−power Δ_j

    >>> fedbuff(buffer=10, concurrency=100).select.label
    'concurrency(100)'
    """
    return Strategy(
        select.concurrency(concurrency),
        trigger.count(buffer),
        weigh.times(weigh.uniform, weigh.polynomial(power)),
        admit=None if max_staleness is None else admit.max_staleness(max_staleness),
        apply=apply.scale(lr),
    )


@algorithm("Exponential")
def exponential(*, gamma: float = 0.9, buffer: int = 5, lr: float = 1.0, fresh: bool = True) -> Strategy:
    """Weighs by a power of staleness: γ < 1 favours fresh updates, γ > 1 stale ones (a baseline of Ma et al., 2024).

    α_j = γ^τ_j / Σ_k γ^τ_k

    >>> exponential(gamma=1.1).trigger.label
    'count(5)'
    """
    return buffered(weigh.normalised(weigh.exponential(gamma)), buffer=buffer, lr=lr, fresh=fresh)


@algorithm("Rate tracking")
def rate_tracking(*, buffer: int = 5, lr: float = 1.0, fresh: bool = True) -> Strategy:
    """Weighs by the inverse of a client's rate, estimated from arrival times (a baseline of Ma et al., 2024).

    a_i = mean time between updates of i, α_j = a_j / Σ_k a_k

    >>> rate_tracking(buffer=5).trigger.label
    'count(5)'
    """
    return buffered(weigh.normalised(weigh.mean_interval), buffer=buffer, lr=lr, fresh=fresh)


def _choice(name: str, value: str, choices: Mapping[str, Choice]) -> Choice:
    if value not in choices:
        raise StrategyError(f"{name} is {value!r}, it must be one of {', '.join(choices)}")
    return choices[value]
