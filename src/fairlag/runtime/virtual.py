"""Virtual time: the runtime that jumps from event to event; exact, reproducible, and as fast as the server."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from threading import Lock

from fairlag.core.server import Server
from fairlag.core.state import Savable, State, take
from fairlag.core.types import Arrived, Cancel, Command, Dispatch, Joined, Stop, Wake, Woke, record_of
from fairlag.errors import Interrupted
from fairlag.execute import Executor
from fairlag.execute.nothing import Nothing
from fairlag.fleet.clients import Fleet
from fairlag.runtime.agenda import NOBODY, Agenda, Due, Watchdog
from fairlag.runtime.devices import Devices
from fairlag.runtime.presence import Presence, is_over, nothing_more

STRETCH = 1000
"""How many events pass between two checks for progress."""


def run(server: Server, fleet: Fleet, executor: Executor | None = None) -> Stop:
    """Drives a server with the events of a fleet until it stops or nothing more can happen; returns why it ended.

    >>> from fairlag.fleet.clients import Group
    >>> from fairlag.fleet.delay import parse
    >>> from fairlag.zoo import fedstaleweight
    >>> fleet = Fleet([Group("fast", 10, parse("uniform(1, 2)")), Group("slow", 5, parse("uniform(8, 12)"))], seed=0)
    >>> server = Server(fedstaleweight(buffer=5), clients=fleet.clients, aggregations=100)
    >>> run(server, fleet).reason
    '100 aggregations were made'
    """
    return Simulation(server, fleet, executor).to_the_end()


class _Collector:
    """The thresholds of Python's garbage collector. A process has one set, for all threads that simulate.

    The first thread to enter saves them, and the last one to leave restores them.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside: list[bool] = []
        """Per thread inside: may young objects be collected less often too?"""
        self._before = gc.get_threshold()

    def enter(self, young_too: bool) -> None:
        with self._lock:
            if not self._inside:
                self._before = gc.get_threshold()
            self._inside.append(young_too)
            self._set()

    def leave(self, young_too: bool) -> None:
        with self._lock:
            self._inside.remove(young_too)
            self._set()

    def _set(self) -> None:
        young, middle, old = self._before
        if self._inside:
            young, old = 100 * young if all(self._inside) else young, 1000 * max(old, 1)
        gc.set_threshold(min(young, _LARGEST), middle, min(old, _LARGEST))


_LARGEST = 2**31 - 1
"""The largest possible threshold."""
_COLLECTOR = _Collector()


@contextmanager
def few_collections(*, young_too: bool) -> Iterator[None]:
    """Makes garbage collections rare: with a million running tasks, walking all live objects takes a third of the time.

    Tasks are not in reference cycles. Training may leave large objects in cycles, but they are mostly young, and young
    objects are still collected. Without training, young objects are collected less often too, which saves a tenth.
    """
    _COLLECTOR.enter(young_too)
    try:
        yield
    finally:
        _COLLECTOR.leave(young_too)


