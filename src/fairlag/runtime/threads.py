"""Wall-clock time: the runtime with one thread per client that really sleeps, sped up by a factor."""

from contextlib import ExitStack
from heapq import heappop
from math import inf, isfinite
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Thread
from threading import Event as Flag
from time import monotonic
from typing import NamedTuple

from fairlag.core.server import Server
from fairlag.core.types import Arrived, Cancel, Command, Dispatch, Event, Failed, Joined, Stop, Wake, Woke
from fairlag.errors import InputError
from fairlag.execute import Executor
from fairlag.execute.nothing import Nothing
from fairlag.fleet.clients import Fleet
from fairlag.runtime.agenda import NOBODY, Agenda, Due, Watchdog
from fairlag.runtime.presence import Presence, is_over, nothing_more


def run(server: Server, fleet: Fleet, executor: Executor | None = None, *, speedup: float = 1.0) -> Stop:
    """Drives a server as virtual time does, but lets time pass: `speedup` seconds of the fleet in each second here.

    The server and `executor.submit` stay in the caller's thread. Each task's one call of `executor.result` or
    `executor.discard` is made in the thread of its client, so several may be going on at once. A task whose result
    raises an exception is lost, for that reason. What a task takes to compute after its duration delays its arrival.
    No thread outlives the call, however that ends; only a second Ctrl-C does not wait for results being fetched.

    >>> from fairlag.fleet.clients import Group
    >>> from fairlag.fleet.delay import parse
    >>> from fairlag.zoo import fedstaleweight
    >>> fleet = Fleet([Group("fast", 10, parse("uniform(1, 2)")), Group("slow", 5, parse("uniform(8, 12)"))], seed=0)
    >>> server = Server(fedstaleweight(buffer=5), clients=fleet.clients, aggregations=10)
    >>> run(server, fleet, speedup=1000).reason
    '10 aggregations were made'
    """
    if not (speedup > 0 and isfinite(speedup)):
        raise InputError(f"the speedup is {speedup}, it must be a positive number (100 lets a second pass as 100)")
    with ExitStack() as threads:
        return _Run(server, fleet, executor or Nothing(fleet.steps), speedup, threads).to_the_end()


class _Clock:
    """The fleet's time: 0 when the clock is made, then `speedup` times as fast as the monotonic clock."""

    def __init__(self, speedup: float) -> None:
        self._speedup = speedup
        self._start = monotonic()

    @property
    def time(self) -> float:
        return (monotonic() - self._start) * self._speedup

    def seconds_until(self, time: float) -> float:
        """How long to wait here for a time of the fleet: not below 0, nor more than the system can wait for."""
        return min(max(self._start + time / self._speedup - monotonic(), 0.0), TIMEOUT_MAX)


class _Errand(NamedTuple):
    """A task on its way: when it is done, and the flag that ends it early."""

    task: Dispatch
    until: float
    over: Flag


class _Client:
    """A thread that runs one errand after the other and posts what became of each."""

    def __init__(self, number: int, executor: Executor, clock: _Clock, post: "SimpleQueue[_News]") -> None:
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

    def close(self) -> None:
        """The thread has ended."""
        self.stop()
        if self.thread.is_alive():
            self.thread.join()

    def _live(self) -> None:
        while (errand := self._errands.get()) is not None:
            try:
                news = self._run(errand)
            except BaseException as interruption:  # not of this client: whoever called `run` must see it
                news = interruption
            if news is not None:
                self._post.put(news)

    def _run(self, errand: _Errand) -> "_News | None":
        task, until, over = errand
        if over.wait(self._clock.seconds_until(until)):
            self._executor.discard(task.task)
            return None
        try:
            update = self._executor.result(task)
        except Exception as error:
            return Failed(self._clock.time, task.task, f"{type(error).__name__}: {error}")
        return Arrived(self._clock.time, task.task, update)


_News = Arrived | Failed | BaseException


class _Run:
    def __init__(self, server: Server, fleet: Fleet, executor: Executor, speedup: float, threads: ExitStack) -> None:
        self._server = server
        self._fleet = fleet
        self._executor = executor
        self._agenda = Agenda()
        self._presence = Presence(fleet, self._agenda)
        self._first = self._presence.start()
        self._threads = threads
        self._clients: dict[int, _Client] = {}
        self._out: dict[int, _Errand] = {}
        self._post: SimpleQueue[_News] = SimpleQueue()
        self._watchdog = Watchdog(server, fleet)
        self._clock = _Clock(speedup)

    def to_the_end(self) -> Stop:
        try:
            stop = self._obey(self._server.handle(Joined(0.0, self._first)))
            while stop is None:
                stop = self._proceed()
            return stop
        finally:
            # All at once, so that nobody wakes for a result while another one's thread is waited for.
            for client in self._clients.values():
                client.stop()

    def _proceed(self) -> Stop | None:
        """One event."""
        if is_over(self._server, self._presence, self._fleet):
            return nothing_more(self._server)
        event = self._next_event()
        stop = None if event is None else self._obey(self._server.handle(event))
        self._watchdog.count(not (isinstance(event, Woke) and self._server.view.running))
        return stop

    def _next_event(self) -> Event | None:
        """Waits for what is due next, and takes it; None where nothing changes by it."""
        self._wait()
        heap = self._agenda.heap
        if heap[0][1] != Due.ARRIVAL:
            event = self._presence.next_event()
        else:
            event = heappop(heap)[3]
            # A task that was cancelled while its result was fetched is not the server's business any more.
            if self._out.pop(event.task, None) is None:
                return None
        # An entry, or a client's post, may reach this thread a moment after something that happened later.
        time = self._server.view.time
        return event if event is None or event.time >= time else event._replace(time=time)

    def _wait(self) -> None:
        """Enters the post in the agenda, so that all is taken in the order of time, until its first entry is due."""
        heap = self._agenda.heap
        while True:
            seconds = self._clock.seconds_until(heap[0][0] if heap else inf)
            try:
                news = self._post.get(timeout=seconds)
            except Empty:
                if not seconds:
                    return
                continue
            if isinstance(news, BaseException):
                raise news
            self._agenda.add(news.time, Due.ARRIVAL, news)

    def _obey(self, commands: list[Command]) -> Stop | None:
        for command in commands:
            if isinstance(command, Dispatch):
                self._start(command)
            elif isinstance(command, Cancel):
                self._presence.forget(command.task)
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
        # Whoever is to vanish sleeps until the server cancels the task that is lost by it.
        until = inf if self._fleet.vanishing and self._presence.plan(task, duration) else task.time + duration
        self._executor.submit(task, self._server.versions[task.version], until)
        self._out[task.task] = errand = _Errand(task, until, Flag())
        client = self._clients.get(task.client)
        if client is None:
            client = self._clients[task.client] = _Client(task.client, self._executor, self._clock, self._post)
            self._threads.callback(client.close)
            client.thread.start()
        client.send(errand)
