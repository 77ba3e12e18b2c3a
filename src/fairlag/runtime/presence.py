"""Which clients are present, by schedule and by vanishing, and when a run is over; for runtimes on one machine."""

from collections.abc import Sequence
from heapq import heappop, heapreplace
from math import inf

import numpy as np

from fairlag.core.server import Server
from fairlag.core.state import State, rows, table, take
from fairlag.core.types import Dispatch, Event, Joined, Left, Stop, Woke, budgets_spent, record_of
from fairlag.errors import StalledError
from fairlag.fleet.clients import Fleet
from fairlag.fleet.schedule import Schedule
from fairlag.runtime.agenda import NOBODY, Agenda, Due

NOTHING_MORE = Stop("nothing more can happen: no task is running and no client will come")

_OFF, _RETURN, _ON = Due.OFF, Due.RETURN, Due.ON
_COMING = (_RETURN, _ON)
_VANISHING = {"task": int, "client": int, "back": float}


class Presence:
    """A client is present while its group's schedule says so and it has not vanished in the middle of a task.

    The agenda holds only the next entry of the schedule.
    """

    def __init__(self, fleet: Fleet, agenda: Agenda) -> None:
        self._fleet = fleet
        self._agenda = agenda
        self._schedule = None if fleet.steady else Schedule(fleet)
        self._scheduled = bytearray(0 if fleet.steady else fleet.clients)
        self._vanished: set[int] = set()
        self._vanishing: dict[int, tuple[int, float]] = {}
        self._returning = 0
        """How many entries of the agenda are clients that come back."""

    def start(self) -> Sequence[int]:
        """Enters the first change; returns the clients that are present at time 0."""
        if self._schedule is None:
            return range(self._fleet.clients)
        if self._schedule.next is not None:
            time, comes = self._schedule.next
            self._agenda.add(time, _ON if comes else _OFF, NOBODY)
        return self.come(0.0)

    @property
    def expects(self) -> bool:
        """Will any client join?"""
        return self._returning > 0 or (self._schedule is not None and self._schedule.expects)

    def come(self, time: float) -> list[int]:
        """Takes all entries of clients due to join at this time; returns those that really do."""
        heap, vanished, comers = self._agenda.heap, self._vanished, list[int]()
        while heap and heap[0][0] == time and heap[0][1] in _COMING:
            if heap[0][1] == _RETURN:
                client = heappop(heap)[3]
                self._returning -= 1
                vanished.discard(client)
                comers += [client] if self._scheduled[client] else []
            else:
                clients = self._take()
                for each in clients:
                    self._scheduled[each] = True
                comers += [each for each in clients if each not in vanished] if vanished else clients
        return comers

    def plan(self, task: Dispatch, duration: float) -> bool:
        """Will the client vanish in the middle of this task? If so, enters it."""
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
        """The task with this number is cancelled; returns whether its client was going to vanish during it."""
        return self._vanishing.pop(number, None) is not None

    def next_event(self) -> Event | None:
        """Takes the next entry, which is not an arrival, as an event; None if it changes nothing."""
        heap = self._agenda.heap
        time, due, _, whom = heap[0]
        if due in _COMING:
            clients = self.come(time)
            return record_of(Joined, (time, clients)) if clients else None
        if due == _OFF:
            (client,) = self._take()
            self._scheduled[client] = False
            return record_of(Left, (time, client)) if client not in self._vanished else None
        heappop(heap)
        if due == Due.WAKE:
            return Woke(time)
        if whom not in self._vanishing:
            return None
        # Kept until the server answers this Left with a Cancel, as it does for every loss.
        client, back = self._vanishing[whom]
        self._vanished.add(client)
        self._returning += back < inf
        self._agenda.add(back, Due.RETURN, client)
        return Left(time, client)

    def _take(self) -> list[int]:
        """The clients of the schedule's entry at the top of the agenda; replaces it with the schedule's next entry."""
        schedule, heap = self._schedule, self._agenda.heap
        assert schedule is not None  # otherwise there would be no entry of it
        who = schedule.take()
        if schedule.next is None:
            heappop(heap)
        else:
            time, comes = schedule.next
            heapreplace(heap, (time, _ON if comes else _OFF, next(self._agenda.sequence), NOBODY))
        return who

    def state(self) -> State:
        """The schedule, and which clients are present, have vanished or are about to."""
        return {
            "schedule": {} if self._schedule is None else self._schedule.state(),
            "scheduled": np.frombuffer(bytes(self._scheduled), np.uint8),
            "vanished": np.array(sorted(self._vanished), np.int64),
            "vanishing": table([(task, *who) for task, who in self._vanishing.items()], **_VANISHING),
            "returning": self._returning,
        }

    def restore(self, state: State) -> None:
        """Replaces the presence with the saved one."""
        if self._schedule is not None:
            self._schedule.restore(take(state, "schedule", dict))
        self._scheduled = bytearray(take(state, "scheduled", np.ndarray).tobytes())
        self._vanished = set(take(state, "vanished", np.ndarray).tolist())
        vanishing = rows(take(state, "vanishing", dict), *_VANISHING)
        self._vanishing = {task: (client, back) for task, client, back in vanishing}
        self._returning = take(state, "returning", int)


def is_over(server: Server, presence: Presence, fleet: Fleet) -> bool:
    """True if no task is running, no client that could get one will join, and no Woke can merge the buffer.

    Then only useless Wokes would follow, up to the one that ends the run, if there is one.
    """
    view = server.view
    if view.running or (view.buffered and server.awaits >= view.time):
        return False
    return not presence.expects or server.barred >= fleet.clients


def nothing_more(server: Server) -> Stop:
    """The end of a run in which nothing more can happen.

    Raises StalledError if there are clients that never get a task: then the strategy waits for something impossible.
    """
    if server.view.present or server.barred > server.spent:
        raise StalledError(f"nothing more can happen after time {server.view.time:.6g}: {server.waits_for}")
    return Stop(budgets_spent(server.spent, 0, 1)) if server.spent else NOTHING_MORE
