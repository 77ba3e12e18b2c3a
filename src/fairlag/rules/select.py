"""Selection: which clients get the newest version next. Incremental: no rule scans all clients per event."""

import math
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np

from fairlag.core.seeds import uniform
from fairlag.core.state import State, take
from fairlag.core.types import Dispatch, Integers
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules import check
from fairlag.rules.rule import with_provenance


class Selector:
    """The stateful half of a selection rule, one per server: it is told what happens and picks the next clients."""

    target: int = 0
    """How many updates complete the round; 0 if there are no rounds."""
    until: float = math.inf
    """The deadline of the round."""
    number: int = 0
    """Which round it is, if a round makes several versions."""

    def __init__(self) -> None:
        self.waiting: dict[int, None] = {}
        """Idle clients that wait for a newer version."""
        self.restarted: list[int] = []
        """The clients whose tasks were cancelled or lost, and that started a new one in this round."""

    def free(self, client: int, current: bool, pending: bool) -> None:
        """A client is present and idle.

        `current`: its last update was trained from the newest version; `pending`: that update has just entered the
        buffer.
        """
        raise NotImplementedError

    def gone(self, client: int) -> None:
        """A client has left, or is no longer idle."""
        raise NotImplementedError

    def lost(self, client: int) -> None:
        """A client has left while it was running a task."""

    def pick(self) -> Sequence[int]:
        """The clients to dispatch now; they are no longer idle.

        Called after every event. If it picks no client, no task is running and no client will join, the run is over.
        """
        raise NotImplementedError

    def renew(self) -> Mapping[int, str]:
        """There is a new version. Returns the tasks to cancel, by number, each with the reason."""
        return {}

    def version(self, client: int) -> int | None:
        """The version that a picked client trains from; None for the newest. Called if `Select.lag` is not 0."""
        return None

    def steps(self, client: int) -> int:
        """How many local steps a picked client makes. Called if `Select.plans` is true."""
        raise NotImplementedError

    def draft(self, tasks: Sequence[Dispatch]) -> Sequence[bool] | None:
        """Which updates of the buffer, in order of arrival, count in the next version; None for all."""
        return None

    @property
    def barred(self) -> int:
        """How many clients, present or away, will never be picked again. If that is all of them, the run is over."""
        return 0

    @property
    def why(self) -> str:
        """Why present and idle clients might not be picked, in words; empty if there is no special reason."""
        return ""

    def state(self) -> State:
        """Everything that the selector remembers."""
        return {"waiting": in_order(self.waiting), "restarted": list(self.restarted)}

    def restore(self, state: State) -> None:
        """Replaces what the selector remembers."""
        self.waiting = dict.fromkeys(take(state, "waiting", np.ndarray).tolist())
        self.restarted = take(state, "restarted", list)


@dataclass(frozen=True, slots=True)
class Select:
    """A selection rule: how to start its selector, and what the rest of a strategy must know about it."""

    label: str
    start: Callable[[View, int], Selector]
    fresh: bool = False
    """True if a client never gets a version that it has already trained from."""
    rounds: bool = False
    """Does it work in rounds? A round gets no new tasks after its last one has ended."""
    least: int = 1
    """The smallest number of clients that it works with."""
    places: int | None = None
    """How many clients may train at once; None for all."""
    lag: int = 0
    """How many versions behind the newest a client's starting version may be."""
    window: int = 0
    """How many recent staleness samples per client it reads."""
    delay: int | None = None
    """The number of versions behind the newest at which a running task is called off; None for never."""
    plans: bool = False
    """Does it say how many local steps a client makes?"""
    holds: bool = False
    """Do updates that it does not draft stay in the buffer? Otherwise the reduction gets them with the others."""
    awaits: bool = False
    """Does it read how many present clients have no update in the buffer?"""


def all_idle(*, fresh: bool = True) -> Select:
    """Every idle client at once, in the order they became idle.

    With `fresh`, a client whose update was trained from the newest version waits until there is a newer one.

    >>> all_idle().label
    'all_idle(fresh=True)'
    """
    start = with_provenance(lambda view, stream: AllIdle(fresh), all_idle, fresh=fresh)
    return Select(f"all_idle(fresh={fresh})", start, fresh)


def once_merged() -> Select:
    """Every idle client at once; a client that has sent an update waits until the update is part of a version.

    >>> once_merged().label
    'once_merged()'
    """
    start = with_provenance(lambda view, stream: AllIdle(fresh=True, merged=True), once_merged)
    return Select("once_merged()", start, fresh=True)


