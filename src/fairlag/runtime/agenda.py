"""What every runtime on one machine needs: the heap of what is due, who of the fleet is there, and when to give up."""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from heapq import heappop, heappush
from itertools import count, islice
from math import inf
from typing import Any

import numpy as np

from fairlag.errors import DivergedError, StalledError
from fairlag.fleet.clients import Fleet
from fairlag.rules.admit import NOT_FINITE
from fairlag.server import Server
from fairlag.state import State, rows, table, take
from fairlag.types import Dispatch, Event, Joined, Left, Stop, Woke

NOTHING_MORE = Stop("nothing more can happen: no task is running and no client will come")


class Due(IntEnum):
    """What an entry is, in the order in which entries of the same time are taken.

    An update that arrives at the very moment when its client leaves, or when a deadline passes, still counts.
    """

    ARRIVAL = 0
    VANISH = 1
    OFF = 2
    RETURN = 3
    ON = 4
    WAKE = 5


_COMINGS = frozenset((Due.RETURN, Due.ON))

NOBODY = -1
"""Whom a Wake concerns."""


_ENTRY = {"time": float, "due": int, "sequence": int, "whom": int}


class Agenda:
    """A heap of (time, what is due, sequence, whom it concerns): the sequence is unique, so ties are exact.

    An entry concerns the client, or the task, of a number; with clients that run on their own, an event.

    >>> agenda = Agenda()
    >>> agenda.add(2.0, Due.WAKE, NOBODY), agenda.add(1.0, Due.ON, 7)
    (None, None)
    >>> agenda.heap[0]
    (1.0, 4, 1, 7)
    """

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, int, Any]] = []
        self.sequence = count()
        self.comings = 0
        """How many entries are about clients that come."""

    def add(self, time: float, due: Due, whom: object) -> None:
        """Puts an entry in its place; what never comes is left out."""
        if time < inf:
            self.comings += due in _COMINGS
            heappush(self.heap, (time, due.value, next(self.sequence), whom))

    def state(self) -> State:
        """The entries in the order of the heap, and the next number of the sequence."""
        sequence = next(self.sequence)
        self.sequence = count(sequence)  # a count tells its number only by going on
        return {"entries": table(self.heap, **_ENTRY), "sequence": sequence, "comings": self.comings}

    def restore(self, state: State) -> None:
        """Has the entries that were saved, in the same heap."""
        self.heap[:] = rows(take(state, "entries", dict), *_ENTRY)
        self.sequence = count(take(state, "sequence", int))
        self.comings = take(state, "comings", int)


_VANISHING = {"task": int, "client": int, "back": float}


class Presence:
    """Who is there: a client is, while its group's schedule says so and it has not vanished in the middle of a task."""

    def __init__(self, fleet: Fleet, agenda: Agenda) -> None:
        self._fleet = fleet
        self._agenda = agenda
        self._periods: dict[int, Iterator[tuple[float, float]]] = {}
        self._entered: list[int] = []
        self._until: list[float] = []
        self._scheduled: set[int] = set()
        self._vanished: set[int] = set()
        self._vanishing: dict[int, tuple[int, float]] = {}

    def start(self) -> Sequence[int]:
        """Enters every client's first period; returns who is there at time 0."""
        clients = range(self._fleet.clients)
        if self._fleet.steady:
            return clients
        self._entered, self._until = [0] * len(clients), [inf] * len(clients)
        for client in clients:
            self._next_period(client)
        return self.come(0.0)

    def come(self, time: float) -> list[int]:
        """Takes all entries of clients that are due to come at that time; returns those who really do."""
        heap, comers = self._agenda.heap, []
        while heap and heap[0][0] == time and heap[0][1] in (Due.RETURN, Due.ON):
            _, due, _, client = heappop(heap)
            self._agenda.comings -= 1
            if due == Due.RETURN:
                self._vanished.discard(client)
            else:
                self._scheduled.add(client)
                self._agenda.add(self._until[client], Due.OFF, client)
                self._next_period(client)  # now, so that the agenda tells at any time whether anybody will come
            if client not in self._vanished and client in self._scheduled:
                comers.append(client)
        return comers

    def off(self, client: int) -> bool:
        """The schedule sends the client away; returns whether it was there until now."""
        self._scheduled.discard(client)
        return client not in self._vanished

    def plan(self, task: Dispatch, duration: float) -> bool:
        """Will the client vanish in the middle of this task? Then that is entered."""
        vanishing = self._fleet.vanishes(task.client, task.ordinal)
        if vanishing is None:
            return False
        part, away = vanishing
        gone = task.time + part * duration
        back = task.time + duration if away is None else gone + away
        self._vanishing[task.task] = task.client, back
        self._agenda.add(gone, Due.VANISH, task.task)
        return True

    def forget(self, number: int) -> bool:
        """The task of that number is cancelled; returns whether its client was to vanish in the middle of it."""
        return self._vanishing.pop(number, None) is not None

    def next_event(self) -> Event | None:
        """Takes the next entry, which is not an arrival, as an event; None where nothing changes by it."""
        heap = self._agenda.heap
        time, due, _, whom = heap[0]
        if due in (Due.RETURN, Due.ON):
            clients = self.come(time)
            return Joined(time, clients) if clients else None
        heappop(heap)
        if due == Due.WAKE:
            return Woke(time)
        if due == Due.OFF:
            return Left(time, whom) if self.off(whom) else None
        if whom not in self._vanishing:
            return None
        # It stays noted until the server answers this Left with a Cancel, as it does every loss.
        client, back = self._vanishing[whom]
        self._vanished.add(client)
        self._agenda.add(back, Due.RETURN, client)
        return Left(time, client)

    def _next_period(self, client: int) -> None:
        periods = self._periods.get(client)
        if periods is None:
            # After a restoration, those that were entered before are drawn again, and passed over.
            periods = self._periods[client] = islice(self._fleet.periods(client), self._entered[client], None)
        start, self._until[client] = next(periods, (inf, inf))
        self._entered[client] += 1
        self._agenda.add(start, Due.ON, client)

    def state(self) -> State:
        """How many periods each client has entered, until when, and who is there, has vanished or is about to."""
        return {
            "entered": np.array(self._entered, np.int64),
            "until": np.array(self._until, np.float64),
            "scheduled": np.array(sorted(self._scheduled), np.int64),
            "vanished": np.array(sorted(self._vanished), np.int64),
            "vanishing": table([(task, *who) for task, who in self._vanishing.items()], **_VANISHING),
        }

    def restore(self, state: State) -> None:
        """Knows again who is there."""
        self._entered = take(state, "entered", np.ndarray).tolist()
        self._until = take(state, "until", np.ndarray).tolist()
        self._scheduled = set(take(state, "scheduled", np.ndarray).tolist())
        self._vanished = set(take(state, "vanished", np.ndarray).tolist())
        vanishing = rows(take(state, "vanishing", dict), *_VANISHING)
        self._vanishing = {task: (client, back) for task, client, back in vanishing}


