"""How large the bounds of a strategy's weights must be on a fleet, so that every client can get its share."""

from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from fairlag.analyse.theory import cap_needed
from fairlag.core.strategy import Strategy
from fairlag.core.types import Floats, Integers
from fairlag.fleet.clients import Fleet
from fairlag.rules import weigh
from fairlag.rules.rule import provenance


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds that a strategy has, and the smallest ones with which it can be fair."""

    cap: float
    """The largest total weight of a version."""
    cap_needed: float
    limit: float
    """The most that a client can save up."""
    limit_needed: float

    @property
    def warnings(self) -> list[str]:
        """One sentence per bound that is too low.

        >>> Bounds(cap=1.5, cap_needed=5.34, limit=inf, limit_needed=0.0).warnings
        ['its cap of 1.5 is too low for this fleet: rare clients need at least 5.4.']
        """
        pairs = {"cap": (self.cap, self.cap_needed), "limit": (self.limit, self.limit_needed)}
        return [
            f"its {name} of {value:g} is too low for this fleet: rare clients need at least {ceil(10 * least) / 10:g}."
            for name, (value, least) in pairs.items()
            if value < least
        ]


def bounds(strategy: Strategy, fleet: Fleet, updates: Integers, entitled: Floats, buffer: float) -> Bounds | None:
    """The bounds of a strategy that caps its total weight; None if it does not, or if no client has an entitlement.

    `updates` and `entitled` are the number of updates that each client sent, and of versions that it was entitled to.
    All clients of a group are assumed to send equally many. A client with the share p of all updates and the share q of
    all entitlements must weigh q/(b p) per update, on average.
    """
    made = provenance(strategy.weigh)
    if made is None or made.make is not weigh.capped:
        return None
    terms = strategy.account
    sent = (np.bincount(fleet.group_of, updates) / np.bincount(fleet.group_of))[fleet.group_of]
    heard = (sent > 0) & (entitled > 0)
    if not heard.any():
        return None
    shares, parts = sent[heard] / sent.sum(), entitled[heard] / entitled.sum()
    cap = made.arguments["cap"]
    limit = inf if terms is None or terms.limit is None else terms.limit
    return Bounds(
        cap=inf if cap is None else float(cap),
        cap_needed=cap_needed(shares, max(1, round(buffer)), parts),
        limit=limit,
        limit_needed=float((parts / (buffer * shares)).max()),
    )
