"""Wall-clock time: a runtime in which each client is a thread that really sleeps, sped up by a factor."""

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
from fairlag.runtime.devices import Devices
from fairlag.runtime.presence import Presence, is_over, nothing_more

RESUMED = "the run was resumed while its update arrived"

_PATIENCE = 0.1
"""The seconds that `proceed` waits for an event before it returns without one."""
_OUT = {"task": int, "until": float, "fetched": int}


def run(server: Server, fleet: Fleet, executor: Executor | None = None, *, speed: float = 1.0) -> Stop:
    """Drives a server like virtual time, but lets time really pass: `speed` seconds of fleet time per second.

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
class _Pending:
    """A task that a client is working on."""

    task: Dispatch
    until: float
    """When it will be done."""
    over: Flag
    """Set to end it early."""
    fetched: bool = False
    """Was its result requested? Then its client may already remember what it learnt."""


class _Client:
    """A thread that runs one task after the other and posts the outcome of each."""

    def __init__(self, number: int, executor: Executor, clock: Clock, post: "SimpleQueue[_News]") -> None:
        self._executor = executor
        self._clock = clock
        self._post = post
        self._tasks: SimpleQueue[_Pending | None] = SimpleQueue()
        self._last = Flag()
        self.thread = Thread(target=self._main, name=f"fairlag client {number}")

    def send(self, pending: _Pending) -> None:
        self._last = pending.over
        self._tasks.put(pending)

    def stop(self) -> None:
        """Ends the thread at once, or after the result that it is fetching; all tasks but the last have ended."""
        self._tasks.put(None)
        self._last.set()

    def _main(self) -> None:
        while (pending := self._tasks.get()) is not None:
            try:
                news = self._run(pending)
            except BaseException as interruption:  # it does not concern this client: the server's thread must see it
                news = interruption
            if news is not None:
                self._post.put(news)

    def _run(self, pending: _Pending) -> "_News | None":
        task, seconds = pending.task, inf
        while seconds:
            seconds = self._clock.seconds_until(pending.until)
            if pending.over.wait(seconds):
                self._executor.discard(task.task)
                return None
        pending.fetched = True
        try:
            update = self._executor.result(task)
        except FairlagError:  # ends the run, as in virtual time
            raise
        except Exception as error:
            return Failed(self._clock.time, task.task, f"{type(error).__name__}: {error}")
        return Arrived(self._clock.time, task.task, update)


_News = Arrived | Failed | BaseException


class WallClockSimulation:
    """A fleet and its server in real time, in any number of parts; the state can be saved between any two.

    The server and `executor.submit` stay in the caller's thread. Each task's one call of `executor.result` or
    `executor.discard` is made in its client's thread, so several calls may run at the same time. A task whose result
    raises an exception that is not fairlag's own is lost, for that reason. If a result is not ready after
    its task's duration, it arrives late: `lateness` says by how much. Time passes only during `proceed`, so checkpoints
    take no time.
    """

    def __init__(self, server: Server, fleet: Fleet, executor: Executor | None = None, *, speed: float = 1.0) -> None:
        """Lets `speed` seconds of fleet time pass per second."""
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
        self._devices = Devices.of(fleet, self._parts)
        self._clock = Clock(speed)
        self._clients: dict[int, _Client] = {}
        self._out: dict[int, _Pending] = {}
        self._post: SimpleQueue[_News] = SimpleQueue()
        self._arrived: dict[int, Arrived | Failed] = {}
        """Posted by clients, but not yet handled by the server."""
        self._started = False
        self._stop: Stop | None = None

    def to_the_end(self) -> Stop:
        """Handles all events until the server stops or nothing more can happen; returns why it ended."""
        while (stop := self.proceed(sys.maxsize)) is None:
            pass
        return stop

    def proceed(self, events: int) -> Stop | None:
        """Handles at most this many more events; returns early if none comes for a moment.

        Returns why the run is over, if it is.
        """
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
        """Ends all threads; waits for results that are being fetched, unless there is a second Ctrl-C.

        If Ctrl-C came before a thread reported its start, the thread ends by itself, because it finds nothing to do.
        """
        clients = list(self._clients.values())
        for client in clients:  # all at once, so that none wakes for a result while another thread is joined
            client.stop()
        for client in clients:
            if client.thread.is_alive():
                client.thread.join()
        self._clients.clear()
        self._out.clear()

    def state(self) -> State:
        """Everything that is needed to continue from here, as if no time had passed."""
        parts = {name: part.state() for name, part in self._parts.items()}
        # After the executor's state: a resume loses results that were fetched since then, but nothing is learnt twice.
        out = [(number, pending.until, pending.fetched) for number, pending in self._out.items()]
        return {
            **parts,
            "out": table(out, **_OUT),
            "started": self._started,
            "stop": self._stop and self._stop.reason,
        }

    def restore(self, state: State) -> None:
        """Continues where another simulation with the same arguments was saved: sleeping clients keep sleeping."""
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
        """Moves posts to the agenda, so that all entries are handled in order of time, until its first entry is due.

        False if no entry is due before the deadline.
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
        """Handles the event that is due, and executes the server's commands."""
        event = self._next_event()
        stop = None if event is None else self._obey(self._server.handle(event))
        self._watchdog.count(not (isinstance(event, Woke) and self._server.view.running))
        return stop

    def _next_event(self) -> Event | None:
        """Takes the entry that is due; None if it changes nothing."""
        heap = self._agenda.heap
        event = self._arrival(heappop(heap)[3]) if heap[0][1] == Due.ARRIVAL else self._presence.next_event()
        # An entry, or a client's post, may reach this thread just after something that happened later.
        time = self._server.view.time
        return event if event is None or event.time >= time else event._replace(time=time)

    def _arrival(self, number: int) -> Event | None:
        event, pending = self._arrived.pop(number, None), self._out.pop(number, None)
        # The server no longer knows a task that was cancelled while its result was fetched.
        if event is None or pending is None:
            return None
        if isinstance(event, Arrived):
            self.lateness.note(max(event.time - pending.until, 0.0), duration=pending.until - pending.task.time)
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
        """Starts a task: its duration counts from the server's time of the dispatch, not from the thread's start."""
        duration = self._fleet.duration(task.client, task.ordinal, task.steps)
        duration *= self._fleet.factor(task.client, task.time, self._server.part)
        if self._devices is not None:
            duration = self._devices.work(task.client, task.time, duration)
        # A client that vanishes during the task never delivers, so there is nothing to compute.
        if not (self._fleet.vanishing and self._presence.plan(task, duration)):
            self._send(task, task.time + duration)

    def _send(self, task: Dispatch, until: float) -> None:
        self._executor.submit(task, self._server.versions[task.version], until)
        self._out[task.task] = pending = _Pending(task, until, Flag())
        client = self._clients.get(task.client)
        if client is None:
            client = _Client(task.client, self._executor, self._clock, self._post)
            self._clients[task.client] = client
            try:
                client.thread.start()
            except RuntimeError as error:
                raise InputError(
                    f"on the wall clock, each busy client is a thread, but after {len(self._clients) - 1} threads "
                    f"the system refused another ({error}): use a smaller fleet"
                ) from None
        client.send(pending)
