"""Methods that merge updates as they arrive: one by one, in buffers, or at fixed intervals."""

from typing import Literal

from fairlag.core.strategy import Strategy
from fairlag.rules import admit, apply, check, edit, keep, select, trigger, utility, weigh
from fairlag.rules.local import Feedback, Local, log_delay, toward_drift
from fairlag.zoo.registry import LARGEST_TOTAL, algorithm, choice

_IMPORTANCE = {"uniform": weigh.equal_share, "examples": weigh.by_share}


@algorithm("FedAsync")
def fedasync(
    *,
    alpha: float = 0.6,
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial",
    power: float = 0.5,
    slope: float = 10.0,
    start: float = 4.0,
    prox: float = 0.005,
    max_staleness: int | None = None,
) -> Strategy:
    """Mixes every arriving model into the server's, stale ones less (Xie et al., 2019).

    w ← (1 − α_t) w + α_t x, x the client's whole model, α_t = α·s(τ); s constant: 1; polynomial: (τ + 1)^−power;
    hinge: 1 if τ ≤ start else 1/(slope·(τ − start) + 1). The local objective has (ρ/2)‖x − w‖², ρ = `prox`.

    Departs: all clients train all the time; in the paper they are triggered at random.

    Reference: Xie et al., "Asynchronous Federated Optimization", arXiv:1903.03934, 2019

    >>> fedasync(staleness="hinge").weigh._traits.label
    'times(constant(0.6), hinge(10.0, start=4.0))'
    """
    check.mixture("alpha", alpha)
    kinds = {
        "constant": weigh.constant(1.0),
        "polynomial": weigh.polynomial(power),
        "hinge": weigh.hinge(slope, start=start),
    }
    return Strategy(
        select.all_idle(),
        trigger.count(1),
        weigh.times(weigh.constant(alpha), choice("staleness", staleness, kinds)),
        local=Local(prox=prox),
        admit=None if max_staleness is None else admit.max_staleness(max_staleness),
        edit=edit.whole_models,
    )


@algorithm("Asynchronous FedAvg")
def async_fedavg(
    *, importance: Literal["uniform", "examples"] = "examples", cap: float | None = LARGEST_TOTAL, lr: float = 1.0
) -> Strategy:
    """Merges every update on arrival; slow clients weigh more, so that each counts the same (Fraboni et al., 2023).

    w ← w + η_g d_i Δ_i, d_i = (Σ_j 1/T_j) T_i p_i, T_i the mean duration of i's tasks, p_i = 1/n or n_i/N

    Departs: T_i is the mean observed so far, and the sum is over the clients with updates. A weight d_i above `cap`
    counts as `cap`; without it, a client that is once an hour late would weigh thousands of times as much (None or inf:
    no cap).

    Reference: Fraboni et al., "A General Theory for Federated Optimization with Asynchronous and Heterogeneous Clients
    Updates", JMLR 24, 2023

    >>> async_fedavg().trigger.label
    'count(1)'
    """
    rule = weigh.times(weigh.by_slowness, choice("importance", importance, _IMPORTANCE))
    return Strategy(select.all_idle(), trigger.count(1), weigh.capped(rule, cap), apply=apply.scale(lr))


