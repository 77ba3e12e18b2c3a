"""Strategies with differential privacy, and a watched server that also checks weights and budgets at every event."""

from typing import Any

import numpy as np

from fairlag import zoo
from fairlag.core.mechanism import Mechanism
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Dispatch, Event, Joined, Left, Presence
from fairlag.rules import select, trigger, weigh
from fairlag.zoo.private import largest_part, noisy
from tests.support.watched import Watched
from tests.support.worlds import Chance, drawn


def any_private(chance: Chance, clients: int) -> tuple[Strategy, float]:
    """A strategy that differential privacy accepts, with bounded weights, and the bound."""
    fresh = chance.choice([False, True])
    buffer = chance.randint(1, clients if fresh else 8)
    loop: dict[str, Any] = {"buffer": buffer, "fresh": fresh}
    few = chance.randint(1, clients)
    made: list[Strategy] = [
        zoo.buffered_fedavg(**loop),
        zoo.fedstaleweight(**loop),
        zoo.exponential(**loop, gamma=chance.choice([0.5, 3.0])),
        zoo.rate_tracking(**loop),
        zoo.fedbuff(buffer=buffer, concurrency=few),
        zoo.fadas(buffer=buffer),
        zoo.rennala(buffer=buffer),
        zoo.malenia(),
        zoo.ringmaster(max_delay=3),
        zoo.fairshare(**loop, most=0.3, entitled=chance.choice(["present", "known"])),
        zoo.fairshare(**loop, most=1.5, reward=0.4, limit=0.3),
        Strategy(select.cohort(few, over=0.5, deadline=3.0), trigger.cohort_done(), weigh.uniform),
        Strategy(select.once_merged(), trigger.every(7.0), weigh.per_client),
    ]
    strategy = chance.choice(made)
    least = min(clients, zoo.private.updates_of(strategy) or clients)
    bound = chance.choice([1.0, 1 / least, min(1.0, 1.5 / least)])
    return noisy(strategy, bound=bound, clients=clients), bound


private = drawn(any_private)


class Guarded(Watched):
    """A watched server whose clients are never charged more than their budgets, even if all their tasks weigh most."""

    def __init__(self, strategy: Strategy, **options: Any) -> None:
        self.charged: dict[int, float] = {}
        super().__init__(strategy, **options)
        assert self._privacy is not None
        self.mechanism = self._privacy

    def _follow(self, event: Event) -> None:
        if isinstance(event, Left) and event.client in self.over:
            return
        super()._follow(event)
        if isinstance(event, Joined):
            self.there -= self.over

    def _attended(self, record: Presence, event: Event) -> None:
        if not record.present and self.there >= set(record.clients):  # who left by itself is not there any more
            self.over |= set(record.clients)
            self.there -= set(record.clients)
        super()._attended(record, event)

    def _merged(self, record: Aggregation, event: Event) -> None:
        super()._merged(record, event)
        sums: dict[int, float] = {}
        for task, weight in zip(record.tasks, record.weights.tolist(), strict=True):
            sums[task.client] = sums.get(task.client, 0.0) + weight
        assert max(sums.values()) <= self.mechanism.most * (1 + 1e-9)
        for client, weight in sums.items():
            loss = weight**2 / (2 * self.mechanism.noise**2 * self.mechanism.most**2)
            self.charged[client] = self.charged.get(client, 0.0) + loss

    def _given(self, task: Dispatch, event: Event) -> None:
        super()._given(task, event)
        assert task.client not in self.over, "a client whose budget is spent was asked again"
        waiting = sum(other.client == task.client for other in self.pending)
        worst = self.charged.get(task.client, 0.0) + (waiting + 1) / (2 * self.mechanism.noise**2)
        assert worst <= self.mechanism.budget * (1 + 1e-8), "its next update might exceed the budget"


def mechanism(strategy: Strategy, bound: float, *, updates: float = np.inf, **changes: Any) -> Mechanism:
    """A mechanism without real noise, whose budgets are spent by this many updates of the largest weight."""
    given = {"clip": 1.0, "noise": 2.0, "draw": lambda version, count: np.zeros(count), **changes}
    budget = updates / (2 * given["noise"] ** 2)
    return Mechanism(most=largest_part(strategy), budget=budget, least=int(np.ceil(round(1 / bound, 9))), **given)
