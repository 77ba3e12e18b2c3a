"""Drives a server over Flower's Grid: nodes join and leave, tasks are messages, and time is the wall clock."""

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fairlag.core.server import Server
from fairlag.core.state import State, take
from fairlag.core.types import Arrived, Command, Dispatch, Event, Failed, Joined, Left, Report, Stop, Wake, Woke
from fairlag.runtime.flower.courier import Courier
from fairlag.runtime.flower.gate import IN_QUARANTINE, Gate
from fairlag.runtime.flower.lobby import NODE_RESTARTED, Lobby
from fairlag.runtime.flower.nodes import LOG, Node, NodeWatcher
from fairlag.runtime.flower.options import Options
from fairlag.runtime.flower.roster import Place, Roster
from fairlag.runtime.flower.saved import completed, saved
from fairlag.runtime.flower.wire import SILENT, Told, Wire, failure, reason

RESTARTED = "the server was restarted"


@dataclass(frozen=True, slots=True)
class Work:
    """What the server needs to know about local training."""

    asked: Callable[[Dispatch], Mapping[str, Any]]
    """The configuration that is sent with a task, besides the arrays and the version."""
    report: Callable[[Dispatch, Told], Report | str]
    """Turns a client's own statements about an update into a report, within bounds, or says why it is refused."""


