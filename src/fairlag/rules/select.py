"""Selection: who is given the newest version next. Incremental: no rule scans all clients at an event."""

import math
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from fairlag.core.seeds import uniform
from fairlag.core.state import State, take
from fairlag.core.types import Dispatch, Integers
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules import check
from fairlag.rules.rule import noted


class Selector:
    """The living half of a selection rule: one for each server, told what happens, asked whom to dispatch."""

    target: int = 0
    """How many updates complete the round, 0 where there are no rounds."""
    until: float = math.inf
    """The deadline of the round."""

    def __init__(self) -> None:
        self.waiting: dict[int, None] = {}
        """Clients that are idle but held back until there is a newer version."""
        self.restarted: list[int] = []
        """The clients that were called off their tasks, or lost them, and in this round began anew."""

    def free(self, client: int, current: bool, pending: bool) -> None:
        """A client is there and idle.

        `current`: its last update was trained from the newest version; `pending`: it has just come into the buffer.
        """
        raise NotImplementedError

    def gone(self, client: int) -> None:
        """A client is not there any more, or not idle."""
        raise NotImplementedError

    def pick(self) -> Sequence[int]:
        """Whom to dispatch now; those are not idle any more.

        Asked after every event. Where it picks nobody, nobody is running, and nobody will come, the run is over.
        """
        raise NotImplementedError

    def renew(self) -> Mapping[int, str]:
        """There is a new version; returns the numbers of the tasks to call off, each with the reason."""
        return {}

    def version(self, client: int) -> int | None:
        """Which version a client that was picked goes on from; None: the newest. Asked where `Select.lag` is not 0."""
        return None

    def draft(self, tasks: Sequence[Dispatch]) -> Sequence[bool] | None:
        """Which updates of the buffer, in the order of arrival, count in the version about to be made; None: all."""
        return None

    @property
    def barred(self) -> int:
        """How many clients, there or not, will never be picked again: where that is all of them, the run is over."""
        return 0

    @property
    def why(self) -> str:
        """Why clients that are there and idle might not be picked, in words; empty where there is nothing to say."""
        return ""

    def state(self) -> State:
        """All that it remembers."""
        return {"waiting": in_order(self.waiting), "restarted": list(self.restarted)}

    def restore(self, state: State) -> None:
        """Remembers that instead."""
        self.waiting = dict.fromkeys(take(state, "waiting", np.ndarray).tolist())
        self.restarted = take(state, "restarted", list)


@dataclass(frozen=True, slots=True)
class Select:
    """A selection rule: how to start its selector, and what the rest of a strategy must know of it."""

    label: str
    start: Callable[[View, int], Selector]
    fresh: bool = False
    """Is a client never handed a version again that it has already trained from?"""
    rounds: bool = False
    """Does it work in rounds, which end for good with the last of their tasks?"""
    least: int = 1
    """How many clients it needs at the least."""
    places: int | None = None
    """How many clients may train at once; None: all."""
    lag: int = 0
    """How many versions before the newest a client that begins anew may go on from."""
    window: int = 0
    """How many recent staleness samples per client it reads."""


def all_idle(*, fresh: bool = True) -> Select:
    """Every idle client at once, in the order in which they became idle.

    With `fresh`, a client whose update was trained from the newest version waits until there is a newer one.

    >>> all_idle().label
    'all_idle(fresh=True)'
    """
    start = noted(lambda view, stream: _Everyone(fresh), all_idle, fresh=fresh)
    return Select(f"all_idle(fresh={fresh})", start, fresh)


def once_merged() -> Select:
    """Every idle client at once; whoever has sent an update waits until it is part of a version.

    >>> once_merged().label
    'once_merged()'
    """
    start = noted(lambda view, stream: _Everyone(fresh=True, merged=True), once_merged)
    return Select("once_merged()", start, fresh=True)


def concurrency(m: int, *, fresh: bool = False) -> Select:
    """At most m clients train at once; a free place goes to an idle client picked at random.

    >>> concurrency(10).label
    'concurrency(10)'
    """
    check.whole("the concurrency", m, 1, "client")
    label = f"concurrency({m}, fresh=True)" if fresh else f"concurrency({m})"
    start = noted(lambda view, stream: _Places(view, stream, m, fresh), concurrency, m=m, fresh=fresh)
    return Select(label, start, fresh, places=m)


def cohort(m: int, *, over: float = 0.0, deadline: float | None = None) -> Select:
    """Rounds: ⌈m·(1 + over)⌉ idle clients picked at random train the same version.

    The round is complete when m updates are in; at the deadline, what is in is enough. Those still running then are
    cancelled. Fewer idle clients than wanted make a smaller round.

    >>> cohort(10, over=0.3, deadline=60.0).label
    'cohort(10, over=0.3, deadline=60.0)'
    """
    check.whole("the cohort", m, 1, "client")
    if not (over >= 0 and math.isfinite(over)):
        raise StrategyError(f"the over-selection is {over}, it must be at least 0 (0.3 picks 30 % more than needed)")
    check.deadline(deadline)
    options = [f"over={over}"] * (over > 0) + [f"deadline={deadline}"] * (deadline is not None)
    patience = math.inf if deadline is None else deadline
    start = noted(
        lambda view, stream: _Cohort(view, stream, m, over, patience), cohort, m=m, over=over, deadline=deadline
    )
    return Select(f"cohort({', '.join([str(m), *options])})", start, rounds=True, least=m)


