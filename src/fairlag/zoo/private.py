"""Strategies that protect single clients: each bounds a client's part of a version, or says why it cannot."""

import math
from dataclasses import replace

from fairlag.core.secure import ACCEPTED, check_reads_sums
from fairlag.core.strategy import Strategy
from fairlag.errors import StrategyError
from fairlag.rules import bounded, select, trigger, weigh
from fairlag.rules.reduce import weighted_sum
from fairlag.rules.rule import label_of, made_with, provenance, traits

_REPORTED = (weigh.by_examples, weigh.by_share, weigh.by_effort)


def hidden(strategy: Strategy, *, bound: float, clients: int) -> Strategy:
    """The strategy without sight of single updates, in which no client's share of a version is above the bound.

    >>> from fairlag.zoo import fedstaleweight
    >>> hidden(fedstaleweight(buffer=5), bound=0.5, clients=10).weigh._traits.label
    'bounded(normalised(mean_staleness(scale=5, window=None)), 0.5)'
    """
    check_reads_sums(strategy)
    check_bound(strategy, bound, clients)
    return replace(strategy, weigh=bounded.bounded(strategy.weigh, bound))


def noisy(strategy: Strategy, *, bound: float, clients: int) -> Strategy:
    """The same for differential privacy, which also needs a bound on the weight of a client: `largest_part`.

    >>> from fairlag.zoo import fairshare
    >>> strategy = noisy(fairshare(buffer=5, most=0.4), bound=0.5, clients=10)
    >>> largest_part(strategy)
    0.4
    """
    check_reads_sums(strategy)
    check_reads_records(strategy)
    check_bound(strategy, bound, clients)
    most = _largest_part(strategy, bound)
    return replace(strategy, weigh=bounded.bounded(strategy.weigh, bound, most=most))


def largest_part(strategy: Strategy) -> float:
    """The largest weight that one client can have in one version, α_max, of a strategy that `noisy` made."""
    known = provenance(strategy.weigh)
    return known.arguments["most"] if known is not None and known.make is bounded.bounded else math.inf


def check_reads_records(strategy: Strategy) -> None:
    """Refuses a strategy that reads what clients report, or that does more with updates than add them up by weight.

    >>> from fairlag.zoo import fedavg
    >>> check_reads_records(fedavg())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fairlag.errors.StrategyError: by_examples reads what clients report of their examples, which noise does not hide...
    """
    account = strategy.account
    found = next((rule.__name__ for rule in _REPORTED if made_with(strategy.weigh, rule)), None)
    if account is not None and account.importance == "examples":
        found = "importance = 'examples'"
    if found is not None:
        raise StrategyError(
            f"{found} reads what clients report of their examples, which noise does not hide: {ACCEPTED}"
        )
    for slot, rule in (("edit", strategy.edit), ("reduce", strategy.reduce)):
        if rule not in (None, weighted_sum):
            raise StrategyError(
                f"{label_of(rule)} in {slot} may make more of an update than its weight says, and noise follows from "
                "weights: use weighted_sum, and no rule of edit"
            )
    if strategy.local.shares:
        raise StrategyError(
            f"its clients send a second vector with each update, which clip and noise do not cover: {ACCEPTED}"
        )


def check_bound(strategy: Strategy, bound: float, clients: int) -> None:
    """Refuses a bound that no version can meet.

    >>> from fairlag.zoo import fedbuff
    >>> check_bound(fedbuff(buffer=4), 0.2, 100)
    Traceback (most recent call last):
    fairlag.errors.StrategyError: the bound is 0.2, which takes at least 5 clients per version, but a version has at \
most 4: use a bound of at least 0.25, or a larger buffer
    """
    bounded.check_bound(bound)
    most = min(clients, updates_of(strategy) or clients)
    least = math.ceil(round(1 / bound, 9))
    if most < least:
        raise StrategyError(
            f"the bound is {bound:g}, which takes at least {least} clients per version, but a version has at most "
            f"{most}: use a bound of at least {1 / most:.3g}, or a larger buffer"
        )


def updates_of(strategy: Strategy) -> int | None:
    """How many updates every version is made of at most; None if that is not known."""
    made = provenance(strategy.trigger.ready)
    if made is not None and made.make is trigger.count:
        return strategy.trigger.needs
    made = provenance(strategy.select.start)
    return made.arguments["m"] if made is not None and made.make is select.cohort else None


def _largest_part(strategy: Strategy, bound: float) -> float:
    """The largest weight of one client in one version."""
    total = bounded.largest_total(strategy.weigh, updates_of(strategy))
    if strategy.account is not None:
        # A client's updates share its balance, so the bound on one update may as well be that on the client.
        single = bounded.largest_weight(strategy.weigh)
        if not single < bounded.largest_total(strategy.weigh):
            raise StrategyError(
                f"{traits(strategy.weigh).label} has no bound on the weight of one update, from which the noise "
                "follows: give `most`, such as most = 0.4"
            )
        return min(single, bound * total)
    if not total < math.inf:
        raise StrategyError(
            f"{traits(strategy.weigh).label} has no bound on the total weight of a version, from which the noise "
            "follows: normalise it, or give it a cap"
        )
    return bound * total
