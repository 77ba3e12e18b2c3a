"""Methods that work in rounds: FedAvg, its variants, and SAFA, whose rounds tolerate lag."""

from dataclasses import replace
from typing import Literal

from fairlag.core.strategy import Strategy
from fairlag.rules import apply, keep, select, tolerant, trigger, weigh
from fairlag.rules.local import Local
from fairlag.zoo.registry import LARGEST_TOTAL, algorithm, choice


@algorithm("FedAvg")
def fedavg(
    *,
    cohort: int = 10,
    over: float = 0.0,
    deadline: float | None = None,
    importance: Literal["uniform", "examples"] = "examples",
    lr: float = 1.0,
) -> Strategy:
    """Synchronous rounds of a random cohort, weighted by examples (McMahan et al., 2017).

    w ← w + η_g Σ_i n_i/Σn_j Δ_i; with `importance="uniform"`, all clients of a cohort weigh the same

    Departs: a server step size, over-selection and a deadline are options, so that no straggler can hang a round.

    Reference: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017

    >>> fedavg(cohort=4).select.label
    'cohort(4)'
    """
    return Strategy(
        select.cohort(cohort, over=over, deadline=deadline),
        trigger.cohort_done(),
        choice("importance", importance, {"uniform": weigh.uniform, "examples": weigh.by_examples}),
        apply=apply.scale(lr),
    )


@algorithm("FedProx")
def fedprox(
    *, mu: float = 0.01, cohort: int = 10, over: float = 0.0, deadline: float | None = None, lr: float = 1.0
) -> Strategy:
    """FedAvg with a proximal term that pulls clients towards the model they received (Li et al., 2020).

    (μ/2)‖x − w‖² is added to the local objective; w ← w + η_g Σ_i n_i/Σn_j Δ_i

    Departs: partial work comes from the clients (`steps` of a group), not from the strategy.

    Reference: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020

    >>> fedprox(mu=0.1).local
    Local(prox=0.1)
    """
    return replace(fedavg(cohort=cohort, over=over, deadline=deadline, lr=lr), local=Local(prox=mu))


@algorithm("FedNova")
def fednova(
    *,
    cohort: int = 10,
    over: float = 0.0,
    deadline: float | None = None,
    cap: float | None = LARGEST_TOTAL,
    lr: float = 1.0,
) -> Strategy:
    """FedAvg in which clients with more local steps do not pull more (Wang et al., 2020).

    w ← w + η_g (Σ_i p_i a_i) Σ_i p_i Δ_i/a_i, p_i = n_i/Σn_j, a_i how often gradients count in q local steps: from
    v = a = 0, q times v ← ρv + 1 − ημa, a ← a + v, with local momentum ρ, step size η and proximal factor μ

    Departs: with momentum and proximal term together, the authors' code sums a differently; this is what equal
    gradients really give. With only one of the two, both agree. A total weight above `cap` is scaled down to it (None
    or inf: no cap).

    Reference: Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
    NeurIPS 2020

    >>> fednova(cohort=4).weigh._traits.label
    'capped(by_effort, 10.0)'
    """
    rounds = fedavg(cohort=cohort, over=over, deadline=deadline, lr=lr)
    return replace(rounds, weigh=weigh.capped(weigh.by_effort, cap))


@algorithm("FedAvgM")
def fedavgm(
    *, cohort: int = 10, over: float = 0.0, deadline: float | None = None, lr: float = 1.0, beta: float = 0.9
) -> Strategy:
    """FedAvg with momentum at the server (Hsu et al., 2019).

    m ← βm + step, w ← w + η_g m

    Departs: nothing.

    Reference: Hsu et al., "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification", arXiv:1909.06335, 2019

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

    Departs: nothing; as in the paper, there is no bias correction.

    Reference: Reddi et al., "Adaptive Federated Optimization", ICLR 2021

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

    Departs: nothing; as in the paper, there is no bias correction.

    Reference: Reddi et al., "Adaptive Federated Optimization", ICLR 2021

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

    Departs: nothing; as in the paper, there is no bias correction.

    Reference: Reddi et al., "Adaptive Federated Optimization", ICLR 2021

    >>> fedyogi(lr=0.1).apply.label
    'yogi(0.1, beta1=0.9, beta2=0.99, eps=0.001)'
    """
    return replace(fedavg(cohort=cohort, over=over, deadline=deadline), apply=apply.yogi(lr, beta1, beta2, eps))


@algorithm("SAFA")
def safa(*, share: float = 0.5, lag: int = 5, deadline: float | None = None, lr: float = 1.0) -> Strategy:
    """Rounds that slow clients need not finish, over a cache of every client's last model (Wu et al., 2021).

    A round ends with the updates of ⌈C·n⌉ drafted clients, in order of arrival; clients not drafted in the last round
    come first. cache_k ← x_k of the drafted clients, w_v of those more than `lag` versions behind, which start again;
    w ← Σ_k n_k/N cache_k; then cache_k ← x_k of the clients whose updates arrived but were not drafted.

    Departs: clients really continue training across rounds in virtual time. A client that lost its task starts again
    from its version. A round without a deadline also ends when no task is running.

    Reference: Wu et al., "SAFA: a Semi-Asynchronous Protocol for Fast Federated Learning with Low Overhead",
    IEEE Transactions on Computers 70(5), 2021

    >>> safa(share=0.3).select.label
    'tolerant(0.3, lag=5)'
    """
    return Strategy(
        tolerant.tolerant(share, lag=lag, deadline=deadline),
        trigger.cohort_done(),
        weigh.by_share,
        reduce=keep.averaging(),
        apply=apply.scale(lr),
    )
