"""Privacy budgets: what each client has used, which clients wait, and which get no more tasks."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from fairlag.core.state import State, rows, table, take
from fairlag.core.types import Dispatch

_SLACK = 1e-9
"""What differs from a budget by less, relatively, is rounding."""


class Budgets:
    """How much of its budget each client has used, in units of one update with the largest weight.

    A client may get a task only if that task and all its updates in the buffer fit with the largest weight. One that
    does not fit waits until its buffered updates are merged, because they may weigh less. If it does not fit then, its
    budget is spent.

    >>> budgets = Budgets(allowed=2.5)
    >>> budgets.fits(7, buffered=1), budgets.fits(7, buffered=2)
    (True, False)
    >>> budgets.charge({7: 1.0})
    >>> budgets.fits(7, buffered=0), budgets.fits(7, buffered=1)
    (True, False)
    """

    def __init__(self, allowed: float, least: int = 1) -> None:
        """`allowed` is the budget of every client; a version is made of at least `least` clients."""
        self._allowed = allowed * (1 + _SLACK)
        self.least = least
        self.used: dict[int, float] = {}
        self.waiting: dict[int, None] = {}
        """Idle clients that get no task before their updates in the buffer are merged."""
        self.spent: dict[int, None] = {}
        """The clients that get no task any more."""
        self.unsettled = False
        """Has anything changed since `settled` was called?"""

    def fits(self, client: int, buffered: int) -> bool:
        """May the client get a task, with this number of its updates in the buffer?"""
        return self.used.get(client, 0.0) + buffered + 1 <= self._allowed

    def wait(self, client: int) -> None:
        """The client is idle, but its next task might not fit."""
        self.waiting[client] = None
        self.unsettled = True

    def leave(self, client: int) -> None:
        """The client has left."""
        self.waiting.pop(client, None)

    def charge(self, uses: Mapping[int, float]) -> None:
        """A version was made in which clients used this much."""
        for client, use in uses.items():
            self.used[client] = self.used.get(client, 0.0) + use
        self.unsettled = True

    def settled(self, buffer: Sequence[Dispatch]) -> tuple[list[int], list[int]]:
        """The clients that wait no longer: those that may get a task, and those whose budget is spent."""
        self.unsettled = False
        held = Counter(task.client for task in buffer) if self.waiting else Counter[int]()
        free = [client for client in self.waiting if self.fits(client, held[client])]
        over = [client for client in self.waiting if not held[client] and not self.fits(client, 0)]
        for client in (*free, *over):
            del self.waiting[client]
        self.spent.update(dict.fromkeys(over))
        return free, over

    def state(self) -> State:
        """What was used, who waits, and whose budget is spent."""
        return {
            "used": table(self.used.items(), client=int, use=float),
            "waiting": np.array([*self.waiting], np.int64),
            "spent": np.array([*self.spent], np.int64),
        }

    def restore(self, state: State) -> None:
        """Replaces what was used."""
        self.used = dict(rows(take(state, "used", dict), "client", "use"))
        self.waiting = dict.fromkeys(take(state, "waiting", np.ndarray).tolist())
        self.spent = dict.fromkeys(take(state, "spent", np.ndarray).tolist())
