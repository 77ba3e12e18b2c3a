"""Secure aggregation as the server sees it: masked updates, and what adds them up. No cryptography lives here."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fairlag.core.state import Savable
from fairlag.core.strategy import Strategy
from fairlag.core.types import Dispatch, Floats, Report, Update
from fairlag.core.vector import Layout, Vector
from fairlag.errors import StrategyError
from fairlag.rules.keep import Keeping
from fairlag.rules.reduce import weighted_sum
from fairlag.rules.rule import label_of, provenance
from fairlag.rules.trigger import count

Words = NDArray[np.uint64]
"""Masked updates, one row each: the masked numbers, then the sealed seed of the mask.

A client whose update is not finite sends an empty row: there is nothing to mask."""

ACCEPTED = "use one that reads only who sent an update and how late, such as fedbuff, fedstaleweight or fairshare"
"""The end of a sentence that refuses a strategy."""


def masked_update(row: Words, report: Report = Report()) -> Update:  # noqa: B008 (frozen)
    """A masked update. Words stand in the place of numbers: no rule reads them, and only a `SecureSum` adds them up."""
    return Update(row, report)  # type: ignore[arg-type]


class SecureSum(Savable, Protocol):
    """Adds up masked updates with the help of a keeper, which the server must not be able to do alone."""

    @property
    def words(self) -> int:
        """How many 64-bit words an update has."""

    def objection(self, row: Words, task: Dispatch) -> str | None:
        """Why a row cannot be the update of this task, as far as can be seen of it; None if it can."""

    def summed(self, tasks: Sequence[Dispatch], rows: Words, weights: Floats) -> tuple[Vector, Floats] | str:
        """The step Σ_j α_j Δ_j and the weights; or why there is none: the updates are lost.

        A row that turns out to be useless gets the weight 0.
        """


def check_reads_sums(strategy: Strategy) -> None:
    """Refuses a strategy that needs single updates.

    >>> from fairlag.zoo import defended, fedbuff
    >>> check_reads_sums(defended(fedbuff(), "median"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fairlag.errors.StrategyError: median in reduce reads single updates, which [privacy] hides: use one that ...
    """
    for slot in strategy.readers:
        rule = getattr(strategy, slot)
        keeps = "remembers" if isinstance(rule, Keeping) else "reads"
        raise StrategyError(f"{label_of(rule)} in {slot} {keeps} single updates, which [privacy] hides: {ACCEPTED}")


def check_hidden(strategy: Strategy, layout: Layout) -> None:
    """Refuses a strategy and a model for which a weighted sum of updates is not enough.

    >>> from fairlag.zoo import async_fedavg
    >>> check_hidden(async_fedavg(), Layout((), ()))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fairlag.errors.StrategyError: count(1) in trigger makes a version of every single update, which shows it: use ...
    """
    check_reads_sums(strategy)
    if strategy.reduce is not weighted_sum:
        raise StrategyError(
            f"{label_of(strategy.reduce)} in reduce is not the weighted sum of the updates, and secure aggregation "
            "computes nothing else: use weighted_sum"
        )
    made = provenance(strategy.trigger.ready)
    if made is not None and made.make is count and made.arguments["k"] == 1:
        raise StrategyError(
            "count(1) in trigger makes a version of every single update, which shows it: use a larger buffer, or a "
            "strategy that has one, such as fedbuff"
        )
    if strategy.local.shares:
        raise StrategyError(
            "its clients send a second vector with each update, whose weights are not those of the updates, and secure "
            f"aggregation has one sum per version: {ACCEPTED}"
        )
    if layout.statistics:
        raise StrategyError(
            f"the model has statistics ({layout.names[-layout.statistics]!r}, …), which are mixed as values and not "
            "added up, so secure aggregation cannot hide them: use a model without statistics, such as one with "
            "GroupNorm instead of BatchNorm"
        )