class _Pool:
    """A set of clients from which one is drawn at random in constant time."""

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self._drawn = 0
        self._members = array("q")
        self._place = array("q")
        """Per client: where it is among the members, −1 where it is not. Numbers of lists would lie all over memory."""

    def __len__(self) -> int:
        return len(self._members)

    def add(self, client: int) -> None:
        place = self._place
        if client >= len(place):
            place.extend(repeat(-1, max(client + 1, 2 * len(place)) - len(place)))
        place[client] = len(self._members)
        self._members.append(client)

    def discard(self, client: int) -> None:
        place = self._place[client] if client < len(self._place) else -1
        if place >= 0:
            self._place[client] = -1
            last = self._members.pop()
            if last != client:
                self._members[place] = last
                self._place[last] = place

    def draw(self) -> int:
        client = self._members[int(uniform(self._stream, self._drawn) * len(self._members))]
        self._drawn += 1
        self.discard(client)
        return client

    def state(self) -> State:
        return {"members": in_order(self._members), "drawn": self._drawn}

    def restore(self, state: State) -> None:
        self._members, self._place = array("q"), array("q")
        for client in take(state, "members", np.ndarray).tolist():
            self.add(client)
        self._drawn = take(state, "drawn", int)


class Continuous(Selector):
    """Idle clients go on as they come.

    With `fresh`, those that know the newest version first wait for a newer one; with `merged`, those whose update
    waits in the buffer do.
    """

    def __init__(self, fresh: bool, idle: Callable[[int], None], *, merged: bool = False) -> None:
        super().__init__()
        self._fresh = fresh
        self._merged = merged
        self._idle = idle
        self._sent: dict[int, None] = {}
        """With `merged`, whose updates wait in the buffer, even if they left and came back meanwhile."""

    def free(self, client: int, current: bool, pending: bool) -> None:
        """A client is there and idle: it goes on, or waits for a newer version."""
        if pending and self._merged:
            self._sent[client] = None
        if (current and self._fresh) or client in self._sent:
            self.waiting[client] = None
        else:
            self._idle(client)

    def gone(self, client: int) -> None:
        """A client is not there any more."""
        self.waiting.pop(client, None)

    def renew(self) -> Mapping[int, str]:
        """There is a new version: nobody waits any more."""
        for client in self.waiting:
            self._idle(client)
        self.waiting.clear()
        self._sent.clear()
        return {}

    def state(self) -> State:
        """All that it remembers."""
        return {**super().state(), "sent": in_order(self._sent)}

    def restore(self, state: State) -> None:
        """Remembers that instead."""
        super().restore(state)
        self._sent = dict.fromkeys(take(state, "sent", np.ndarray).tolist())


class _Everyone(Continuous):
    """All idle clients, first come first served."""

    def __init__(self, fresh: bool, *, merged: bool = False) -> None:
        self._ready: list[int] = []
        super().__init__(fresh, self._ready.append, merged=merged)

    def pick(self) -> Sequence[int]:
        if not self._ready:
            return ()
        ready = self._ready[:]
        self._ready.clear()
        return ready

    def state(self) -> State:
        return {**super().state(), "ready": in_order(self._ready)}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._ready[:] = take(state, "ready", np.ndarray).tolist()


class _Places(Continuous):
    """A limited number of places, each given to a random idle client."""

    def __init__(self, view: View, stream: int, places: int, fresh: bool) -> None:
        self._pool = _Pool(stream)
        self._places = places
        self._view = view
        super().__init__(fresh, self._pool.add)

    def gone(self, client: int) -> None:
        super().gone(client)
        self._pool.discard(client)

    def pick(self) -> Sequence[int]:
        open_places = self._places - self._view.running
        if open_places <= 0:
            return ()
        return [self._pool.draw() for _ in range(min(open_places, len(self._pool)))]

    def state(self) -> State:
        return {**super().state(), "pool": self._pool.state()}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._pool.restore(take(state, "pool", dict))


class _Cohort(Selector):
    """One random cohort after another."""

    def __init__(self, view: View, stream: int, size: int, over: float, patience: float) -> None:
        super().__init__()
        self._view = view
        self._size = size
        self._picked = math.ceil(round(size * (1 + over), 9))
        self._patience = patience
        self._idle = _Pool(stream)

    def free(self, client: int, current: bool, pending: bool) -> None:
        self._idle.add(client)

    def gone(self, client: int) -> None:
        self._idle.discard(client)

    def renew(self) -> Mapping[int, str]:
        return dict.fromkeys(self._view.tasks, "the round is over")

    def pick(self) -> Sequence[int]:
        if self._view.running or self._view.buffered or not self._idle:
            return ()
        picked = [self._idle.draw() for _ in range(min(self._picked, len(self._idle)))]
        self.target = min(self._size, len(picked))
        self.until = self._view.time + self._patience
        return picked

    def state(self) -> State:
        return {**super().state(), "idle": self._idle.state(), "target": self.target, "until": self.until}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._idle.restore(take(state, "idle", dict))
        self.target, self.until = take(state, "target", int), take(state, "until", float)


def in_order(clients: Collection[int]) -> Integers:
    """Clients as an array, to be saved."""
    return np.fromiter(clients, np.int64, len(clients))
