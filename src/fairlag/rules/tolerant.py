"""Selection that tolerates lag: in each round, slow clients keep their version, and the first updates are drafted."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fairlag.core.state import State, rows, table, take
from fairlag.core.types import Dispatch
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules import check
from fairlag.rules.select import Select, Selector, in_order


def tolerant(share: float, *, lag: int, deadline: float | None = None) -> Select:
    """SAFA's rounds: all clients train, and may continue over several rounds.

    A client that sent an update, or is more than `lag` versions behind, gets the newest version; the others continue
    from theirs. A round is complete when ⌈share·n⌉ clients that were not drafted in the last
    round have sent an update. At the deadline, or when no task is running, updates of other clients are drafted too, in
    order of arrival.

    >>> tolerant(0.5, lag=5).label
    'tolerant(0.5, lag=5)'
    """
    if not 0 < share <= 1:
        raise StrategyError(f"the share of drafted clients is {share}, it must be above 0 and at most 1")
    check.whole("the tolerated lag", lag, 0, "versions")
    check.deadline(deadline)
    options = f", deadline={deadline}" if deadline is not None else ""
    patience = math.inf if deadline is None else deadline
    return Select(
        f"tolerant({share}, lag={lag}{options})",
        lambda view, stream: _Tolerant(view, share, lag, patience),
        fresh=True,
        rounds=True,
        lag=lag,
    )


class _Tolerant(Selector):
    def __init__(self, view: View, share: float, lag: int, patience: float) -> None:
        super().__init__()
        self._view = view
        self._share, self._lag, self._patience = share, lag, patience
        self._idle: dict[int, None] = {}
        self._has: dict[int, int] = {}
        """Per client: the version that it has, if it has not sent an update trained from it."""
        self._drafted: set[int] = set()
        """The clients drafted in the last round."""
        self._begun = -1
        """The version with which the current round began."""
        self._quota = 0
        """How many updates it drafts; fixed when it begins, even if clients join later."""

    def free(self, client: int, current: bool, pending: bool) -> None:
        self._idle[client] = None
        if pending:
            self._has.pop(client, None)
            self.target += client in self._drafted  # its update does not count towards the quota

    def gone(self, client: int) -> None:
        self._idle.pop(client, None)

    def draft(self, tasks: Sequence[Dispatch]) -> Sequence[bool]:
        # Clients not drafted in the last round come first; sorting is stable, so arrival decides after that.
        senders = [task.client for task in tasks]
        order = sorted(range(len(senders)), key=lambda place: senders[place] in self._drafted)
        places = set(order[: self._quota])
        self._drafted = {senders[place] for place in places}
        return [place in places for place in range(len(senders))]

    def renew(self) -> Mapping[int, str]:
        self.restarted = []
        late = self._view.version - self._lag
        return {
            number: f"more than {self._lag} versions behind"
            for number, task in self._view.tasks.items()
            if task.version < late
        }

    def pick(self) -> Sequence[int]:
        view = self._view
        if self._begun != view.version:
            if not (self._idle or view.running):
                return ()
            # A round also begins if every client is still training, and no task is dispatched.
            self._begun = view.version
            self._quota = self.target = max(1, math.ceil(round(self._share * view.n, 9)))
            self.until = view.time + self._patience
        elif view.running or view.buffered:
            return ()
        picked = list(self._idle)
        self._idle.clear()
        for client in picked:
            has = self._has.get(client, view.version)
            if has < view.version - self._lag:
                self.restarted.append(client)
                has = view.version
            self._has[client] = has
        return picked

    def version(self, client: int) -> int:
        return self._has[client]

    def state(self) -> State:
        return {
            **super().state(),
            "idle": in_order(self._idle),
            "has": table(self._has.items(), client=int, version=int),
            "drafted": np.array(sorted(self._drafted), np.int64),
            "begun": self._begun,
            "quota": self._quota,
            "target": self.target,
            "until": self.until,
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        self._idle = dict.fromkeys(take(state, "idle", np.ndarray).tolist())
        self._has = dict(rows(take(state, "has", dict), "client", "version"))
        self._drafted = set(take(state, "drafted", np.ndarray).tolist())
        self._begun, self._quota = take(state, "begun", int), take(state, "quota", int)
        self.target = take(state, "target", int)
        self.until = take(state, "until", float)
