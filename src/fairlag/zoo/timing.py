"""Newer methods that decide when an update counts, and how much: by its delay, its round, planned steps or its loss."""

from dataclasses import replace

from fairlag.core.strategy import Strategy
from fairlag.rules import admit, apply, check, compass, edit, phases, recent, select, trigger, weigh
from fairlag.rules.local import Local
from fairlag.zoo.fair import buffered
from fairlag.zoo.registry import algorithm
from fairlag.zoo.rounds import fedavg


@algorithm("Delay-adaptive ASGD")
def delay_adaptive(*, lr: float = 1.0) -> Strategy:
    """Merges every arrival; one that is staler than the number of clients weighs less (Mishchenko et al., 2022).

    w ← w + η_g n/max(n, τ) Δ

    Departs: an update is that of several local steps, in the paper one gradient.

    Reference: Mishchenko et al., "Asynchronous SGD Beats Minibatch SGD Under Arbitrary Delays", NeurIPS 2022

    >>> delay_adaptive().trigger.label
    'count(1)'
    """
    return Strategy(select.all_idle(), trigger.count(1), weigh.delay_adaptive, apply=apply.scale(lr))


@algorithm("Rennala SGD")
def rennala(*, buffer: int = 5, call_off: bool = False, lr: float = 1.0) -> Strategy:
    """Merges a buffer of updates that were all trained from the newest version (Tyurin and Richtárik, 2023).

    w ← w + η_g Σ_j Δ_j / b, all τ_j = 0; clients train without a break, and may send several updates per version

    Departs: an update that was trained from an older version is dropped on arrival. With `call_off`, such tasks are
    called off as soon as there is a newer version, as in the paper. An update is that of several local steps.

    Reference: Tyurin and Richtárik, "Optimal Time Complexities of Parallel Stochastic Optimization Methods Under a
    Fixed Computation Model", NeurIPS 2023

    >>> rennala(buffer=3).admit._traits.label
    'max_staleness(0)'
    """
    who = select.all_idle(fresh=False)
    return Strategy(
        select.restarting(who, delay=1) if call_off else who,
        trigger.count(buffer),
        weigh.uniform,
        admit=admit.max_staleness(0),
        apply=apply.scale(lr),
    )


@algorithm("Malenia SGD")
def malenia(*, lr: float = 1.0) -> Strategy:
    """Merges once every client has sent an update trained from the newest version (Tyurin and Richtárik, 2023).

    w ← w + η_g (1/n) Σ_i (1/B_i) Σ Δ, B_i the number of updates of client i since the last version, all with τ = 0

    Departs: a version needs one update of every client that is present; the paper also waits until the harmonic mean of
    the B_i reaches a bound. Updates trained from an older version are dropped on arrival. An update is that of
    several local steps.

    Reference: Tyurin and Richtárik, "Optimal Time Complexities of Parallel Stochastic Optimization Methods Under a
    Fixed Computation Model", NeurIPS 2023

    >>> malenia().trigger.label
    'everyone()'
    """
    return Strategy(
        select.all_idle(fresh=False),
        trigger.everyone(),
        weigh.per_client,
        admit=admit.max_staleness(0),
        apply=apply.scale(lr),
    )


@algorithm("Ringmaster ASGD")
def ringmaster(*, max_delay: int | None = 50, lr: float = 1.0) -> Strategy:
    """Merges every update on arrival, but calls off tasks that are too many versions behind (Maranjyan et al., 2025).

    w ← w + η_g Δ; a task that is R = `max_delay` versions behind is called off, and its client starts again from the
    newest version

    Departs: R is given as a number; the paper derives it from the noise of gradients. An update is that of several
    local steps.

    Reference: Maranjyan, Tyurin and Richtárik, "Ringmaster ASGD: The First Asynchronous SGD with Optimal Time
    Complexity", ICML 2025

    >>> ringmaster(max_delay=8).select.label
    'restarting(all_idle(fresh=True), delay=8)'
    """
    who = select.all_idle()
    return Strategy(
        who if max_delay is None else select.restarting(who, delay=max_delay),
        trigger.count(1),
        weigh.uniform,
        apply=apply.scale(lr),
    )


@algorithm("Ringleader ASGD")
def ringleader(*, lr: float = 1.0) -> Strategy:
    """Collects updates of all clients, then makes one version per client from the mean of their means (2025).

    w ← w + η_g (1/n) Σ_i (1/B_i) Σ Δ over the updates of the round: first when every client has contributed, then once
    per client, as its next update arrives and is added. Updates of clients that already made their version are kept for
    the next round.

    Departs: a round waits for the clients that are present; one that leaves is no longer waited for, and one that
    joins counts from the next round on. An update is that of several local steps.

    Reference: Maranjyan and Richtárik, "Ringleader ASGD: The First Asynchronous SGD with Optimal Time Complexity under
    Data Heterogeneity", arXiv:2509.22860, 2025

    >>> ringleader().reduce.label
    'client_means()'
    """
    return Strategy(
        phases.phases(),
        trigger.as_planned(),
        weigh.equal_share,
        reduce=phases.client_means(),
        apply=apply.scale(lr),
    )


