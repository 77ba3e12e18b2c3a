"""Wall-clock time: the runtime with one thread per client that really sleeps, sped up by a factor."""

import sys
from contextlib import closing
from dataclasses import dataclass
from heapq import heappop
from math import inf
from queue import Empty, SimpleQueue
from threading import Event as Flag
from threading import Thread
from time import monotonic

from fairlag.core.server import Server
from fairlag.core.state import Savable, State, rows, table, take
from fairlag.core.types import Arrived, Cancel, Command, Dispatch, Event, Failed, Joined, Stop, Wake, Woke
from fairlag.errors import FairlagError, InputError
from fairlag.execute import Executor
from fairlag.execute.nothing import Nothing
from fairlag.fleet.clients import Fleet
from fairlag.runtime.agenda import NOBODY, Agenda, Due, Watchdog
from fairlag.runtime.clock import Clock, Lateness
from fairlag.runtime.presence import Presence, is_over, nothing_more

RESUMED = "the run was resumed while its update arrived"

_PATIENCE = 0.1
"""How many seconds `proceed` waits for an event before it returns without one."""
_OUT = {"task": int, "until": float, "fetched": int}


def run(server: Server, fleet: Fleet, executor: Executor | None = None, *, speed: float = 1.0) -> Stop:
    """Drives a server as virtual time does, but lets time pass: `speed` seconds of the fleet in each second here.

    >>> from fairlag.fleet.clients import Group
    >>> from fairlag.fleet.delay import parse
    >>> from fairlag.zoo import fedstaleweight
    >>> fleet = Fleet([Group("fast", 10, parse("uniform(1, 2)")), Group("slow", 5, parse("uniform(8, 12)"))], seed=0)
    >>> server = Server(fedstaleweight(buffer=5), clients=fleet.clients, aggregations=10)
    >>> run(server, fleet, speed=1000).reason
    '10 aggregations were made'
    """
    with closing(WallClockSimulation(server, fleet, executor, speed=speed)) as simulation:
        return simulation.to_the_end()


@dataclass(slots=True)
class _Errand:
    """A task on its way."""

    task: Dispatch
    until: float
    """When it is done."""
    over: Flag
    """Ends it early."""
    fetched: bool = False
    """Was its result asked for? Then its client may already remember what it learnt."""


class _Client:
    """A thread that runs one errand after the other and posts what became of each."""

    def __init__(self, number: int, executor: Executor, clock: Clock, post: "SimpleQueue[_News]") -> None:
        self._executor = executor
        self._clock = clock
        self._post = post
        self._errands: SimpleQueue[_Errand | None] = SimpleQueue()
        self._last = Flag()
        self.thread = Thread(target=self._live, name=f"fairlag client {number}")

    def send(self, errand: _Errand) -> None:
        self._last = errand.over
        self._errands.put(errand)

    def stop(self) -> None:
        """The thread ends at once, or with the result that it is fetching: errands before the last are over."""
        self._errands.put(None)
        self._last.set()

    def _live(self) -> None:
        while (errand := self._errands.get()) is not None:
            try:
                news = self._run(errand)
            except BaseException as interruption:  # not of this client: whoever drives the server must see it
                news = interruption
            if news is not None:
                self._post.put(news)

    def _run(self, errand: _Errand) -> "_News | None":
        task, seconds = errand.task, inf
        while seconds:
            seconds = self._clock.seconds_until(errand.until)
            if errand.over.wait(seconds):
                self._executor.discard(task.task)
                return None
        errand.fetched = True
        try:
            update = self._executor.result(task)
        except FairlagError:  # ends the run, as in virtual time
            raise
        except Exception as error:
            return Failed(self._clock.time, task.task, f"{type(error).__name__}: {error}")
        return Arrived(self._clock.time, task.task, update)


_News = Arrived | Failed | BaseException


