"""Selection by utility: places go to the clients with the most to teach; those with odd losses lose credit."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from fairlag.rules import check
from fairlag.rules.select import Select, Selector
from fairlag.seeds import uniform
from fairlag.state import State, rows, table, take
from fairlag.view import View


@dataclass(frozen=True, slots=True)
class Credit:
    """How clients are suspected: whose loss is an outlier among the last updates from nearby versions loses credit.

    An outlier is what DBSCAN leaves out of every cluster: a loss with fewer than `least` of the pool's, itself
    included, within `reach`, and none of a cluster either. Nobody is suspected before the pool holds `least` losses.

    >>> Credit().outlier([0.1, 0.2, 0.15, 0.1, 0.12, 9.0], 5), Credit().outlier([0.1, 0.2, 0.15, 0.1, 0.12], 4)
    (True, False)
    """

    credit: int = 5
    """How many times a client may be an outlier; after the last it is not selected any more."""
    nearby: int = 5
    """How many versions apart losses are comparable."""
    pool: int = 50
    """How many of the last updates are looked at."""
    reach: float = 0.5
    least: int = 5

    def __post_init__(self) -> None:
        for name, least in (("credit", 1), ("nearby", 0), ("pool", 1), ("least", 1)):
            check.whole(name, getattr(self, name), least)
        check.positive("the reach", self.reach)

    def outlier(self, losses: Sequence[float], place: int) -> bool:
        """Is the loss at that place an outlier among them all?"""
        if len(losses) < self.least:
            return False
        values = np.array(losses)
        near = np.abs(values[:, None] - values) <= self.reach
        core = np.count_nonzero(near, axis=1) >= self.least
        return not core[near[place]].any()


def by_utility(m: int, *, power: float = 0.5, window: int | None = None, credit: Credit | None = None) -> Select:
    """At most m clients train at once; a free place goes to the idle client of the highest utility, unseen ones first.

    The utility is n_i · (root of the mean squared loss of i) · (1 + mean staleness of i)^−power, ties at random. With
    `credit`, clients whose losses are outliers are in the end not selected any more.

    >>> by_utility(5).label
    'by_utility(5, power=0.5)'
    """
    check.whole("the concurrency", m, 1, "client")
    check.not_negative("the power", power)
    check.window(window)
    options = [f"window={window}"] * (window is not None) + [f"credit={credit}"] * (credit is not None)
    return Select(
        f"by_utility({', '.join([str(m), f'power={power}', *options])})",
        lambda view, stream: _Utility(view, stream, m, power, window, credit),
        places=m,
        window=window or 0,
    )


class _Utility(Selector):
    def __init__(
        self, view: View, stream: int, places: int, power: float, window: int | None, credit: Credit | None
    ) -> None:
        super().__init__()
        self._view = view
        self._stream, self._drawn = stream, 0
        self._places, self._power, self._window = places, power, window
        self._credit = credit
        self._heap: list[tuple[float, float, int]] = []
        self._idle: dict[int, float] = {}
        """The random number by which each idle client's valid entry in the heap is known."""
        self._came: list[int] = []
        """Who has sent an update since the last version."""
        self._losses: deque[tuple[int, int, float]] = deque(maxlen=credit.pool if credit else 0)
        self._spent: dict[int, int] = {}
        self._barred = 0

    def free(self, client: int, current: bool, pending: bool) -> None:
        if pending:
            self._came.append(client)
            if self._credit is not None:
                version, loss = self._view.contributed[client].item(), self._view.losses[client].item()
                self._losses.append((client, version, loss))
        self._admit(client)

    def gone(self, client: int) -> None:
        self._idle.pop(client, None)

    def renew(self) -> Mapping[int, str]:
        came, self._came = self._came, []
        self._suspect(len(came))
        for client in dict.fromkeys(came):  # their staleness, and so their utility, is known only now
            if client in self._idle:
                del self._idle[client]
                self._admit(client)
        return {}

    def pick(self) -> Sequence[int]:
        picked: list[int] = []
        while self._heap and len(picked) < self._places - self._view.running:
            _, draw, client = heappop(self._heap)
            if self._idle.get(client) == draw:
                del self._idle[client]
                picked.append(client)
        return picked

    @property
    def barred(self) -> int:
        return self._barred

    @property
    def why(self) -> str:
        return f"{self._barred} of all {self._view.n} have lost all their credit" if self._barred else ""

    def _admit(self, client: int) -> None:
        if self._credit is not None and self._spent.get(client, 0) >= self._credit.credit:
            return
        draw = uniform(self._stream, self._drawn)
        self._drawn += 1
        self._idle[client] = draw
        heappush(self._heap, (-self._utility(client), draw, client))
        if len(self._heap) > 2 * len(self._idle) + 16:  # invalid entries of low utility might never come to the top
            self._heap = [entry for entry in self._heap if self._idle.get(entry[2]) == entry[1]]
            heapify(self._heap)

    def _utility(self, client: int) -> float:
        view = self._view
        if view.contributed[client] < 0:
            return math.inf
        late = view.mean_staleness(np.array([client]), self._window).item() if view.update_counts[client] else 0.0
        gain: float = view.examples[client].item() * view.losses[client].item()
        return gain * math.pow(1 + late, -self._power)

    def _suspect(self, count: int) -> None:
        """Looks at the last so many losses, each among those from nearby versions."""
        if self._credit is None:
            return
        known = list(self._losses)
        for place in range(max(len(known) - count, 0), len(known)):
            client, version, _ = known[place]
            near = [each for each, (_, other, _) in enumerate(known) if abs(other - version) <= self._credit.nearby]
            if self._credit.outlier([known[each][2] for each in near], near.index(place)):
                self._spent[client] = spent = self._spent.get(client, 0) + 1
                self._barred += spent == self._credit.credit

    def state(self) -> State:
        return {
            **super().state(),
            "heap": table(self._heap, utility=float, draw=float, client=int),
            "idle": table(self._idle.items(), client=int, draw=float),
            "came": np.array(self._came, np.int64),
            "losses": table(self._losses, client=int, version=int, loss=float),
            "spent": table(self._spent.items(), client=int, times=int),
            "barred": self._barred,
            "drawn": self._drawn,
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        self._heap = list(rows(take(state, "heap", dict), "utility", "draw", "client"))
        heapify(self._heap)
        self._idle = dict(rows(take(state, "idle", dict), "client", "draw"))
        self._came = take(state, "came", np.ndarray).tolist()
        self._losses.clear()
        self._losses.extend(rows(take(state, "losses", dict), "client", "version", "loss"))
        self._spent = dict(rows(take(state, "spent", dict), "client", "times"))
        self._barred = take(state, "barred", int)
        self._drawn = take(state, "drawn", int)
