"""Methods with a memory of their clients: of their last updates or models, their intervals, or their gradients."""

from dataclasses import replace

from fairlag.core.strategy import Strategy
from fairlag.rules import apply, keep, replay, select, trigger, weigh
from fairlag.rules.control import Control
from fairlag.rules.local import Local
from fairlag.zoo.fair import buffered
from fairlag.zoo.registry import algorithm
from fairlag.zoo.rounds import fedavg


@algorithm("FedAU")
def fedau(
    *, cutoff: int = 50, cohort: int = 10, over: float = 0.0, deadline: float | None = None, lr: float = 1.0
) -> Strategy:
    """Rounds; clients that take part rarely weigh more, by their mean interval in rounds (Wang and Ji, 2024).

    w ← w + η_g/n Σ_i ω_i Δ_i, ω_i the mean number of rounds from one that i took part in to its next, 1 before the
    second; an interval ends after `cutoff` rounds, and the next begins, even if i has not taken part

    Departs: a client that joins late counts its rounds from then on. ω_i is the mean of the intervals before this
    round, as in the authors' code (github.com/IBM/fedau).

    Reference: Wang and Ji, "A Lightweight Method for Tackling Unknown Participation Statistics in Federated Averaging",
    ICLR 2024

    >>> fedau(cohort=4).weigh._traits.label
    'mean_rounds(longest=50)'
    """
    rounds = fedavg(cohort=cohort, over=over, deadline=deadline, lr=lr)
    return replace(rounds, weigh=weigh.mean_rounds(longest=cutoff))


@algorithm("MIFA")
def mifa(*, cohort: int = 10, over: float = 0.0, deadline: float | None = None, lr: float = 1.0) -> Strategy:
    """Rounds; every step is the mean of all clients' last updates, new or remembered (Gu et al., 2021).

    w ← w + η_g/n Σ_i h_i, h_i ← Δ_i of the clients of this round, 0 before a client's first

    Departs: in the paper, every client takes part in the first round; here h_i is 0 until its first one.

    Reference: Gu et al., "Fast Federated Learning in the Presence of Arbitrary Device Unavailability", NeurIPS 2021

    >>> mifa(cohort=4).reduce.label
    'replaying(1.0)'
    """
    rounds = fedavg(cohort=cohort, over=over, deadline=deadline, lr=lr)
    return replace(rounds, weigh=weigh.equal_share, reduce=replay.replaying())


@algorithm("FedVARP")
def fedvarp(*, cohort: int = 10, over: float = 0.0, deadline: float | None = None, lr: float = 1.0) -> Strategy:
    """Rounds; remembered updates stand in for absent clients, without bias (Jhunjhunwala et al., 2022).

    w ← w + η_g (1/|B| Σ_i (Δ_i − h_i) + 1/n Σ_k h_k), i in the round B, then h_i ← Δ_i; 0 before a client's first

    Departs: nothing.

    Reference: Jhunjhunwala et al., "FedVARP: Tackling the Variance Due to Partial Client Participation in Federated
    Learning", UAI 2022

    >>> fedvarp(cohort=4).select.label
    'cohort(4)'
    """
    rounds = fedavg(cohort=cohort, over=over, deadline=deadline, lr=lr)
    return replace(rounds, weigh=weigh.uniform, reduce=replay.replaying())


@algorithm("FedStale")
def fedstale(
    *, beta: float = 0.5, cohort: int = 10, over: float = 0.0, deadline: float | None = None, lr: float = 1.0
) -> Strategy:
    """Between FedAvg and FedVARP: remembered updates count by a factor β (Rodio and Neglia, 2024).

    w ← w + η_g (1/|B| Σ_i (Δ_i − β h_i) + β/n Σ_k h_k), i in the round B, then h_i ← Δ_i; 0 before a client's first

    Departs: the paper divides an update by n times its client's known chance to take part. Here that is |B|, which is
    the same if all clients take part equally often: then the authors' code gives the same models up to rounding.

    Reference: Rodio and Neglia, "FedStale: Leveraging Stale Client Updates in Federated Learning", ECAI 2024

    >>> fedstale(beta=0.2).reduce.label
    'replaying(0.2)'
    """
    return replace(fedvarp(cohort=cohort, over=over, deadline=deadline, lr=lr), reduce=replay.replaying(beta))