class Simulation:
    """A simulation of a server and a fleet, in any number of parts; it can be saved between two parts.

    >>> from fairlag.fleet.clients import Group
    >>> from fairlag.fleet.delay import parse
    >>> from fairlag.zoo import fedstaleweight
    >>> fleet = Fleet([Group("all", 10, parse("uniform(1, 2)"))], seed=0)
    >>> def fresh() -> Simulation:
    ...     return Simulation(Server(fedstaleweight(buffer=5), clients=10, aggregations=100), fleet)
    >>> simulation, another = fresh(), fresh()
    >>> simulation.proceed(events=200)
    >>> another.restore(simulation.state())
    >>> another.to_the_end().reason
    '100 aggregations were made'
    """

    def __init__(self, server: Server, fleet: Fleet, executor: Executor | None = None) -> None:
        self._server = server
        self._fleet = fleet
        self._executor = executor or Nothing(fleet.steps)
        self._submit = self._executor.submit
        self._versions = server.versions
        self._duration = fleet.duration
        self._agenda = Agenda()
        self._heap = self._agenda.heap
        self._presence = Presence(fleet, self._agenda)
        self._plan = self._presence.plan if fleet.vanishing else None
        self._watchdog = Watchdog(server, fleet)
        self._parts: dict[str, Savable] = {
            "server": server,
            "agenda": self._agenda,
            "presence": self._presence,
            "watchdog": self._watchdog,
            "executor": self._executor,
        }
        self._devices = Devices.of(fleet, self._parts)
        self._started = False
        self._stop: Stop | None = None
        self._passed = 0
        """How many events of the current part are done."""
        self._uncounted = 0
        """How many of these the watchdog does not count."""

    def to_the_end(self) -> Stop:
        """Simulates until the server stops or nothing more can happen; returns why it ended."""
        while (stop := self.proceed(sys.maxsize)) is None:
            pass
        return stop

    def proceed(self, events: int) -> Stop | None:
        """Simulates at most this many events; returns why the run is over, or None."""
        with few_collections(young_too=isinstance(self._executor, Nothing)):
            if not self._started:
                self._started = True
                self._stop = self._obey(self._server.handle(Joined(0.0, self._presence.start())))
            while events > 0 and self._stop is None:
                stretch = min(events, STRETCH - self._passed)
                self._stop = self._pass(stretch)
                events -= stretch
                self._passed += stretch
                if self._passed == STRETCH and self._stop is None:
                    self._watchdog.count(STRETCH - self._uncounted)
                    self._passed = self._uncounted = 0
        return self._stop

    @few_collections(young_too=True)
    def state(self) -> State:
        """Everything needed to continue from here; results that were not read yet are computed again."""
        return {
            **{name: part.state() for name, part in self._parts.items()},
            "started": self._started,
            "stop": self._stop and self._stop.reason,
            "passed": self._passed,
            "uncounted": self._uncounted,
        }

    @few_collections(young_too=True)
    def restore(self, state: State) -> None:
        """Continues from the saved state of a simulation built the same way; submits all running tasks again."""
        for name, part in self._parts.items():
            part.restore(take(state, name, dict))
        self._started = take(state, "started", bool)
        self._stop = Stop(reason) if isinstance(reason := state["stop"], str) else None
        self._passed, self._uncounted = take(state, "passed", int), take(state, "uncounted", int)
        arrivals = {whom: time for time, due, _, whom in self._agenda.heap if due == Due.ARRIVAL}
        for number, task in self._server.running.items():
            if number in arrivals:
                self._executor.submit(task, self._versions[task.version], arrivals[number])

    def _pass(self, events: int) -> Stop | None:
        """The hot loop: takes events, each answered by the server's commands."""
        heap, running, next_event = self._heap, self._server.running, self._presence.next_event
        handle, obey, result = self._server.handle, self._obey, self._executor.result
        for passed in range(events):
            if not running and is_over(self._server, self._presence, self._fleet):
                return nothing_more(self._server)
            if heap[0][1]:
                event = next_event()
                if event is None:
                    continue
                commands = handle(event)
                if isinstance(event, Woke):
                    self._uncounted += len(running) > 0
            else:
                time, _, _, number = heap[0]
                task = running.get(number)
                if task is None:  # it was cancelled
                    heappop(heap)
                    continue
                try:
                    update = result(task)
                except Interrupted:  # the event stays in the agenda, so that the run can continue
                    self._passed += passed
                    raise
                heappop(heap)
                commands = handle(record_of(Arrived, (time, number, update)))
            if commands and (stop := obey(commands)) is not None:
                return stop
        return None

    def _obey(self, commands: list[Command]) -> Stop | None:
        for command in commands:
            if isinstance(command, Dispatch):
                number, client, version, ordinal, time, steps, _ = command
                duration = self._duration(client, ordinal, steps)
                if self._fleet.timed:
                    duration *= self._fleet.factor(client, time, self._server.part)
                if self._devices is not None:
                    duration = self._devices.work(client, time, duration)
                # A client that vanishes during the task sends nothing, so there is nothing to compute.
                if self._plan is None or not self._plan(command, duration):
                    due = time + duration
                    self._submit(command, self._versions[version], due)
                    heappush(self._heap, (due, Due.ARRIVAL, next(self._agenda.sequence), number))
            elif isinstance(command, Cancel):
                if not self._presence.forget(command.task):
                    self._executor.discard(command.task)
            elif isinstance(command, Wake):
                self._agenda.add(command.time, Due.WAKE, NOBODY)
            else:
                return command
        return None