@algorithm("FedBuff")
def fedbuff(
    *,
    buffer: int = 10,
    concurrency: int = 10,
    power: float = 0.5,
    max_staleness: int | None = None,
    lr: float = 1.0,
) -> Strategy:
    """Merges a buffer of updates from a limited number of clients at once; stale ones weigh less (Nguyen et al., 2022).

    w ← w + η_g (1/K) Σ_j (1 + τ_j)^−power Δ_j

    Departs: without secure aggregation and differential privacy.

    Reference: Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022

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


@algorithm("FedFix")
def fedfix(
    *,
    interval: float = 5.0,
    importance: Literal["uniform", "examples"] = "examples",
    cap: float | None = LARGEST_TOTAL,
    lr: float = 1.0,
) -> Strategy:
    """Merges at fixed intervals what has arrived; slow clients weigh more (Fraboni et al., 2023).

    w ← w + η_g Σ_i d_i Δ_i every Δt, d_i = ⌈T_i/Δt⌉ p_i, T_i the mean duration of i's tasks, p_i = 1/n or n_i/N;
    if nothing has arrived, there is no new version

    Departs: T_i is the mean observed so far. A total weight above `cap` is scaled down to it (None or inf: no cap).

    Reference: Fraboni et al., "A General Theory for Federated Optimization with Asynchronous and Heterogeneous Clients
    Updates", JMLR 24, 2023

    >>> fedfix(interval=2.5).trigger.label
    'every(2.5)'
    """
    rule = weigh.times(weigh.by_ticks(interval), choice("importance", importance, _IMPORTANCE))
    return Strategy(select.once_merged(), trigger.every(interval), weigh.capped(rule, cap), apply=apply.scale(lr))


@algorithm("AsyncFedED")
def asyncfeded(
    *,
    factor: float = 1.0,
    eps: float = 1.0,
    target: float = 3.0,
    gain: float = 1.0,
    steps: int = 10,
    max_gamma: float | None = None,
) -> Strategy:
    """Weighs each arrival by how far the model has moved since, which also sets the local steps (Wang et al., 2022).

    γ = ‖w_v − w_u‖/‖Δ‖, w ← w + λ/(γ + ε) Δ, and i's next number of local steps K ← max(1, K + round((γ̄ − γ)·κ)),
    with λ = `factor`, γ̄ = `target`, κ = `gain`, and K = `steps` at first

    Departs: K counts steps, not epochs; it replaces the steps of `[local]` and of client groups.

    Reference: Wang et al., "AsyncFedED: Asynchronous Federated Learning with Euclidean Distance based Adaptive Weight
    Aggregation", arXiv:2205.13797, 2022

    >>> asyncfeded(steps=4).local
    Local(steps=toward_drift(3.0, gain=1.0, first=4))
    """
    return Strategy(
        select.all_idle(),
        trigger.count(1),
        weigh.by_drift(factor, eps=eps),
        local=Local(steps=toward_drift(target, gain=gain, first=steps)),
        admit=None if max_gamma is None else admit.max_drift(max_gamma),
    )


@algorithm("ASO-Fed")
def asofed(
    *,
    prox: float = 1.0,
    beta: float = 0.001,
    attention: Literal["normalised", "paper"] | None = None,
) -> Strategy:
    """For streaming data: each arrival replaces its client's last model in the server's (Chen et al., 2020).

    w ← w − n_k/N (x'_k − x_k), x'_k the client's last model, n_k and N the examples visible at that time; then, with
    `attention`, the first layer's w_ij ← w_ij · softmax_j(|w_ij|), times the row length if "normalised". Client: g of
    f + (λ/2)‖x − w‖², ζ = g − g' + h, h ← βh + (1−β)g', x ← x − r η_ℓ ζ, r = max(1, ln(mean duration of its tasks));
    h and g' last between tasks.

    Departs: no attention by default. With the paper's formula the first layer shrinks to 0, and with the row length it
    grows without bounds, within about 30 arrivals on digits (docs/decisions.md).

    Reference: Chen et al., "Asynchronous Online Federated Learning for Edge Devices with Non-IID Data", IEEE Big Data
    2020

    >>> asofed(beta=0.5).local
    Local(prox=1.0, pace=log_delay, direction=Feedback(beta=0.5))
    """
    return Strategy(
        select.all_idle(),
        trigger.count(1),
        weigh.by_share,
        local=Local(prox=prox, pace=log_delay, direction=Feedback(beta)),
        reduce=keep.replacing(),
        apply=apply.scale(1.0) if attention is None else apply.attention(attention),
    )


@algorithm("Pisces")
def pisces(
    *,
    concurrency: int = 10,
    staleness_bound: float | None = None,
    power: float = 0.5,
    window: int | None = 5,
    explore: float = 0.9,
    decay: float = 0.98,
    least: float = 0.3,
    unseen: float = 180.0,
    credit: int | None = None,
    nearby: int = 5,
    reach: float = 0.5,
    lr: float = 1.0,
) -> Strategy:
    """Selects the clients with the highest utility, and merges often enough to bound staleness (Jiang et al., 2022).

    Next: the highest n_i·(mean squared loss)^½·(1 + mean staleness of i's last `window` updates)^−power, or with
    probability `explore` a client without updates; each selection multiplies `explore` by `decay`, down to `least`.
    w ← w + η_g Σ_j n_j/Σn_k (1 + τ_j)^−power Δ_j once D/`staleness_bound` has passed, D the mean task duration of the
    slowest running client, `unseen` seconds for a client without updates; the bound defaults to `concurrency`. With
    `credit`, a loss that is an outlier (DBSCAN, radius `reach`) among those from versions up to `nearby` apart costs
    one credit; at 0 a client is never selected again.

    Departs: defaults and weights are those of the authors' code (github.com/SamuelGong/Pisces). Their server
    selects every 5 s, and then dispatches up to `concurrency` more tasks; this one selects at every event and never has
    more than `concurrency` running, so `decay` counts selections. D is the mean of the observed durations, in their
    server the last one. With credit, this one judges the updates since the last version, among at least 5 of the last
    50 losses. Theirs judges all clients of the last versions each time, among at least `concurrency` losses, and an
    outlier has fewer than half of that number near it. Their penalty for slow clients is left out; it is off in all of
    their experiments.

    Reference: Jiang et al., "Pisces: Efficient Federated Learning via Guided Asynchronous Training", SoCC 2022

    >>> pisces(concurrency=5).select.label, pisces(concurrency=5).trigger.label
    ('by_utility(5, power=0.5, window=5, explore=0.9, decay=0.98, least=0.3)', 'paced(5, unseen=180.0)')
    """
    suspicion = utility.Credit(credit=1 if credit is None else credit, nearby=nearby, reach=reach)
    exploring = {"explore": explore, "decay": decay, "least": least}
    return Strategy(
        utility.by_utility(concurrency, power=power, window=window, credit=suspicion if credit else None, **exploring),
        trigger.paced(concurrency if staleness_bound is None else staleness_bound, unseen=unseen),
        weigh.times(weigh.by_examples, weigh.polynomial(power)),
        local=Local(losses=True),
        apply=apply.scale(lr),
    )