@algorithm("FADAS")
def fadas(
    *,
    buffer: int = 5,
    concurrency: int | None = None,
    delay_limit: float = 1,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-8,
) -> Strategy:
    """Buffered AMSGrad at the server, with a smaller step if the buffer holds a stale update (Wang et al., 2024).

    m ← β1 m + (1 − β1) step, s ← β2 s + (1 − β2) step², ŝ ← max(ŝ, s), w ← w + η m / (√ŝ + ε) with the buffer's mean as
    step; η = `lr` if the largest staleness τ of the buffer is at most τ_c = `delay_limit`, else min(`lr`, 1/τ)

    Departs: all clients train all the time unless `concurrency` is given. The rule for η when the buffer is stale is
    from memory of the paper, and so are s = ŝ = 0 at first and no bias correction.

    Reference: Wang et al., "FADAS: Towards Federated Adaptive Asynchronous Optimization", ICML 2024

    >>> fadas(lr=0.01).apply.label
    'chain(amsgrad(1.0, beta1=0.9, beta2=0.99, eps=1e-08), by_staleness(0.01, limit=1))'
    """
    adaptive = apply.chain(apply.amsgrad(1.0, beta1, beta2, eps), apply.by_staleness(lr, limit=delay_limit))
    return replace(buffered(weigh.uniform, buffer=buffer, concurrency=concurrency, fresh=False), apply=adaptive)


@algorithm("FedCompass")
def fedcompass(
    *,
    min_steps: int = 20,
    max_steps: int = 100,
    momentum: float = 0.9,
    slack: float = 1.5,
    alpha: float = 0.9,
    power: float = 0.5,
) -> Strategy:
    """Plans each client's local steps so that groups of clients finish together (Li et al., 2024).

    w ← (1 − Σα_j) w + Σ α_j x_j, x_j the client's whole model, α_j = α (1 + τ_j)^−power / n, for each group once all of
    it has arrived, or at its deadline. The server keeps each client's seconds per step; the steps Q are those it can
    make until its group's time, from `min_steps` to `max_steps`.

    Departs: as in the authors' framework (github.com/APPFL/APPFL), the first update of a client is merged alone, and a
    late update is merged with the next group. Groups that are due at the same moment are merged together. Q replaces
    the steps of `[local]` and of client groups.

    Reference: Li et al., "FedCompass: Efficient Cross-Silo Federated Learning on Heterogeneous Client Devices Using a
    Computing Power-Aware Scheduler", ICLR 2024

    >>> fedcompass(min_steps=5, max_steps=20).select.label
    'compass(5, 20, momentum=0.9, slack=1.5)'
    """
    check.mixture("alpha", alpha)
    mixed = weigh.times(weigh.equal_share, weigh.constant(alpha), weigh.polynomial(power))
    return Strategy(
        compass.compass(min_steps=min_steps, max_steps=max_steps, momentum=momentum, slack=slack),
        trigger.as_planned(),
        mixed,
        edit=edit.whole_models,
    )


@algorithm("q-FedAvg")
def qfedavg(
    *,
    q: float = 1.0,
    local_lr: float = 0.1,
    cohort: int = 10,
    over: float = 0.0,
    deadline: float | None = None,
    lr: float = 1.0,
) -> Strategy:
    """FedAvg in which clients with a higher loss weigh more, by a power of it (Li et al., 2020).

    w ← w + η_g Σ_i F_i^q Δ_i / Σ_i (q F_i^(q−1) L‖Δ_i‖² + F_i^q), L = 1/`local_lr`, F_i the mean loss of client i's
    examples at the model that it received, which it reports

    Departs: `local_lr` must be told, because a server does not know the step size of its clients; use that of
    `[local]`. A server step size is an option.

    Reference: Li et al., "Fair Resource Allocation in Federated Learning", ICLR 2020

    >>> qfedavg(q=0.5, local_lr=0.1).weigh._traits.label
    'by_loss(0.5, local_lr=0.1)'
    """
    rounds = fedavg(cohort=cohort, over=over, deadline=deadline, lr=lr)
    return replace(rounds, weigh=weigh.by_loss(q, local_lr=local_lr), local=Local(start_loss=True))


@algorithm("FedFa")
def fedfa(*, models: int = 5, lr: float = 1.0) -> Strategy:
    """The model is the mean of the last models that arrived (Xu et al., 2024).

    w ← (1/K) Σ x over the last K = `models` models that arrived, of any client; of all while there are fewer

    Departs: all clients train all the time. A server step size is an option.

    Reference: Xu et al., "FedFa: A Fully Asynchronous Training Paradigm for Federated Learning", IJCAI 2024

    >>> fedfa(models=3).reduce.label
    'last_models(3)'
    """
    mean = recent.last_models(models)
    weighting = weigh.constant(1 / models)
    return Strategy(select.all_idle(), trigger.count(1), weighting, reduce=mean, apply=apply.scale(lr))
