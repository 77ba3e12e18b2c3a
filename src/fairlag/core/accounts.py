"""FairShare's accounts: what each client has been entitled to so far, and how much of it is left to spend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Literal, cast

import numpy as np

from fairlag.core.columns import lines
from fairlag.core.state import State, copy_into, take
from fairlag.core.types import Floats
from fairlag.errors import StrategyError

COLUMNS = ("base", "balance", "importance", "due", "earns", "heard", "there")
"""The columns of a client's row; `earns` is its importance while it earns, else 0. See `Accounts`."""

MOST_IMPORTANT = 1e4
"""The largest importance of a group (the default is 1): beyond it, rounding would lose small terms in the sums."""

MOST_SHARED = 2.0
"""The most that one version hands out: its own unit and one saved unit. So the first client back gets no windfall."""

SCALARS = {"level": float, "total": float, "members": int, "kept": float}


@dataclass(frozen=True, slots=True)
class Entitlement:
    """The terms of the accounts: which clients share each version, in which proportions, and up to which limit.

    >>> Entitlement(limit=0)
    Traceback (most recent call last):
    ...
    fairlag.errors.StrategyError: the limit is 0, it must be positive, or none for no limit
    """

    entitled: Literal["present", "known"] = "present"
    """Which clients earn: those that are present, or all that ever sent an update."""
    importance: Literal["uniform", "examples"] | Mapping[str, float] = "uniform"
    """The proportions: equal, by training examples, or a number per client group."""
    limit: float | None = 5.0
    """A client that holds this much earns nothing until it has spent some of it."""
    reward: float = 0.0
    """The part of each version that goes to the senders of its updates, as in FedAvg."""

    def __post_init__(self) -> None:
        if self.entitled not in ("present", "known"):
            raise StrategyError(f"entitled is {self.entitled!r}, it must be 'present' or 'known'")
        if isinstance(self.importance, Mapping):
            for group, number in self.importance.items():
                if not 1 / MOST_IMPORTANT <= number <= MOST_IMPORTANT:
                    bounds = f"between {1 / MOST_IMPORTANT:g} and {MOST_IMPORTANT:g}"
                    raise StrategyError(f"the importance of {group!r} is {number}, it must be {bounds}")
        elif self.importance not in ("uniform", "examples"):
            raise StrategyError(
                f"importance is {self.importance!r}, it must be 'uniform', 'examples', or a number per client group"
            )
        if self.limit is not None and not self.limit > 0:
            raise StrategyError(f"the limit is {self.limit}, it must be positive, or none for no limit")
        if not 0 <= self.reward <= 1:
            raise StrategyError(f"the reward is {self.reward}, it must be between 0 and 1")

    def of_group(self, group: str) -> float:
        """The importance of each client of a group; 1 if the terms do not name the group."""
        return self.importance.get(group, 1.0) if isinstance(self.importance, Mapping) else 1.0