class Link:
    """A server and a real fleet, in any number of parts; it can be saved between two parts.

    Only the caller's thread uses the server. Messages in transit when a server ends are lost; the next server gives
    each node a new task when it sees the node.
    """

    def __init__(
        self,
        server: Server,
        grid: Grid,
        wire: Wire,
        work: Work,
        roster: Roster,
        options: Options,
        gate: Gate | None = None,
    ) -> None:
        self._server = server
        self._grid = grid
        self._wire = wire
        self._work = work
        self._roster = roster
        self._options = options
        self._gate = gate or Gate(roster)
        self._lobby = Lobby(
            roster,
            options,
            self._gate,
            ask=lambda number: self._send(number, self._wire.greeting(number)),
            forget=self._forget,
            later=lambda seconds, then: self._remind(self.time + seconds, then),
        )
        self._present: set[int] = set()
        """The clients that are present according to the server."""
        self.examples: dict[int, int] = {}
        """How many training examples each client reported last."""
        self._begun = False
        self._turn = count()
        self._timers: list[tuple[float, int, Callable[[], Event | None] | None]] = []
        """Timers: what to do at a time; None if the server wants to be woken."""
        self._given: dict[int, Dispatch] = {}
        """Per client: its last task."""
        self._at_node: dict[int, Dispatch] = {}
        """Per client: the task that its node has, which the server may have cancelled since."""
        self._messages: SimpleQueue[Callable[[], Event | None]] = SimpleQueue()
        self._followups: deque[Callable[[], Event | None]] = deque()
        """What follows from the last message; an event is made only when the server is ready for it."""
        self._held: list[Command] = []
        """The commands that came with a new version, which may not be saved yet."""
        self._began, self._before = monotonic(), 0.0
        self._courier: Courier | None = None
        self._watcher: NodeWatcher | None = None

    @property
    def time(self) -> float:
        """Seconds since the run began, without those between a crash and its resume."""
        return max(self._server.view.time, self._before + monotonic() - self._began)

    def proceed(self, events: int, patience: float = 0.1) -> Stop | None:
        """Handles at most this many events; returns when none comes for a moment: why the run is over, or None.

        Returns as soon as there is a new version, and sends it in the next call: until then, the caller can save it.
        If nodes had a version that a crash makes again, with other noise, its clients would pay for both.
        """
        if self._server.stopped is not None:  # it was saved when only the last evaluation was missing
            return self._server.stopped
        if self._courier is None:
            self._start()
        held, self._held = self._held, []
        self._obey(held)
        for _ in range(events):
            event = self._next(patience)
            if event is None:
                return None
            version = self._server.view.version
            commands = self._server.handle(event)
            if self._server.view.version > version:
                if self._server.refused:
                    LOG.warning("Version %s repeats the last one: %s", self._server.view.version, self._server.refused)
                self._held = commands
                return self._server.stopped
            if (stop := self._obey(commands)) is not None:
                return stop
        return None

    def close(self) -> None:
        """Stops sending, receiving and watching nodes."""
        if self._courier is not None:
            self._courier.close()
        if self._watcher is not None:
            self._watcher.close()

    def state(self) -> State:
        """Everything needed to continue after a crash."""
        return {
            "server": saved(self._server),
            "roster": self._roster.state(),
            "present": list(self._present),
            "wakes": [time for time, _, then in self._timers if then is None],
        }

    def restore(self, state: State) -> None:
        """Continues from the saved state of another link: all clients count as gone, and their tasks as lost."""
        server = self._server
        server.restore(completed(take(state, "server", dict)))
        self._roster.restore(take(state, "roster", dict))
        self._before, self._began, self._begun = server.view.time, monotonic(), True
        running = {task.client: task.task for task in server.running.values()}
        present: list[Any] = take(state, "present", list)
        for client in (each for each in present if each not in running):
            self._obey(server.handle(Left(self.time, client)))
        for number in running.values():
            self._obey(server.handle(Failed(self.time, number, RESTARTED, gone=True)))
        wakes: list[Any] = take(state, "wakes", list)
        for time in wakes:
            self._remind(time, None)

    # What happens

    def _start(self) -> None:
        options = self._options
        self._grid.get_node_ids()  # connects now, before several threads would do so at once
        self._courier = Courier(self._grid, self._replied, threads=options.threads, poll=options.poll)
        self._watcher = NodeWatcher(
            self._grid, lambda nodes: self._messages.put(partial(self._seen, nodes)), every=options.look
        )
        self._decide()

    def _replied(self, name: Hashable, reply: Message | Exception) -> None:
        """Called in a thread of the courier. The name of a message is its task, or, for a greeting, its node."""
        if isinstance(name, Dispatch):
            self._messages.put(partial(self._answered, name, reply))
        else:
            assert isinstance(name, int)
            self._messages.put(partial(self._introduced, name, reply))

    def _next(self, patience: float) -> Event | None:
        """The next event for the server; None if none comes for a moment."""
        until = monotonic() + patience
        event = None
        while event is None:
            if self._gate.struck:
                self._carry_out()
            if self._followups:
                event = self._followups.popleft()()
            elif self._timers and self._timers[0][0] <= self.time:
                then = heappop(self._timers)[2]
                event = Woke(self.time) if then is None else then()
            else:
                due = self._timers[0][0] - self.time if self._timers else patience
                try:
                    event = self._messages.get(timeout=max(0.0, min(until - monotonic(), due)))()
                except Empty:
                    if monotonic() >= until:
                        return None
        return event

    def _seen(self, nodes: dict[int, Node]) -> None:
        for place, why in self._lobby.seen(nodes):
            self._leave(place, why)

    def _introduced(self, number: int, reply: Message | Exception) -> None:
        place = self._lobby.introduced(number, reply)
        if place is not None:
            if place.node is not None:
                self._leave(place, NODE_RESTARTED)
            self._followups.append(partial(self._sit, place, number))

    def _sit(self, place: Place, number: int) -> Event | None:
        place.node = number
        return self._seated(place)

    def _seated(self, place: Place) -> Event | None:
        """The absent clients of a place join, unless too few nodes have come so far."""
        if place.node is None or self._gate.bars(place):
            return None
        if place.away > self.time:
            self._remind(place.away, partial(self._seated, place))
            return None
        places = [place]
        if not self._begun:
            there = [each for each in self._roster.places.values() if each.node is not None]
            places = [each for each in there if not self._gate.bars(each)]
            self._begun = len(places) >= self._options.at_least
            if not self._begun:
                LOG.info("Nodes so far: %s of the %s needed to start training", len(places), self._options.at_least)
                return None
        clients = [client for each in places for client in self._clients(each) if client not in self._present]
        self._present.update(clients)
        return Joined(self.time, clients) if clients else None

    def _leave(self, place: Place, why: str) -> None:
        place.node = None
        self._followups.extend(partial(self._left, client, why) for client in self._clients(place))

    def _decide(self) -> None:
        """Looks regularly for what people have decided about nodes."""
        self._carry_out()
        self._remind(self.time + self._options.look, self._decide)

    def _carry_out(self) -> None:
        """Clients of a node in quarantine are absent, and their running tasks are refused; released ones join again."""
        gone = partial(self._left, why=IN_QUARANTINE, refused=True)
        for order, places in self._gate.decided():
            for place in places:
                if order.release:
                    place.failures, place.away = 0, 0.0
                    self._followups.append(partial(self._seated, place))
                else:
                    self._followups.extend(partial(gone, client) for client in self._clients(place))

    def _left(self, client: int, why: str, *, refused: bool = False) -> Event | None:
        if (at_node := self._at_node.pop(client, None)) is not None:
            self._forget(at_node)
        if client not in self._present:
            return None
        self._present.remove(client)
        LOG.info("Client %s has left: %s", client, why)
        task = self._running(client)
        if task is None:
            return Left(self.time, client)
        return Failed(self.time, task.task, why, gone=True, refused=refused)

    def _answered(self, task: Dispatch, reply: Message | Exception) -> Event | None:
        if self._at_node.get(task.client) is not task:  # its node has left
            return None
        del self._at_node[task.client]
        if task.task not in self._server.running:
            if (after := self._running(task.client)) is not None:
                self._dispatch(after)
            return None
        if isinstance(reply, Exception):
            return self._failed(task, SILENT)
        if reply.has_error():
            LOG.info("Node %s says: %s", self._place(task.client).node, reason(reply))
            return self._failed(task, failure(reply))
        believed = partial(self._work.report, task)
        update = self._wire.update(reply, self._server.versions[task.version], believed)
        if isinstance(update, str):
            return self._failed(task, update, refused=True)
        self._place(task.client).failures = 0
        self.examples[task.client] = update.report.examples
        return Arrived(self.time, task.task, update)

    def _failed(self, task: Dispatch, why: str, *, refused: bool = False) -> Event:
        """The task failed: its client gets no task for a while, each time for twice as long."""
        place = self._place(task.client)
        place.failures += 1
        wait = self._options.wait(place.failures)
        place.away = self.time + wait
        outcome = "refused" if refused else "lost"
        LOG.info("Task %s is %s, %s: client %s gets no task for %.0f s", task.task, outcome, why, task.client, wait)
        self._present.discard(task.client)
        self._remind(place.away, partial(self._seated, place))
        return Failed(self.time, task.task, why, gone=True, refused=refused)

    # What is done

    def _obey(self, commands: list[Command]) -> Stop | None:
        for command in commands:
            if isinstance(command, Dispatch):
                self._given[command.client] = command
                self._dispatch(command)
            elif isinstance(command, Wake):
                self._remind(command.time, None)
            elif isinstance(command, Stop):
                return command
            # A node cannot be told of a Cancel: it finishes its task, and gets the next one only then.
        return None

    def _dispatch(self, task: Dispatch) -> None:
        place = self._place(task.client)
        node = place.node
        # If the node has just left, or was just put into quarantine, one of the server's next events says so. If it
        # still trains a cancelled task, this one waits.
        if node is None or self._gate.bars(place) or task.client in self._at_node:
            return
        self._at_node[task.client] = task
        parameters = self._server.versions[task.version]
        self._send(task, self._wire.task(task, parameters, self._work.asked(task), node, self._options.ttl))

    def _running(self, client: int) -> Dispatch | None:
        """The client's task for which the server waits."""
        task = self._given.get(client)
        return task if task is not None and task.task in self._server.running else None

    def _send(self, name: Hashable, message: Message) -> None:
        assert self._courier is not None  # it is started before any client is present
        self._courier.send(name, message)

    def _forget(self, name: Hashable) -> None:
        if self._courier is not None:
            self._courier.forget(name)

    def _remind(self, time: float, then: Callable[[], Event | None] | None) -> None:
        heappush(self._timers, (time, next(self._turn), then))

    def _clients(self, place: Place) -> range:
        """The clients of a node: one per task that it has at once."""
        queued = self._options.queued
        return range(place.number * queued, (place.number + 1) * queued)

    def _place(self, client: int) -> Place:
        return self._roster.holder(client // self._options.queued)
