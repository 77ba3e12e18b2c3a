"""FedStaleWeight, FairShare, and the baselines of the paper's own bench: weightings in one asynchronous loop."""

import inspect
from collections.abc import Mapping
from typing import Literal

from fairlag.core.strategy import Strategy
from fairlag.errors import StrategyError
from fairlag.rules import apply, select, trigger, weigh
from fairlag.zoo.registry import algorithm, choice


def buffered(
    rule: weigh.Weigh, *, buffer: int = 5, concurrency: int | None = None, lr: float = 1.0, fresh: bool = True
) -> Strategy:
    """Any weighting in the paper's loop: all clients train all the time, every `buffer` updates make a version.

    With `concurrency`, at most this many train at once, and a free place goes to a random idle client.

    >>> buffered(weigh.uniform, buffer=3).trigger.label
    'count(3)'
    >>> buffered(weigh.uniform, concurrency=100).select.label
    'concurrency(100, fresh=True)'
    """
    who = select.all_idle(fresh=fresh) if concurrency is None else select.concurrency(concurrency, fresh=fresh)
    return Strategy(who, trigger.count(buffer), rule, apply=apply.scale(lr))


@algorithm("Buffered FedAvg")
def buffered_fedavg(
    *, buffer: int = 5, concurrency: int | None = None, lr: float = 1.0, fresh: bool = True
) -> Strategy:
    """Asynchronous; every update has the same weight ("FedAvg" in the figures of Ma et al., 2024).

    w ← w + η_g Σ_j Δ_j / b

    Departs: nothing.

    Reference: Ma et al., "FedStaleWeight: Buffered Asynchronous Federated Learning with Fair Aggregation via Staleness
    Reweighting", 2024

    >>> buffered_fedavg(buffer=5).trigger.label
    'count(5)'
    """
    return buffered(weigh.uniform, buffer=buffer, concurrency=concurrency, lr=lr, fresh=fresh)


@algorithm("FedStaleWeight")
def fedstaleweight(
    *,
    buffer: int = 5,
    scaling: Literal["derivation", "algorithm1"] = "derivation",
    window: int | None = None,
    concurrency: int | None = None,
    lr: float = 1.0,
    fresh: bool = True,
) -> Strategy:
    """Weighs each update by its sender's mean staleness, normalised over the buffer (Ma et al., 2024).

    a_i = (mean staleness of i · b + 1) / n, α_j = a_j / Σ_k a_k, w ← w + η_g Σ_j α_j Δ_j.
    `scaling="algorithm1"` leaves out the b, like the paper's Algorithm 1.

    Departs: the paper's derivation and its Algorithm 1 contradict each other; the derivation is the default,
    Algorithm 1 an option. Staleness is real here; in the paper's own bench it is nearly zero.

    Reference: Ma et al., "FedStaleWeight: Buffered Asynchronous Federated Learning with Fair Aggregation via Staleness
    Reweighting", 2024

    >>> fedstaleweight(buffer=5, window=20).window
    20
    """
    scale_by = choice("scaling", scaling, {"derivation": buffer, "algorithm1": 1})
    rule = weigh.normalised(weigh.mean_staleness(scale=scale_by, window=window))
    return buffered(rule, buffer=buffer, concurrency=concurrency, lr=lr, fresh=fresh)