class Accounts:
    """What each client has earned and not yet spent. Each version is one unit: all earnings add up to the versions.

    The level is what a client of importance 1 has earned if it shared in every version. While a client earns, its
    balance is importance × (level − base): a new version changes one number, the level, for all clients. Spending
    raises the base. A client that does not earn, because it is away or has reached the limit, has a plain balance.

    >>> accounts = Accounts(Entitlement(), clients=2)
    >>> for client in range(2):
    ...     accounts.join(client)
    >>> accounts.earn([0, 1])
    >>> accounts.held(0), accounts.held(1)
    (0.5, 0.5)
    >>> accounts.spend([0, 1], [0.5, 0.25])
    >>> accounts.earn([0, 1])
    >>> accounts.held(0), accounts.held(1)
    (0.5, 0.75)
    """

    def __init__(self, terms: Entitlement, clients: int = 0) -> None:
        """Empty accounts for a number of clients; more may join."""
        self.terms = terms
        self._limit = inf if terms.limit is None else float(terms.limit)
        self._known = terms.entitled == "known"
        self.level = 0.0
        self.total = 0.0
        """The summed importance of the clients that earn now."""
        self.members = 0
        """The number of clients that earn now."""
        self.kept = 0.0
        """What no client was present to earn. The next versions hand it out, at most one extra unit each."""
        self._full: list[tuple[float, int]] = []
        """A heap of (level, client): the client reaches the limit no earlier. An entry is stale unless it is `due`."""
        self._planned: list[int] = []
        """The clients with a new due. They enter the heap only when some client may reach the limit."""
        self._soonest = inf
        """No client can reach the limit before this level."""
        self._block: Floats = np.empty((0, len(COLUMNS)))
        self._grow(max(clients, 1))

    def _grow(self, capacity: int) -> None:
        block = lines(capacity, 1).view(np.float64)[:, : len(COLUMNS)]
        block[:, COLUMNS.index("due")] = inf
        block[: len(self._block)] = self._block
        self._block, self._capacity = block, capacity
        cells = {name: cast("memoryview[float]", block[:, place].data) for place, name in enumerate(COLUMNS)}
        self._base, self._balance, self._importance = cells["base"], cells["balance"], cells["importance"]
        self._due, self._earns = cells["due"], cells["earns"]
        self._heard, self._there = cells["heard"], cells["there"]

    # Events

    def join(self, client: int, importance: float = 1.0) -> None:
        """The client is present from now on."""
        if client >= len(self._block):
            self._grow(max(client + 1, 2 * len(self._block)))
        self._there[client] = 1.0
        self.rate(client, importance)

    def leave(self, client: int) -> None:
        """The client is away. It keeps its balance, and earns only if all known clients are entitled."""
        self._there[client] = 0.0
        if self.terms.entitled == "present" and self._earns[client]:
            self._exclude(client)

    def rate(self, client: int, importance: float) -> None:
        """The client has this importance from now on."""
        if self._earns[client]:
            self._exclude(client)
        self._importance[client] = importance
        if self._heard[client]:
            self._include(client, self._balance[client])

    def earn(self, senders: Sequence[int]) -> None:
        """Hands out one version, made of one update from each of these senders.

        A first-time sender gets a grant: what an update weighs in FedAvg. All other known clients below the limit
        share the rest.
        """
        heard, reward = self._heard, self.terms.reward
        new = {client for client in senders if not heard[client]}
        if self._soonest <= self.level or len(self._planned) > self._capacity:
            self._retire()
        self.kept += (1.0 - reward) * (1.0 - len(new) / len(senders))
        if self.members:
            shared = min(self.kept, MOST_SHARED)
            self.level += shared / self.total
            self.kept -= shared
        grant = (1.0 - reward) / len(senders)
        for client in new:
            heard[client] = 1.0
            self._balance[client] = grant
        if reward:
            for client in senders:
                self._give(client, reward / len(senders))

    def spend(self, senders: Sequence[int], weights: Sequence[float]) -> None:
        """Charges each sender the weight of its update."""
        earns, base, rewards = self._earns, self._base, self.terms.reward > 0
        for client, weight in zip(senders, weights, strict=True):
            if earning := earns[client]:
                base[client] += weight / earning
                if rewards:  # without rewards it holds less than before, and reaches the limit later
                    self._plan(client, base[client], earning)
            else:
                self._balance[client] = balance = self._balance[client] - weight
                self._include(client, balance)

    # Queries

    def held(self, client: int) -> float:
        """The balance of one client: what it has earned and not spent."""
        earning = self._earns[client]
        return earning * (self.level - self._base[client]) if earning else self._balance[client]

    @property
    def balances(self) -> Floats:
        """The balance of every client."""
        base, balance, _, _, earns, *_ = self._block.T
        balances: Floats = np.where(earns, earns * (self.level - base), balance)
        return balances

    # Which clients earn

    def _include(self, client: int, balance: float) -> None:
        """The client has sent an update: it shares in the versions from now on, if it is entitled to."""
        importance = self._importance[client]
        if (self._there[client] or self._known) and importance > 0 and balance < self._limit:
            self._earns[client] = importance
            self._base[client] = base = self.level - balance / importance
            self.total += importance
            self.members += 1
            self._plan(client, base, importance)

    def _exclude(self, client: int) -> None:
        self._balance[client] = self.held(client)
        self._earns[client] = 0.0
        self.members -= 1
        # Sums of fractions are not exact; the sum over no clients is.
        self.total = self.total - self._importance[client] if self.members else 0.0

    def _give(self, client: int, gain: float) -> None:
        if self._earns[client]:
            self._base[client] -= gain / self._importance[client]
        else:
            self._balance[client] += gain

    def _plan(self, client: int, base: float, importance: float) -> None:
        """Notes the level at which the client reaches the limit, unless an earlier one is noted already."""
        level = base + self._limit / importance
        if level < self._due[client]:  # never true without a limit
            self._due[client] = level
            self._planned.append(client)
            if level < self._soonest:
                self._soonest = level

    def _retire(self) -> None:
        """Stops the earnings of clients that have reached the limit, until they spend."""
        if len(self._full) > 2 * self._capacity:  # most entries are stale
            self._plan_anew()
        heap, due = self._full, self._due
        for client in self._planned:
            heappush(heap, (due[client], client))
        self._planned, self._soonest = [], inf
        while heap and heap[0][0] <= self.level:
            level, client = heappop(heap)
            if level == due[client]:
                due[client] = inf
                if earning := self._earns[client]:
                    base = self._base[client]
                    if base + self._limit / earning <= self.level:
                        self._exclude(client)
                    else:
                        self._plan(client, base, earning)
        if heap:
            self._soonest = min(self._soonest, heap[0][0])

    def _plan_anew(self) -> None:
        due = self._block[:, COLUMNS.index("due")]
        self._full, self._planned, self._soonest = [], np.flatnonzero(due < inf).tolist(), float(due.min())

    def state(self) -> State:
        """All accounts."""
        return {
            **{name: getattr(self, name) for name in SCALARS},
            **{name: self._block[:, place].copy() for place, name in enumerate(COLUMNS)},
        }

    def restore(self, state: State) -> None:
        """Replaces the accounts with the saved ones."""
        for name, kind in SCALARS.items():
            setattr(self, name, take(state, name, kind))
        clients = len(take(state, "base", np.ndarray))
        if clients > len(self._block):
            self._grow(clients)
        for place, name in enumerate(COLUMNS):
            copy_into(self._block[:clients, place], state, name)
        self._plan_anew()
