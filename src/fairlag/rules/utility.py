"""Selection by utility: clients with high losses and many examples go first. Outlier losses cost a client credit."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from fairlag.core.seeds import uniform
from fairlag.core.state import State, rows, table, take
from fairlag.core.view import View
from fairlag.rules import check
from fairlag.rules.select import Continuous, Select


@dataclass(frozen=True, slots=True)
class Credit:
    """Suspicion: a client loses credit if its loss is an outlier among the last updates from nearby versions.

    An outlier is a loss that DBSCAN puts into no cluster: within `reach` there are fewer than `least` losses of the
    pool, itself included, and no core point of a cluster either. No client is suspected before the pool holds `least`
    losses.

    >>> Credit().outlier([0.1, 0.2, 0.15, 0.1, 0.12, 9.0], 5), Credit().outlier([0.1, 0.2, 0.15, 0.1, 0.12], 4)
    (True, False)
    """

    credit: int = 5
    """How many times a client may be an outlier; after the last time it is never selected again."""
    nearby: int = 5
    """The largest distance in versions at which losses are compared."""
    pool: int = 50
    """The number of recent updates that are compared."""
    reach: float = 0.5
    least: int = 5

    def __post_init__(self) -> None:
        for name, least in (("credit", 1), ("nearby", 0), ("pool", 1), ("least", 1)):
            check.whole(name, getattr(self, name), least)
        check.positive("the reach", self.reach)

    def outlier(self, losses: Sequence[float], place: int) -> bool:
        """Is the loss at this place an outlier among all losses?"""
        if len(losses) < self.least:
            return False
        values = np.array(losses)
        near = np.abs(values[:, None] - values) <= self.reach
        core = np.count_nonzero(near, axis=1) >= self.least
        return not core[near[place]].any()


def by_utility(
    m: int,
    *,
    power: float = 0.5,
    window: int | None = None,
    explore: float = 1.0,
    decay: float = 1.0,
    least: float = 0.0,
    credit: Credit | None = None,
) -> Select:
    """At most m clients train at once; a free place goes to the idle client of highest utility, or to an unseen one.

    The utility is n_i · (root of the mean squared loss of i) · (1 + mean staleness of i)^−power, ties at random. With
    probability `explore` a place goes to a client that never sent an update; every selection multiplies `explore` by
    `decay` until it is `least`. If there are no clients of one kind, the place goes to the other kind. A client that
    has sent an update waits until it is merged. With `credit`, clients whose losses are too often outliers are no
    longer selected.

    >>> by_utility(5).label
    'by_utility(5, power=0.5)'
    """
    check.whole("the concurrency", m, 1, "client")
    check.not_negative("the power", power)
    check.window(window)
    for name, value in (("explore", explore), ("decay", decay), ("least", least)):
        check.share(name, value)
    options = [f"window={window}"] * (window is not None)
    options += [f"explore={explore}, decay={decay}, least={least}"] * (explore < 1)
    options += [f"credit={credit}"] * (credit is not None)
    return Select(
        f"by_utility({', '.join([str(m), f'power={power}', *options])})",
        lambda view, stream: _Utility(view, stream, m, power, window, (explore, decay, least), credit),
        places=m,
        window=window or 0,
    )


class _Queue:
    """Idle clients, the smallest rank first. Stale entries are skipped when they come up."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, float, int]] = []
        self._valid: dict[int, float] = {}
        """Per client: the random number that identifies its valid entry in the heap."""

    def __len__(self) -> int:
        return len(self._valid)

    def put(self, client: int, rank: float, draw: float) -> None:
        """Adds a client; among equal ranks the smaller draw comes first."""
        self._valid[client] = draw
        heappush(self._heap, (rank, draw, client))
        if len(self._heap) > 2 * len(self._valid) + 16:  # stale entries of high rank might never reach the top
            self._heap = [entry for entry in self._heap if self._valid.get(entry[2]) == entry[1]]
            heapify(self._heap)

    def drop(self, client: int) -> None:
        """Removes a client."""
        self._valid.pop(client, None)

    def take(self, count: int) -> list[int]:
        """Removes and returns the first `count` clients."""
        taken: list[int] = []
        while len(taken) < count:
            _, draw, client = heappop(self._heap)
            if self._valid.get(client) == draw:
                del self._valid[client]
                taken.append(client)
        return taken

    def state(self) -> State:
        """The whole queue."""
        return {
            "heap": table(self._heap, rank=float, draw=float, client=int),
            "valid": table(self._valid.items(), client=int, draw=float),
        }

    def restore(self, state: State) -> None:
        """Replaces the queue with the saved one."""
        self._heap = list(rows(take(state, "heap", dict), "rank", "draw", "client"))
        heapify(self._heap)
        self._valid = dict(rows(take(state, "valid", dict), "client", "draw"))


