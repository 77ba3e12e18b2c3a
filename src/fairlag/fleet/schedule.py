"""The schedule of a fleet: who comes and who goes, in the order of time; as arrays, so that a million clients may."""

from collections.abc import Iterator
from math import inf

import numpy as np
from numpy.typing import NDArray

from fairlag.core import seeds
from fairlag.core.state import State, copy_into, take
from fairlag.core.types import Floats, Integers
from fairlag.fleet.clients import Fleet, Group

_BLOCK = 8192
_PART = 32
"""About how many entries are made at a time: so many, or one for each of so many clients, all of whom are looked at."""


class Schedule:
    """What the patterns of the groups say, apart from vanishing: an entry is a client that goes, or all that come.

    At one and the same time clients first go, then come, both in the order in which they came the last time, and those
    who came together in the order of their numbers.

    >>> from fairlag.fleet.availability import parse
    >>> from fairlag.fleet.delay import Constant
    >>> fleet = Fleet([Group("night", 2, Constant(1), parse("daily(22, 6)"))], seed=0)
    >>> schedule = Schedule(fleet)
    >>> [(schedule.next, schedule.take()) for _ in range(4)]
    [((0.0, True), [0, 1]), ((21600.0, False), [0]), ((21600.0, False), [1]), ((79200.0, True), [0, 1])]
    """

    def __init__(self, fleet: Fleet) -> None:
        self._groups = fleet.groups
        usual = [group.timing.leaves for group in fleet.groups]
        self._plans = {who: plan for who, plan in fleet.plans.items() if plan.leaves != usual[fleet.group_of[who]]}
        self._starts = np.cumsum([0, *(group.count for group in fleet.groups)])
        keys = ((seeds.key(fleet.seed, "availability", group.name), group.count) for group in fleet.groups)
        self._streams = np.concatenate([seeds.subkeys(*each) for each in keys])
        self._known: Integers = np.zeros(fleet.clients, np.int64)
        self._since: Floats = np.zeros(fleet.clients)
        self._on: Floats = np.zeros(fleet.clients)
        self._until: Floats = np.zeros(fleet.clients)
        self._off: Floats = np.full(fleet.clients, inf)
        self._came: Floats = np.full(fleet.clients, -1.0)
        """Per client: when it comes next and until when it then stays, when it goes if it has come, and when it came
        last. The first and the third are infinite where that is never, or an entry already; `_known` and `_since` are
        what its pattern goes on from."""
        self._draw(np.arange(fleet.clients))
        self._block = max(_BLOCK, fleet.clients // _PART)
        self._width = 1.0
        """How many seconds of entries are made next."""
        self.next: tuple[float, bool] | None = None
        """The time of the next entry, and whether somebody comes then; None where nothing more happens."""
        self._entries: list[tuple[float, bool]] = []
        self._who: list[int] = []
        self._place = self._coming = 0
        self._later = False
        self._refill()

    @property
    def expects(self) -> bool:
        """Will anybody come?"""
        return self._coming > 0 or self._later

    def take(self) -> list[int]:
        """Whom the next entry concerns, which is over with that."""
        place, entries = self._place, self._entries
        entry, end, last = entries[place], place + 1, len(entries)
        if entry[1]:
            while end < last and entries[end] == entry:
                end += 1
            self._coming -= end - place
        who = self._who[place:end]
        self._place = end
        if end < last:
            self.next = entries[end]
        else:
            self._refill()
        return who

    def _enter(self, times: list[float], comes: list[bool], who: list[int]) -> None:
        """These are the next entries; what is after them is still in the arrays."""
        self._entries, self._who = list(zip(times, comes, strict=True)), who
        self.next = self._entries[0] if who else None
        self._place, self._coming = 0, sum(comes)
        self._later = bool(self._on.min() < inf)

    def _refill(self) -> None:
        """Makes the next entries, of a stretch of time that holds some thousands of them."""
        first = min(self._on.min(), self._off.min())
        if first == inf:
            self._enter([], [], [])
            return
        parts = zip(*self._until_time(first + self._width), strict=True)
        times, comes, came, who = (np.concatenate(each) for each in parts)
        order = np.lexsort((who, came, comes, times))
        self._enter(times[order].tolist(), comes[order].tolist(), who[order].tolist())
        self._width *= 2.0 if len(order) < self._block / 2 else 0.5 if len(order) > 2 * self._block else 1.0

    def _until_time(self, end: float) -> Iterator[tuple[Floats, NDArray[np.bool_], Floats, Integers]]:
        """All that happens up to that time: when, whether somebody comes or goes, when it came before that, and who."""
        on, off, came = self._on, self._off, self._came
        going, coming = np.flatnonzero(off <= end), np.flatnonzero(on <= end)
        while len(going) or len(coming):
            yield off[going], np.zeros(len(going), np.bool_), came[going], going
            off[going] = inf
            yield on[coming], np.ones(len(coming), np.bool_), came[coming], coming
            came[coming] = on[coming]
            off[coming] = self._until[coming]
            self._draw(coming)
            # Somebody may go, and come again, within the same stretch.
            going, coming = coming[off[coming] <= end], coming[on[coming] <= end]

    def _draw(self, clients: Integers) -> None:
        """Each of these clients, given in order, gets its next period."""
        bounds = np.searchsorted(clients, self._starts)
        for group, first, last in zip(self._groups, bounds[:-1], bounds[1:], strict=True):
            left = clients[first:last]
            while len(left):
                left = left[self._draw_for(group, left)]

    def _draw_for(self, group: Group, clients: Integers) -> Integers:
        """The next period of clients of one group, cut to its stay; returns for whom it lies outside of that."""
        streams, known, since = self._streams[clients], self._known[clients], self._since[clients]
        start, until, known = group.presence(group.timing).following(streams, known, since)
        for client, plan in self._plans.items():
            mine = clients == client
            if mine.any():
                there = group.presence(plan)
                own = there.following(streams[mine], self._known[clients[mine]], since[mine])
                start[mine], until[mine], known[mine] = own
        self._known[clients], self._since[clients] = known, until
        begin, end = np.maximum(start, group.join), np.minimum(until, group.leave)
        begin[start >= group.leave] = inf
        self._on[clients], self._until[clients] = begin, end
        return np.flatnonzero((begin >= end) & (begin < inf))

    @property
    def _arrays(self) -> dict[str, Integers | Floats]:
        return {
            "known": self._known,
            "since": self._since,
            "on": self._on,
            "until": self._until,
            "off": self._off,
            "came": self._came,
        }

    def state(self) -> State:
        """What each client's pattern goes on from, when it comes and goes, and the entries that were made."""
        return {
            **{name: array.copy() for name, array in self._arrays.items()},
            "width": self._width,
            "times": np.array([time for time, _ in self._entries[self._place :]], np.float64),
            "comes": np.array([comes for _, comes in self._entries[self._place :]], np.bool_),
            "who": np.array(self._who[self._place :], np.int64),
        }

    def restore(self, state: State) -> None:
        """Goes on where another schedule of the same fleet was saved."""
        for name, array in self._arrays.items():
            copy_into(array, state, name)
        self._width = take(state, "width", float)
        self._enter(*(take(state, name, np.ndarray).tolist() for name in ("times", "comes", "who")))