@algorithm("CA²FL")
def ca2fl(*, buffer: int = 10, concurrency: int | None = None, lr: float = 1.0, fresh: bool = True) -> Strategy:
    """Asynchronous buffers, corrected by the remembered updates of all clients (Wang et al., 2024).

    w ← w + η_g (1/b Σ_j (Δ_j − h_i) + 1/n Σ_k h_k) with the h before this buffer, then h_i ← Δ_j in order of arrival

    Departs: all clients train all the time by default; in the paper, a limited number of random ones (`concurrency`).

    Reference: Wang et al., "Tackling the Data Heterogeneity in Asynchronous Federated Learning with Cached Update
    Calibration", ICLR 2024

    >>> ca2fl(buffer=5).trigger.label
    'count(5)'
    """
    loop = buffered(weigh.uniform, buffer=buffer, concurrency=concurrency, lr=lr, fresh=fresh)
    return replace(loop, reduce=replay.replaying())


@algorithm("ACE")
def ace(*, lr: float = 1.0) -> Strategy:
    """Every arrival makes a step of the mean of all clients' last updates (Chang et al., 2025).

    w ← w + η_g/n Σ_i h_i at each arrival, h_i ← Δ_i; the first version waits for an update of every client

    Departs: in the paper a task is one gradient; here h_i is the update of any number of local steps. The first version
    does not wait for clients that have left or whose task was lost: their h_i is 0 until their first update. We found
    no code of the authors; a port by others gives the same models up to rounding.

    Reference: Chang et al., "Mitigating Participation Imbalance Bias in Asynchronous Federated Learning",
    arXiv:2511.19066, 2025

    >>> ace().trigger.label
    'everyone_first(1)'
    """
    return Strategy(
        select.all_idle(),
        trigger.everyone_first(1),
        weigh.equal_share,
        reduce=replay.replaying(),
        apply=apply.scale(lr),
    )


@algorithm("AREA")
def area(*, buffer: int = 5, concurrency: int | None = None, fresh: bool = True) -> Strategy:
    """Asynchronous; each arrival replaces its client's last model in the mean of all clients' models (2024).

    w ← w + 1/n Σ_j (x_j − y_i), x_j the client's model after this task, y_i the one after its last, w_0 at first

    Departs: the server keeps the y_i; in the paper, clients do, and send the difference.

    Reference: Iakovidou and Kim, "Asynchronous Federated Stochastic Optimization for Heterogeneous Objectives Under
    Arbitrary Delays", arXiv:2405.10123, 2024

    >>> area(buffer=3).reduce.label
    'replacing()'
    """
    loop = buffered(weigh.equal_share, buffer=buffer, concurrency=concurrency, fresh=fresh)
    return replace(loop, reduce=keep.replacing())


@algorithm("SCAFFOLD")
def scaffold(*, cohort: int = 10, over: float = 0.0, deadline: float | None = None, lr: float = 1.0) -> Strategy:
    """Rounds; each client's steps are corrected by how its gradients differ from the mean (Karimireddy et al., 2020).

    Client: x ← x − η_ℓ (g − c_i + c), then c_i ← c_i − c − Δ/(K η_ℓ) after K steps. Server: c ← 1/n Σ_i c_i and
    w ← w + η_g/|B| Σ_i Δ_i. All c are 0 at first.

    Departs: with local momentum or a changing step size, K η_ℓ is the sum of the step sizes, as often as each gradient
    counts. If an update is refused or lost, c does not learn of the change of its client's c_i.

    Reference: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020

    >>> scaffold().local
    Local(direction=Control())
    """
    rounds = fedavg(cohort=cohort, over=over, deadline=deadline, lr=lr)
    return replace(rounds, weigh=weigh.uniform, local=Local(direction=Control()))


@algorithm("SCAFFOLD, buffered")
def buffered_scaffold(
    *, buffer: int = 5, concurrency: int | None = None, lr: float = 1.0, fresh: bool = True
) -> Strategy:
    """SCAFFOLD without rounds: every `buffer` updates make a version, and a stale one was trained with an older c.

    Client: x ← x − η_ℓ (g − c_i + c_u), then c_i ← c_i − c_u − Δ/(K η_ℓ), with the c of the version u that it received.
    Server: c ← 1/n Σ_i c_i, w ← w + η_g/b Σ_j Δ_j

    Departs: the paper has rounds only; this is the same method in buffers. Otherwise as `scaffold`.

    Reference: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020

    >>> buffered_scaffold(buffer=3).trigger.label
    'count(3)'
    """
    loop = buffered(weigh.uniform, buffer=buffer, concurrency=concurrency, lr=lr, fresh=fresh)
    return replace(loop, local=Local(direction=Control()))