def is_over(server: Server, agenda: Agenda, fleet: Fleet) -> bool:
    """Is nobody at work, nobody to come who might be, and no moment that may bring what is in the buffer together?

    Then only Wokes would follow, for nothing, up to the one that ends the run, if there is such a one.
    """
    view = server.view
    if view.running or (view.buffered and server.awaits >= view.time):
        return False
    return not agenda.comings or server.barred >= fleet.clients


def nothing_more(server: Server) -> Stop:
    """Nothing more can happen: the end, unless there are clients that are never given a task.

    Raises StalledError where there are: then the strategy waits for something that cannot come.
    """
    if server.view.present or server.barred:
        raise StalledError(f"nothing more can happen after time {server.view.time:.6g}: {server.waits_for}")
    return NOTHING_MORE


class Watchdog:
    """Ends a run in which so many events in a row bring no version and no update that its trigger waits for.

    A Woke during which tasks run does not count: however many of them pass in the course of a task, the task ends. Nor
    do events among which updates come in while the trigger waits for one and the same moment: the moment comes.
    """

    def __init__(self, server: Server, fleet: Fleet) -> None:
        self.limit = 10_000 + 20 * (fleet.clients + server.strategy.trigger.needs)
        self.patience = max(100, 4 * max(fleet.clients, server.strategy.trigger.needs))
        """So many updates that are not finite, and none that was admitted in between, mean that training diverged."""
        self._server = server
        self._reached = (0, 0)
        self._quiet = 0
        self._admitted = (0, 0)
        self._awaited = -inf
        self._before = 0
        """How many updates were not finite up to the last that was admitted."""

    def count(self, events: int) -> None:
        """So many events have passed; raises StalledError where that was one too many, or DivergedError."""
        view, needs = self._server.view, self._server.strategy.trigger.needs
        reached = (view.version, min(view.buffered, needs))
        if reached > self._reached:
            self._quiet = 0
        elif self._awaited != self._server.awaits:
            # A trigger that named a moment, and at that moment another, may do so for ever.
            self._quiet += max(events, view.buffered >= needs)
        elif self._awaited == -inf or self._admitted == (view.version, view.buffered):
            self._quiet += events
        self._reached, self._awaited = reached, self._server.awaits
        self._check_finite()
        if self._quiet > self.limit:
            raise StalledError(self._why())

    def _check_finite(self) -> None:
        view, found = self._server.view, self._server.refusals[NOT_FINITE]
        admitted = (view.version, view.buffered)
        if admitted != self._admitted:
            self._admitted, self._before = admitted, found
        elif found - self._before >= self.patience:
            raise DivergedError(
                f"training diverged after version {view.version}: the last {found - self._before} updates, up to time "
                f"{view.time:.6g}, were refused because they are not finite; smaller steps (local.lr) may help"
            )

    def state(self) -> State:
        """How long it has been quiet, and what was reached before."""
        return {
            "reached": list(self._reached),
            "quiet": self._quiet,
            "admitted": list(self._admitted),
            "awaited": self._awaited,
            "before": self._before,
        }

    def restore(self, state: State) -> None:
        """Counts on from there."""
        version, buffered = take(state, "reached", list)
        self._reached = version, buffered
        self._quiet = take(state, "quiet", int)
        version, buffered = take(state, "admitted", list)
        self._admitted = version, buffered
        self._awaited = take(state, "awaited", float)
        self._before = take(state, "before", int)

    def _why(self) -> str:
        counts = self._server.counts
        common = self._server.refusals.most_common(1) if counts["refused"] else []
        refused = f"{counts['refused']} refused" + "".join(f" (most of them: {reason})" for reason, _ in common)
        lost = f"{counts['lost']} were lost" + (f" (the last because {self._server.last_loss})" * bool(counts["lost"]))
        return (
            f"nothing but waiting in {self._quiet} events, up to time {self._server.view.time:.6g}: "
            f"{self._server.waits_for}; of all tasks so far {lost} and {refused}"
        )