def concurrency(m: int, *, fresh: bool = False) -> Select:
    """At most m clients train at once; a free place goes to an idle client picked at random.

    >>> concurrency(10).label
    'concurrency(10)'
    """
    check.whole("the concurrency", m, 1, "client")
    label = f"concurrency({m}, fresh=True)" if fresh else f"concurrency({m})"
    start = with_provenance(lambda view, stream: _Places(view, stream, m, fresh), concurrency, m=m, fresh=fresh)
    return Select(label, start, fresh, places=m)


def restarting(rule: Select, *, delay: int) -> Select:
    """Any selection without rounds, but a task that is `delay` versions behind is called off, and its client is idle.

    >>> restarting(all_idle(), delay=4).label
    'restarting(all_idle(fresh=True), delay=4)'
    """
    check.whole("the delay at which tasks are called off", delay, 1, "version")
    if rule.rounds or rule.holds or rule.lag:
        raise StrategyError(f"{rule.label} ends late tasks in its own way: use a selection without rounds")
    return replace(rule, label=f"restarting({rule.label}, delay={delay})", delay=delay)


def cohort(m: int, *, over: float = 0.0, deadline: float | None = None) -> Select:
    """Rounds: ⌈m·(1 + over)⌉ idle clients picked at random train the same version.

    The round is complete when m updates have arrived, or at the deadline with those that have. Tasks still running
    then are cancelled. If fewer clients are idle, the round is smaller.

    >>> cohort(10, over=0.3, deadline=60.0).label
    'cohort(10, over=0.3, deadline=60.0)'
    """
    check.whole("the cohort", m, 1, "client")
    if not (over >= 0 and math.isfinite(over)):
        raise StrategyError(f"the over-selection is {over}, it must be at least 0 (0.3 picks 30 % more than needed)")
    check.deadline(deadline)
    options = [f"over={over}"] * (over > 0) + [f"deadline={deadline}"] * (deadline is not None)
    patience = math.inf if deadline is None else deadline
    start = with_provenance(
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
        """Per client: its place among the members, −1 if it is not one. An array: a list would scatter its numbers."""

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
    """Idle clients continue at once, without rounds.

    With `fresh`, clients that have trained from the newest version wait for a newer one; with `merged`, clients whose
    update is in the buffer do.
    """

    def __init__(self, fresh: bool, idle: Callable[[int], None], *, merged: bool = False) -> None:
        super().__init__()
        self._fresh = fresh
        self._merged = merged
        self._idle = idle
        self._sent: dict[int, None] = {}
        """With `merged`, the clients whose updates are in the buffer, even if they left and came back since."""

    def free(self, client: int, current: bool, pending: bool) -> None:
        """A client is present and idle: it continues, or waits for a newer version."""
        if pending and self._merged:
            self._sent[client] = None
        if (current and self._fresh) or client in self._sent:
            self.waiting[client] = None
        else:
            self._idle(client)

    def gone(self, client: int) -> None:
        """A client has left."""
        self.waiting.pop(client, None)

    def renew(self) -> Mapping[int, str]:
        """There is a new version: no client waits any longer."""
        for client in self.waiting:
            self._idle(client)
        self.waiting.clear()
        self._sent.clear()
        return {}

    def state(self) -> State:
        """Everything that the selector remembers."""
        return {**super().state(), "sent": in_order(self._sent)}

    def restore(self, state: State) -> None:
        """Replaces what the selector remembers."""
        super().restore(state)
        self._sent = dict.fromkeys(take(state, "sent", np.ndarray).tolist())


class AllIdle(Continuous):
    """All idle clients, first come first served."""

    def __init__(self, fresh: bool, *, merged: bool = False) -> None:
        self._ready: list[int] = []
        super().__init__(fresh, self._ready.append, merged=merged)

    def pick(self) -> Sequence[int]:
        """All of them."""
        if not self._ready:
            return ()
        ready = self._ready[:]
        self._ready.clear()
        return ready

    def state(self) -> State:
        """Everything that the selector remembers."""
        return {**super().state(), "ready": in_order(self._ready)}

    def restore(self, state: State) -> None:
        """Replaces what the selector remembers."""
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
    """Clients as an array, in their order, to be saved."""
    return np.fromiter(clients, np.int64, len(clients))
