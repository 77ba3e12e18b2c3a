"""A runtime that nothing keeps from being hostile: any event in any order, forged, replayed, broken or out of time."""

from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from math import inf, nan
from random import Random
from typing import Any

import numpy as np

from fairlag.core.state import State, take
from fairlag.core.types import (
    Arrived,
    Dispatch,
    Event,
    Failed,
    Joined,
    Left,
    Outcome,
    Report,
    Stop,
    Update,
    Wake,
    Woke,
)
from fairlag.errors import ProtocolError
from tests.support.scenes import vec
from tests.support.watched import Watched

FORGED: list[Any] = [-1, 10**9, True, False, None, "0", 0.0, 2**70]
"""Names of tasks that never were."""


class HostileEvents:
    """Sends events to a server; `faults` counts those that no honest runtime sends."""

    def __init__(self, server: Watched, clients: int, faults: Counter[str] | None = None) -> None:
        self.server, self.clients = server, clients
        self.time = 0.0
        self.pending: list[float] = []
        """When the server wants to be woken."""
        self.faults: Counter[str] = Counter() if faults is None else faults
        self.trace: deque[Event] = deque(maxlen=25)
        self.sent: Callable[[Update, Dispatch], Update] = lambda update, task: update
        """What a client makes of its update before it sends it."""

    def step(self, kind: int, pick: int, gap: float) -> None:
        """Makes one event; it is one of ten kinds, which picks one of the clients or tasks that it may concern."""
        server, clients = self.server, self.clients
        self.time += gap / 2
        due = [at for at in self.pending if at <= self.time]
        running, absent = sorted(server.live), sorted(set(range(clients)) - server.there)
        event: Event
        if due:
            self.pending.remove(min(due))
            event = Woke(self.time)
        elif kind == 0 and absent:
            event = Joined(self.time, absent[: 1 + pick % len(absent)])
        elif kind == 1 and server.there:
            event = Left(self.time, sorted(server.there)[pick % len(server.there)])
            self.faults["client left"] += 1
        elif kind == 2 and running:
            event = Failed(self.time, running[pick % len(running)], "broke", gone=pick % 3 == 0, refused=pick % 5 == 0)
            self.faults["task lost"] += 1
        elif kind == 3:
            event = self._forged(pick, len(running))
        elif kind == 4 and running:
            number = running[pick % len(running)]
            event = Arrived(self.time, number, broken(pick, self._size(number), self.faults))
        elif running:
            event = self._trained(running[pick % len(running)], pick)
        else:
            event = Joined(self.time, absent) if absent else Woke(self.time)
        self.trace.append(event)
        must_fail = kind == 4 and isinstance(event, Arrived) and server.stopped is None
        commands = server.handle(event)
        if must_fail and isinstance(event, Arrived):
            assert server.outcomes.get(event.task) == Outcome.REFUSED, f"{event} was admitted"
        if isinstance(event, Arrived) and isinstance(event.update.delta, np.ndarray):
            event.update.delta.view(np.uint8).fill(255)  # whoever sent it may use its memory for something else
        self.pending += [command.time for command in commands if isinstance(command, Wake)]
        if server.strategy.select.fresh and server.there and not server.live:
            assert self.pending or not server.pending, "all clients wait, and nothing wakes them"

    def _size(self, number: int) -> int:
        return self.server.versions[self.server.live[number].version].size

    def _trained(self, number: int, pick: int) -> Arrived:
        delta = np.resize(vec(pick % 7, -1), self._size(number))
        return Arrived(self.time, number, self.sent(Update(delta, Report(1 + pick % 5)), self.server.live[number]))

    def _forged(self, pick: int, running: int) -> Arrived:
        number: Any = pick % (len(self.server.outcomes) + running + 3) - 1
        if pick % 4 == 0:
            number = FORGED[pick // 4 % len(FORGED)]
        known = type(number) is int and number in self.server.outcomes
        self.faults["update replayed" if known else "task forged"] += number not in self.server.live
        return Arrived(self.time, number, Update(vec(1, 1)))

    def against_protocol(self, pick: int) -> None:
        """Sends what a runtime must never send: it is refused, and nothing changes."""
        server, time = self.server, self.time
        events: list[Event] = [Woke(-1.0), Woke(nan), Joined(time, [-1])]
        events += [Joined(time, [client]) for client in sorted(server.there)[:1]]
        events += [Left(time, client) for client in sorted(set(range(self.clients)) - server.there - server.over)[:1]]
        event = events[pick % len(events)]
        self.faults["clock jumped backwards" if isinstance(event, Woke) else "event against the protocol"] += 1
        self.trace.append(event)
        before = server.counts
        with suppress(ProtocolError):
            commands = server.handle(event)
            assert server.stopped is not None and not commands, f"{event} was accepted"
        assert server.counts == before


def broken(pick: int, size: int, faults: Counter[str]) -> Update:
    """An update that must be refused."""
    good = np.ones(size, np.float32)
    kinds: list[tuple[str, Update]] = [
        ("update not finite", Update(np.full(size, nan, np.float32))),
        ("update not finite", Update(np.concatenate([good[1:], vec(-inf)]))),
        ("update of the wrong shape", Update(np.ones(size + 1, np.float32))),
        ("update of the wrong shape", Update(np.ones((1, size), np.float32))),
        ("update of the wrong type", Update(np.ones(size, np.float64))),
        ("report not plausible", Update(good, Report(0))),
        ("report not plausible", Update(good, Report(1, 0))),
        ("report not plausible", Update(good, Report(1, 1, 1.0, nan))),
        ("report not plausible", Update(good, Report(-5))),
    ]
    name, update = kinds[pick % len(kinds)]
    faults[name] += 1
    return update


class HostileTimeline:
    """Hostile events as the timeline of a run: one part of it ends with each new version."""

    def __init__(self, events: HostileEvents, chance: Random, steps: int) -> None:
        self._events, self._chance, self._steps = events, chance, steps

    def proceed(self, events: int) -> Stop | None:
        server, chance = self._events.server, self._chance
        version = server.view.version
        while server.stopped is None and server.view.version == version:
            if not self._steps:
                return Stop("every step was made")
            self._steps -= 1
            gap: float = chance.choice([0, 1, 2])
            if chance.random() < 0.02:
                gap = 1e6
                self._events.faults["clock jumped forwards"] += 1
            if chance.random() < 0.04:
                self._events.against_protocol(chance.randrange(10**6))
            self._events.step(chance.randrange(10), chance.randrange(10**6), gap)
        return server.stopped

    def state(self) -> State:
        events = self._events
        return {"server": events.server.state(), "time": events.time, "pending": list(events.pending)}

    def restore(self, state: State) -> None:
        self._events.server.restore(take(state, "server", dict))
        self._events.server.agrees()
        self._events.time = take(state, "time", float)
        self._events.pending = take(state, "pending", list)