@algorithm("FairShare")
def fairshare(
    *,
    buffer: int = 5,
    estimator: Literal["account", "gap", "staleness"] = "account",
    entitled: Literal["present", "known"] = "present",
    importance: Literal["uniform", "examples"] | dict[str, float] = "uniform",
    limit: float | None = 5.0,
    reward: float = 0.0,
    most: float | None = None,
    normalise: Literal["expectation", "buffer"] = "expectation",
    cap: float | None = 2.0,
    concurrency: int | None = None,
    lr: float = 1.0,
    fresh: bool = True,
) -> Strategy:
    """Keeps an account of the influence that each client is entitled to; an update weighs its sender's balance.

    Of each version, first-time senders earn 1/b each. All other entitled clients that hold less than `limit` share the
    rest by importance q: e_i = (1 − |F|/b) q_i / Σ_k q_k. α_i = earned_i − spent_i, split over i's updates in the
    buffer, each at most `most`. A total weight above `cap` is scaled down to it (None or inf: no cap); the rest stays
    in the accounts. With `reward` s, a part s of each version goes to its senders as in FedAvg. No client can spend
    more than it earned, and a present client earns the same however it times its updates.
    `estimator = "gap"`: a_i = g_i / n with g_i the mean number of updates from one of i's to its next, α_j = a_j / b.
    That is fair if clients keep their pace; clients that vary it can cheat.

    Departs: nothing, it is fairlag's own. Gaps are the participation intervals of FedAU (Wang and Ji, 2024), applied to
    buffers. FedStaleWeight is the special case estimator = "staleness", normalise = "buffer".

    Reference: docs/theory.md

    >>> fairshare(buffer=5, cap=None).trigger.label
    'count(5)'
    """
    terms = {"entitled": entitled, "importance": importance, "limit": limit, "reward": reward, "most": most}
    _check_estimator(estimator, normalise, terms)
    if estimator == "account":
        owed = weigh.by_balance(entitled=entitled, importance=importance, limit=limit, reward=reward)
        share = owed if most is None else weigh.at_most(owed, most)
    else:
        rarity = {"gap": weigh.mean_gap, "staleness": weigh.mean_staleness(scale=buffer)}[estimator]
        share = weigh.divided(rarity, buffer) if normalise == "expectation" else weigh.normalised(rarity)
    return buffered(weigh.capped(share, cap), buffer=buffer, concurrency=concurrency, lr=lr, fresh=fresh)


def _check_estimator(estimator: str, normalise: str, terms: Mapping[str, object]) -> None:
    """Refuses options that the estimator would ignore."""
    choice("estimator", estimator, dict.fromkeys(("account", "gap", "staleness")))
    choice("normalise", normalise, dict.fromkeys(("expectation", "buffer")))
    if estimator == "account" and normalise != "expectation":
        raise StrategyError(
            "normalise is 'buffer', which needs estimator = 'gap' or 'staleness': accounts need no normalisation"
        )
    usual = {name: each.default for name, each in inspect.signature(fairshare).parameters.items()}
    given = [name for name, value in terms.items() if value != usual[name]]
    if estimator != "account" and given:
        raise StrategyError(f"{given[0]} is {terms[given[0]]!r}, which needs estimator = 'account', not {estimator!r}")


@algorithm("Exponential")
def exponential(
    *, gamma: float = 0.9, buffer: int = 5, concurrency: int | None = None, lr: float = 1.0, fresh: bool = True
) -> Strategy:
    """Weighs by a power of staleness: γ < 1 favours fresh updates, γ > 1 stale ones (a baseline of Ma et al., 2024).

    α_j = γ^τ_j / Σ_k γ^τ_k

    Departs: nothing.

    Reference: Ma et al., "FedStaleWeight: Buffered Asynchronous Federated Learning with Fair Aggregation via Staleness
    Reweighting", 2024

    >>> exponential(gamma=1.1).trigger.label
    'count(5)'
    """
    return buffered(
        weigh.normalised(weigh.exponential(gamma)), buffer=buffer, concurrency=concurrency, lr=lr, fresh=fresh
    )


@algorithm("Rate tracking")
def rate_tracking(*, buffer: int = 5, concurrency: int | None = None, lr: float = 1.0, fresh: bool = True) -> Strategy:
    """Weighs by the inverse of a client's rate, estimated from arrival times (a baseline of Ma et al., 2024).

    a_i = mean time between updates of i, α_j = a_j / Σ_k a_k

    Departs: nothing.

    Reference: Ma et al., "FedStaleWeight: Buffered Asynchronous Federated Learning with Fair Aggregation via Staleness
    Reweighting", 2024

    >>> rate_tracking(buffer=5).trigger.label
    'count(5)'
    """
    return buffered(weigh.normalised(weigh.mean_interval), buffer=buffer, concurrency=concurrency, lr=lr, fresh=fresh)