class _Utility(Continuous):
    def __init__(
        self,
        view: View,
        stream: int,
        places: int,
        power: float,
        window: int | None,
        explore: tuple[float, float, float],
        credit: Credit | None,
    ) -> None:
        super().__init__(fresh=False, idle=self._admit, merged=True)
        self._view = view
        self._stream, self._drawn = stream, 0
        self._places, self._power, self._window = places, power, window
        self._explore, self._decay, self._least = explore
        self._credit = credit
        self._seen, self._unseen = _Queue(), _Queue()
        self._losses: deque[tuple[int, int, float]] = deque(maxlen=credit.pool if credit else 0)
        self._spent: dict[int, int] = {}
        self._barred = 0

    def free(self, client: int, current: bool, pending: bool) -> None:
        super().free(client, current, pending)
        if pending and self._credit is not None:
            version, loss = self._view.contributed[client].item(), self._view.losses[client].item()
            self._losses.append((client, version, loss))

    def gone(self, client: int) -> None:
        super().gone(client)
        self._seen.drop(client)
        self._unseen.drop(client)

    def renew(self) -> Mapping[int, str]:
        self._suspect(len(self._sent))
        return super().renew()

    def pick(self) -> Sequence[int]:
        free = min(self._places - self._view.running, len(self._seen) + len(self._unseen))
        if free <= 0:
            return ()
        planned = sum(self._draw() < self._explore for _ in range(free)) if self._seen and self._unseen else 0
        self._explore = max(self._explore * self._decay, self._least)
        known = min(len(self._seen), free - min(planned, len(self._unseen)))
        return self._seen.take(known) + self._unseen.take(min(len(self._unseen), free - known))

    @property
    def barred(self) -> int:
        return self._barred

    @property
    def why(self) -> str:
        return f"{self._barred} of {self._view.n} clients have no credit left" if self._barred else ""

    def _draw(self) -> float:
        self._drawn += 1
        return uniform(self._stream, self._drawn - 1)

    def _admit(self, client: int) -> None:
        if self._credit is not None and self._spent.get(client, 0) >= self._credit.credit:
            return
        if self._view.contributed[client] < 0:
            self._unseen.put(client, 0.0, self._draw())
        else:
            self._seen.put(client, -self._utility(client), self._draw())

    def _utility(self, client: int) -> float:
        view = self._view
        late = view.mean_staleness(np.array([client]), self._window).item() if view.update_counts[client] else 0.0
        gain: float = view.examples[client].item() * view.losses[client].item()
        return gain * math.pow(1 + late, -self._power)

    def _suspect(self, count: int) -> None:
        """Compares each of the last `count` losses with those from nearby versions."""
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
            "seen": self._seen.state(),
            "unseen": self._unseen.state(),
            "losses": table(self._losses, client=int, version=int, loss=float),
            "spent": table(self._spent.items(), client=int, times=int),
            "barred": self._barred,
            "drawn": self._drawn,
            "explore": self._explore,
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        self._seen.restore(take(state, "seen", dict))
        self._unseen.restore(take(state, "unseen", dict))
        self._losses.clear()
        self._losses.extend(rows(take(state, "losses", dict), "client", "version", "loss"))
        self._spent = dict(rows(take(state, "spent", dict), "client", "times"))
        self._barred, self._drawn = take(state, "barred", int), take(state, "drawn", int)
        self._explore = take(state, "explore", float)