class WallClockSimulation:
    """The life of a fleet under a server in real time, in as many parts as one likes, and saved between any two.

    The server and `executor.submit` stay in the caller's thread. Each task's one call of `executor.result` or
    `executor.discard` is made in the thread of its client, so several may be going on at once. A task whose result
    raises an exception that is not fairlag's own is lost, for that reason. What a task takes to compute after its
    duration delays its arrival: `lateness` says by how much. Time passes only during `proceed`, so that nothing waits
    for a checkpoint.
    """

    def __init__(self, server: Server, fleet: Fleet, executor: Executor | None = None, *, speed: float = 1.0) -> None:
        """Lets `speed` seconds of the fleet pass in each second here."""
        self._server = server
        self._fleet = fleet
        self._executor = executor or Nothing(fleet.steps)
        self._agenda = Agenda()
        self._presence = Presence(fleet, self._agenda)
        self._watchdog = Watchdog(server, fleet)
        self.lateness = Lateness()
        self._parts: dict[str, Savable] = {
            "server": server,
            "agenda": self._agenda,
            "presence": self._presence,
            "watchdog": self._watchdog,
            "executor": self._executor,
            "lateness": self.lateness,
        }
        self._clock = Clock(speed)
        self._clients: dict[int, _Client] = {}
        self._out: dict[int, _Errand] = {}
        self._post: SimpleQueue[_News] = SimpleQueue()
        self._arrived: dict[int, Arrived | Failed] = {}
        """What clients posted that the server has not been told."""
        self._started = False
        self._stop: Stop | None = None

    def to_the_end(self) -> Stop:
        """All events until the server stops or nothing more can happen; says why it ended."""
        while (stop := self.proceed(sys.maxsize)) is None:
            pass
        return stop

    def proceed(self, events: int) -> Stop | None:
        """At most so many more events; returns if none comes for a moment. Says why the run is over if it is."""
        deadline = monotonic() + _PATIENCE
        with self._clock:
            if not self._started:
                self._started = True
                self._stop = self._obey(self._server.handle(Joined(0.0, self._presence.start())))
            while events > 0 and self._stop is None:
                if is_over(self._server, self._presence, self._fleet):
                    self._stop = nothing_more(self._server)
                elif not self._wait(deadline):
                    return None
                else:
                    self._stop = self._pass()
                    events -= 1
        if self._stop is not None:
            self.close()
        return self._stop

    def close(self) -> None:
        """No thread goes on; only a second Ctrl-C does not wait for results that are being fetched.

        A thread that Ctrl-C kept from saying that it has started ends by itself: it finds nothing to do.
        """
        clients = list(self._clients.values())
        for client in clients:  # all at once, so that nobody wakes for a result while another's thread is waited for
            client.stop()
        for client in clients:
            if client.thread.is_alive():
                client.thread.join()
        self._clients.clear()
        self._out.clear()

    def state(self) -> State:
        """All that is needed to go on from here, as if no time had passed since."""
        parts = {name: part.state() for name, part in self._parts.items()}
        # After the executor's: what was fetched since then is lost by a resume, but nothing is ever learnt twice.
        out = [(number, errand.until, errand.fetched) for number, errand in self._out.items()]
        return {
            **parts,
            "out": table(out, **_OUT),
            "started": self._started,
            "stop": self._stop and self._stop.reason,
        }

    def restore(self, state: State) -> None:
        """Goes on where another one, constructed alike, was saved: whoever slept goes on sleeping."""
        for name, part in self._parts.items():
            part.restore(take(state, name, dict))
        self._started = take(state, "started", bool)
        self._stop = Stop(reason) if isinstance(reason := state["stop"], str) else None
        time = self._server.view.time
        self._clock.set(time)
        lost = []
        for number, until, fetched in rows(take(state, "out", dict), *_OUT):
            if fetched:
                lost.append(number)
            else:
                self._send(self._server.running[number], until)
        for number in lost:
            self._stop = self._obey(self._server.handle(Failed(time, number, RESUMED))) or self._stop

    def _wait(self, deadline: float) -> bool:
        """Enters the post in the agenda, so that all is taken in the order of time, until its first entry is due.

        Says whether one is: not if it is not before the deadline.
        """
        heap = self._agenda.heap
        while True:
            seconds = self._clock.seconds_until(heap[0][0] if heap else inf)
            left = max(deadline - monotonic(), 0.0)
            try:
                news = self._post.get(timeout=min(seconds, left))
            except Empty:
                if not (seconds and left):
                    return not seconds
                continue
            if isinstance(news, BaseException):
                raise news
            self._arrived[news.task] = news
            self._agenda.add(news.time, Due.ARRIVAL, news.task)

    def _pass(self) -> Stop | None:
        """The event that is due, answered by the server's commands."""
        event = self._next_event()
        stop = None if event is None else self._obey(self._server.handle(event))
        self._watchdog.count(not (isinstance(event, Woke) and self._server.view.running))
        return stop

    def _next_event(self) -> Event | None:
        """Takes what is due; None where nothing changes by it."""
        heap = self._agenda.heap
        event = self._arrival(heappop(heap)[3]) if heap[0][1] == Due.ARRIVAL else self._presence.next_event()
        # An entry, or a client's post, may reach this thread a moment after something that happened later.
        time = self._server.view.time
        return event if event is None or event.time >= time else event._replace(time=time)

    def _arrival(self, number: int) -> Event | None:
        event, errand = self._arrived.pop(number, None), self._out.pop(number, None)
        # A task that was cancelled while its result was fetched is not the server's business any more.
        if event is None or errand is None:
            return None
        if isinstance(event, Arrived):
            self.lateness.note(max(event.time - errand.until, 0.0), duration=errand.until - errand.task.time)
        return event

    def _obey(self, commands: list[Command]) -> Stop | None:
        for command in commands:
            if isinstance(command, Dispatch):
                self._start(command)
            elif isinstance(command, Cancel):
                if not self._presence.forget(command.task):
                    self._out.pop(command.task).over.set()
            elif isinstance(command, Wake):
                self._agenda.add(command.time, Due.WAKE, NOBODY)
            else:
                return command
        return None

    def _start(self, task: Dispatch) -> None:
        """The duration counts from the server's time of the dispatch, not from when the thread gets round to it."""
        duration = self._fleet.duration(task.client, task.ordinal, task.steps)
        duration *= self._fleet.factor(task.client, task.time, self._server.part)
        # Whoever vanishes in the middle never delivers, so there is nothing to compute.
        if not (self._fleet.vanishing and self._presence.plan(task, duration)):
            self._send(task, task.time + duration)

    def _send(self, task: Dispatch, until: float) -> None:
        self._executor.submit(task, self._server.versions[task.version], until)
        self._out[task.task] = errand = _Errand(task, until, Flag())
        client = self._clients.get(task.client)
        if client is None:
            client = _Client(task.client, self._executor, self._clock, self._post)
            self._clients[task.client] = client
            try:
                client.thread.start()
            except RuntimeError as error:
                raise InputError(
                    f"on the wall clock each client at work is a thread, but after {len(self._clients) - 1} of them "
                    f"the system refused another ({error}): take a smaller fleet"
                ) from None
        client.send(errand)
