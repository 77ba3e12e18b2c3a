"""Virtual time: the runtime that jumps from event to event; exact, reproducible, and as fast as the server is."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappop, heappush

from fairlag.execute import Executor
from fairlag.execute.nothing import Nothing
from fairlag.fleet.clients import Fleet
from fairlag.runtime.agenda import NOTHING_MORE, Agenda, Due, Presence, Watchdog, is_over
from fairlag.server import Server
from fairlag.types import Arrived, Cancel, Command, Dispatch, Joined, Stop, Wake, Woke, quick

_STRETCH = 1000
"""How many events pass between two looks at whether anything is still going on."""


def run(server: Server, fleet: Fleet, executor: Executor | None = None) -> Stop:
    """Drives a server through the life of a fleet until it stops or nothing more can happen; says why it ended.

    >>> from fairlag.fleet.clients import Group
    >>> from fairlag.fleet.delay import parse
    >>> from fairlag.zoo import fedstaleweight
    >>> fleet = Fleet([Group("fast", 10, parse("uniform(1, 2)")), Group("slow", 5, parse("uniform(8, 12)"))], seed=0)
    >>> server = Server(fedstaleweight(buffer=5), clients=fleet.clients, aggregations=100)
    >>> run(server, fleet).reason
    '100 aggregations were made'
    """
    with _few_full_collections():
        return _Run(server, fleet, executor or Nothing()).to_the_end()


@contextmanager
def _few_full_collections() -> Iterator[None]:
    """Python walks all live objects every now and then: for a million running tasks that is a third of the time.

    They are in no reference cycles. What users' code leaves in cycles is mostly young, and still found.
    """
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, 1000 * max(old, 1))
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)


class _Run:
    def __init__(self, server: Server, fleet: Fleet, executor: Executor) -> None:
        self._server = server
        self._executor = executor
        self._versions = server.versions
        self._duration = fleet.duration
        self._agenda = Agenda()
        self._presence = Presence(fleet, self._agenda)
        self._plan = self._presence.plan if fleet.vanishing else None
        self._forgotten: set[int] = set()
        self._watchdog = Watchdog(server, fleet)
        self._uncounted = 0

    def to_the_end(self) -> Stop:
        stop = self._obey(self._server.handle(Joined(0.0, self._presence.start())))
        while stop is None:
            self._uncounted = 0
            stop = self._proceed(_STRETCH)
            if stop is None:
                self._watchdog.count(_STRETCH - self._uncounted)
        return stop

    def _proceed(self, events: int) -> Stop | None:
        """The hot loop: so many events, each answered by the server's commands."""
        heap, forgotten, next_event = self._agenda.heap, self._forgotten, self._presence.next_event
        handle, obey, result = self._server.handle, self._obey, self._executor.result
        for _ in range(events):
            if not heap:
                return NOTHING_MORE
            if heap[0][1]:
                event = next_event()
                if event is None:
                    continue
                stop = obey(handle(event))
                if isinstance(event, Woke):
                    self._uncounted += self._server.view.running > 0
                    stop = stop or (NOTHING_MORE if is_over(self._server, self._agenda) else None)
            else:
                time, _, _, task = heappop(heap)
                number = task[0]
                if number in forgotten:
                    forgotten.remove(number)
                    continue
                stop = obey(handle(quick(Arrived, (time, number, result(task)))))
            if stop is not None:
                return stop
        return None

    def _obey(self, commands: list[Command]) -> Stop | None:
        for command in commands:
            if isinstance(command, Dispatch):
                _, client, version, ordinal, time = command
                duration = self._duration(client, ordinal)
                # Whoever vanishes in the middle never delivers, so there is nothing to compute.
                if self._plan is None or not self._plan(command, duration):
                    self._executor.submit(command, self._versions[version])
                    agenda = self._agenda
                    heappush(agenda.heap, (time + duration, 0, next(agenda.sequence), command))
            elif isinstance(command, Cancel):
                if not self._presence.forget(command.task):
                    self._forgotten.add(command.task)
                    self._executor.discard(command.task)
            elif isinstance(command, Wake):
                self._agenda.add(command.time, Due.WAKE, None)
            else:
                return command
        return None
