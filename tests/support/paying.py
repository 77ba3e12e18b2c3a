"""A server whose accounts are kept a second time, by the definition, and any strategy that weighs by account."""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from fairlag.core.accounts import Entitlement
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Arrived, Event
from fairlag.rules import admit, apply, select, trigger, weigh
from tests.support.watched import Watched
from tests.support.worlds import Chance

ROUNDING = 1e-9


class Paying(Watched):
    """Keeps books of its own by the definition, paying every client at every version, and compares at each event."""

    def __init__(self, strategy: Strategy, *, clients: int, **options: Any) -> None:
        assert strategy.account is not None
        self.terms: Entitlement = strategy.account
        self.group_of = options.get("group_of", lambda client: "")
        self.importance = np.ones(clients)
        if not isinstance(self.terms.importance, str):
            self.importance[:] = [self.terms.of_group(self.group_of(client)) for client in range(clients)]
        self.heard = np.zeros(clients, bool)
        self.earned = np.zeros(clients)
        self.kept = 0.0
        self.history = [np.zeros(clients)]
        """What everyone has earned after each version."""
        self.pool = [0.0]
        """What is kept after each version."""
        self.first = np.zeros(clients, int)
        """The version with which each client was heard for the first time."""
        super().__init__(strategy, clients=clients, **options)

    def _follow(self, event: Event) -> None:
        waited = len(self.pending)
        super()._follow(event)
        if isinstance(event, Arrived) and self.terms.importance == "examples":
            for task in self.pending[waited:]:  # none if it was refused, or came twice
                self.importance[task.client] = event.update.report.examples

    def _merged(self, record: Aggregation, event: Event) -> None:
        senders = [task.client for task in record.tasks]
        held = self.earned - self.account
        there = np.zeros(len(held), bool)
        there[list(self.there) if self.terms.entitled == "present" else slice(None)] = True
        sharing = self.heard & there & (held < (inf if self.terms.limit is None else self.terms.limit))
        new = sorted({client for client in senders if not self.heard[client]})
        part, count = 1 - self.terms.reward, len(senders)
        self.kept += part * (1 - len(new) / count)
        shared = min(self.kept, 2.0) if sharing.any() else 0.0
        self.kept -= shared
        if shared:
            self.earned[sharing] += shared * self.importance[sharing] / self.importance[sharing].sum()
        self.earned[new] += part / count
        np.add.at(self.earned, senders, self.terms.reward / count)
        self.heard[new] = True
        super()._merged(record, event)
        self.history.append(self.earned.copy())
        self.pool.append(self.kept)
        self.first[new] = self.newest
        allowed = ROUNDING * (1 + self.newest)
        assert (self.account <= self.earned + allowed).all(), "a client spent more than it earned"
        if self.terms.limit is not None and not self.terms.reward:
            assert (self.earned - self.account < self.terms.limit + 2).all(), "a client holds more than it may"

    def agrees(self) -> None:
        super().agrees()
        rows, allowed = len(self.view.earned), ROUNDING * (1 + self.newest)
        np.testing.assert_allclose(self.view.earned, self.earned[:rows], rtol=0, atol=allowed)
        assert abs(self.earned.sum() + self.kept - self.newest) <= allowed, "earnings do not add up to the versions"


def any_weighing(chance: Chance, /, **fixed: Any) -> weigh.Weigh:
    """Accounts on any terms, under any bounds, and a rule of one's own that spends a half."""
    terms: dict[str, Any] = {
        "entitled": chance.choice(["present", "known"]),
        "importance": chance.choice(["uniform", "examples", {"a": 2.5, "b": 0.3}]),
        "limit": chance.choice([None, 0.2937, 1.0371, 4.9371]),  # reached by no sum of simple fractions
        "reward": chance.choice([0.0, 0.0, 0.4, 1.0]),
    }
    owed = weigh.by_balance(**{**terms, **fixed})
    if chance.randint(0, 4) == 0:
        owed = weigh.times(owed, weigh.constant(0.5))
    return weigh.capped(weigh.at_most(owed, chance.choice([None, None, 0.15])), chance.choice(CAPS))


CAPS = [None, 0.5, 1.5, 2.0]
SERVERS = [apply.scale(1.0), apply.momentum(0.9), apply.adam(0.1)]


def any_by_account(chance: Chance, /, clients: int, **fixed: Any) -> Strategy:
    """Any composition that weighs by account: with each trigger and selection, refusals, and server optimisers."""
    rule, fresh = any_weighing(chance, **fixed), chance.choice([False, True])
    buffer, few = chance.randint(1, clients if fresh else 8), chance.randint(1, clients)
    kind = chance.choice(["all", "places", "every", "quorum", "rounds"])
    if kind == "rounds":
        over, deadline = chance.choice([0.0, 2.0]), chance.choice([None, 3.0])
        made = Strategy(select.cohort(few, over=over, deadline=deadline), trigger.cohort_done(), rule)
    elif kind == "places":
        made = Strategy(select.concurrency(few, fresh=fresh), trigger.count(min(buffer, few)), rule)
    else:
        when = {"all": trigger.count(buffer), "every": trigger.every(7.0), "quorum": trigger.quorum(buffer, deadline=6)}
        made = Strategy(select.all_idle(fresh=fresh), when[kind], rule)
    refuses = chance.choice([None, None, admit.max_staleness(2)])
    return replace(made, admit=refuses, apply=chance.choice(SERVERS))
