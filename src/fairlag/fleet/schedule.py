"""The schedule of a fleet: which clients join and leave, in order of time; as arrays, for a million clients."""

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
"""About how many entries are made at a time: `_BLOCK`, or one per `_PART` clients, because each time visits all."""


class Schedule:
    """The presence patterns of the groups, apart from vanishing. An entry is one client that leaves, or all that join.

    At the same time, clients first leave, then join. Both are in the order in which the clients joined last; clients
    that joined together are in the order of their numbers.

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
        keys = [seeds.key(fleet.seed, "availability", group.name) for group in fleet.groups]
        streams = (group.availability.streams(key, group.count) for key, group in zip(keys, fleet.groups, strict=True))
        self._streams = np.concatenate(list(streams))
        self._known: Integers = np.zeros(fleet.clients, np.int64)
        self._since: Floats = np.zeros(fleet.clients)
        self._on: Floats = np.zeros(fleet.clients)
        self._until: Floats = np.zeros(fleet.clients)
        self._off: Floats = np.full(fleet.clients, inf)
        self._came: Floats = np.full(fleet.clients, -1.0)
        """Per client: when it joins next, until when it then stays, when it leaves if it has joined, and when it joined
        last. The first and the third are infinite if that never happens or is an entry already. `_known` and `_since`
        are the state of its pattern."""
        self._draw(np.arange(fleet.clients))
        self._block = max(_BLOCK, fleet.clients // _PART)
        self._width = 1.0
        """For how many seconds entries are made next."""
        self.next: tuple[float, bool] | None = None
        """The time of the next entry, and whether clients join then; None after the last entry."""
        self._entries: list[tuple[float, bool]] = []
        self._who: list[int] = []
        self._place = self._coming = 0
        self._later = False
        self._refill()

    @property
    def expects(self) -> bool:
        """Will any client join?"""
        return self._coming > 0 or self._later

    def take(self) -> list[int]:
        """Removes the next entry and returns its clients."""
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
        """Sets the next entries; later ones are still in the arrays."""
        self._entries, self._who = list(zip(times, comes, strict=True)), who
        self.next = self._entries[0] if who else None
        self._place, self._coming = 0, sum(comes)
        self._later = bool(self._on.min() < inf)

    def _refill(self) -> None:
        """Makes the next entries, for a stretch of time with several thousand of them."""
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
        """All entries up to a time: their times, whether the client joins or leaves, when it joined last, and which."""
        on, off, came = self._on, self._off, self._came
        going, coming = np.flatnonzero(off <= end), np.flatnonzero(on <= end)
        while len(going) or len(coming):
            yield off[going], np.zeros(len(going), np.bool_), came[going], going
            off[going] = inf
            yield on[coming], np.ones(len(coming), np.bool_), came[coming], coming
            came[coming] = on[coming]
            off[coming] = self._until[coming]
            self._draw(coming)
            # A client may leave and join again within the same stretch.
            going, coming = coming[off[coming] <= end], coming[on[coming] <= end]

    def _draw(self, clients: Integers) -> None:
        """Draws the next period of each of these clients, given in order."""
        bounds = np.searchsorted(clients, self._starts)
        for group, first, last in zip(self._groups, bounds[:-1], bounds[1:], strict=True):
            left = clients[first:last]
            while len(left):
                left = left[self._draw_for(group, left)]

    def _draw_for(self, group: Group, clients: Integers) -> Integers:
        """Draws the next period of a group's clients, cut to [join, leave); returns those whose period is outside."""
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
        """The state of each client's pattern, when it joins and leaves, and the entries that were made."""
        return {
            **{name: array.copy() for name, array in self._arrays.items()},
            "width": self._width,
            "times": np.array([time for time, _ in self._entries[self._place :]], np.float64),
            "comes": np.array([comes for _, comes in self._entries[self._place :]], np.bool_),
            "who": np.array(self._who[self._place :], np.int64),
        }

    def restore(self, state: State) -> None:
        """Continues from the saved state of a schedule of the same fleet."""
        for name, array in self._arrays.items():
            copy_into(array, state, name)
        self._width = take(state, "width", float)
        self._enter(*(take(state, name, np.ndarray).tolist() for name in ("times", "comes", "who")))
