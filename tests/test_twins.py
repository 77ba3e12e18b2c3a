"""Plain twins of the subtle algorithms, written from their definitions alone, live the same random lives as the code.

A twin knows every version and every client by plain lists and dictionaries, in float64, and looks at all of them at
every event. What it expects is compared after each event: who is given which version, steps and pace, which tasks are
called off, and the parameters.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import numpy as np
import pytest

from fairlag import zoo
from fairlag.core.server import Server
from fairlag.core.state import pack, unpack
from fairlag.core.strategy import Strategy
from fairlag.core.types import (
    Arrived,
    Cancel,
    Command,
    Dispatch,
    Event,
    Failed,
    Floats,
    Joined,
    Left,
    Report,
    Update,
    Wake,
)
from fairlag.core.types import Woke as Woken
from fairlag.core.vector import Vector
from tests.support.scenes import vec
from tests.support.states import exact
from tests.support.twins import outlier
from tests.support.watched import Watched

FIRST = vec(0.5, -1.0, 2.0)


class Order(NamedTuple):
    client: int
    version: int
    steps: int = 0
    pace: float = 1.0


class Came(NamedTuple):
    client: int
    version: int
    duration: float
    delta: Floats
    report: Report


class Twin:
    """What all of them do: everyone who is idle trains the newest version, every arrival makes the next."""

    def __init__(self) -> None:
        self.models: list[Floats] = [FIRST.astype(np.float64)]
        self.there: set[int] = set()
        self.idle: list[int] = []
        self.running: dict[int, tuple[int, int, float]] = {}
        """By task: the client, the version and when it began."""
        self.buffer: list[Came] = []
        self.examples: dict[int, int] = {}
        self.durations: dict[int, list[float]] = defaultdict(list)
        """Those of the tasks whose updates were merged."""
        self.time = self.renewed = 0.0
        self.woke = False
        self.orders: list[Order] = []
        self.called_off: list[int] = []
        self.parts: dict[int, float] = defaultdict(float)
        """What clients' own models are of each version, all versions added up, if the method keeps models."""

    @property
    def version(self) -> int:
        return len(self.models) - 1

    def share(self, client: int) -> float:
        return self.examples[client] / sum(self.examples.values())

    def usual(self, client: int) -> float:
        return sum(self.durations[client]) / len(self.durations[client])

    def handle(self, event: Event) -> None:
        self.time, self.orders, self.called_off = event.time, [], []
        self.woke = isinstance(event, Woken)
        match event:
            case Joined(_, clients):
                for client in clients:
                    self.there.add(client)
                    self.examples.setdefault(client, 1)
                    self.frees(client)
            case Left(_, client):
                self.there.remove(client)
                self.idle = [other for other in self.idle if other != client]
                self.called_off += [number for number, task in self.running.items() if task[0] == client]
                self.running = {number: task for number, task in self.running.items() if task[0] != client}
            case Failed(_, number, _, gone, _):
                if number in self.running:
                    client = self.running.pop(number)[0]
                    if gone:
                        self.there.remove(client)
                    else:
                        self.frees(client)
            case Arrived(_, number, update):
                if number in self.running:
                    self.arrived(*self.running.pop(number), update)
                else:
                    return
        self.advance()

    def arrived(self, client: int, version: int, began: float, update: Update) -> None:
        delta, report = update
        came = Came(client, version, self.time - began, delta.astype(np.float64), report)
        if np.isfinite(delta).all() and self.admits(came):
            self.examples[client] = report.examples
            self.buffer.append(came)
            self.sent(came)
        self.frees(client)

    def frees(self, client: int) -> None:
        self.idle.append(client)

    def admits(self, came: Came) -> bool:
        return True

    def sent(self, came: Came) -> None:
        """An update was admitted."""

    def advance(self) -> None:
        if self.buffer and self.ready():
            self.merge()
        self.pick()

    def ready(self) -> bool:
        return True

    def merge(self) -> None:
        for came in self.buffer:
            self.durations[came.client].append(came.duration)
        self.models.append(self.models[-1] + self.step())
        self.buffer, self.renewed = [], self.time

    def step(self) -> Floats:
        raise NotImplementedError

    def pick(self) -> None:
        self.orders += [self.order(client) for client in self.idle]
        self.idle = []

    def order(self, client: int) -> Order:
        return Order(client, self.version)

    def expects(self, commands: list[Command]) -> None:
        """Are these the commands that it expects?"""
        given = [command for command in commands if isinstance(command, Dispatch)]
        found = [(Order(task.client, task.version, task.steps, round(task.pace, 9))) for task in given]
        assert found == [order._replace(pace=round(order.pace, 9)) for order in self.orders]

    def follow(self, commands: list[Command], newest: Vector) -> None:
        """Compares, then goes on from what the server really has, so that rounding does not add up."""
        assert sorted(self.called_off) == sorted(each.task for each in commands if isinstance(each, Cancel))
        self.expects(commands)
        for command in commands:
            if isinstance(command, Dispatch):
                self.running[command.task] = command.client, command.version, command.time
        assert np.allclose(newest, self.models[-1], rtol=1e-5, atol=1e-5)
        self.models[-1] = newest.astype(np.float64)


def lives(strategy: Strategy, twin: Twin, seed: int, events: int = 220) -> Watched:
    """The server and its twin are told of the same random events."""
    random = Random(seed)
    clients = random.randint(2, 7)
    server = Watched(strategy, clients=clients, parameters=FIRST, seed=seed)
    asked: list[float] = []
    time = 0.0
    event: Event = Joined(0.0, [*range(random.randint(1, clients))])
    for _ in range(events):
        commands = server.handle(event)
        twin.handle(event)
        assert server.view.version == twin.version
        twin.follow(commands, server.versions.newest)
        if twin.parts:
            told = [twin.parts.get(client, 0.0) for client in range(len(server.view.weight_sums))]
            assert server.view.weight_sums.tolist() == pytest.approx(told, rel=1e-9, abs=1e-9)
        asked += [command.time for command in commands if isinstance(command, Wake)]
        later = time + random.choice([0.5, 1.0, random.expovariate(2.0)])
        if asked and min(asked) <= later:
            time = min(asked)
            asked.remove(time)
            event = Woken(time)
        else:
            time = later
            event = happens(server, random, time, clients)
    assert server.view.version > 5
    return server


def happens(server: Watched, random: Random, time: float, clients: int) -> Event:
    running, absent = sorted(server.live), sorted(set(range(clients)) - server.there)
    kind = random.random()
    if absent and (kind < 0.1 or not server.there):
        return Joined(time, random.sample(absent, random.randint(1, len(absent))))
    if kind < 0.18 and server.there:
        return Left(time, random.choice(sorted(server.there)))
    if not running:
        return Woken(time) if server.strategy.trigger.label != "every(1.5)" else Failed(time, -1, "nothing runs")
    number = random.choice(running) if random.random() < 0.5 else running[0]
    if kind < 0.23:
        return Failed(time, number, "broke", gone=random.random() < 0.3)
    if kind < 0.26:
        return Arrived(time, number - 1 if number - 1 not in running else 10**6, Update(vec(1, 1, 1)))
    if kind < 0.29:
        return Arrived(time, number, Update(vec(1, math.nan, 1)))
    delta = vec(*(random.gauss(0, 1) for _ in FIRST))
    loss = random.choice([random.random(), random.random(), random.random(), 5.0])
    return Arrived(time, number, Update(delta, Report(random.randint(1, 9), 1, 1.0, loss)))


# The methods that merge every arrival


class AsyncFedED(Twin):
    def __init__(self, max_gamma: float = math.inf) -> None:
        super().__init__()
        self.steps: dict[int, int] = {}
        self.max_gamma = max_gamma

    def gamma(self, came: Came) -> float:
        moved = self.models[-1] - self.models[came.version]
        return math.sqrt((moved**2).sum()) / math.sqrt((came.delta**2).sum())

    def admits(self, came: Came) -> bool:
        return self.gamma(came) <= self.max_gamma

    def step(self) -> Floats:
        (came,) = self.buffer
        gamma = self.gamma(came)
        self.steps[came.client] = max(1, self.steps.get(came.client, 3) + round((1.5 - gamma) * 2.0))
        return 0.8 / (gamma + 0.5) * came.delta

    def order(self, client: int) -> Order:
        return Order(client, self.version, self.steps.get(client, 3))


class AsoFed(Twin):
    def __init__(self) -> None:
        super().__init__()
        self.last: dict[int, Floats] = {}
        self.coefficients: list[tuple[int, float]] = []
        """Of all clients' models, one after another: what is added to the version for each, and taken away."""

    def step(self) -> Floats:
        (came,) = self.buffer
        new = self.models[came.version] + came.delta
        old = self.last.get(came.client, FIRST.astype(np.float64))
        self.coefficients.append((came.client, self.share(came.client)))
        if came.client in self.last:
            self.coefficients.append((came.client, -self.share(came.client)))
        for client, coefficient in self.coefficients:
            self.parts[client] += coefficient
        self.last[came.client] = new
        return -self.share(came.client) * (old - new)

    def order(self, client: int) -> Order:
        slow = math.log(self.usual(client)) if self.durations[client] else 0.0
        return Order(client, self.version, 0, max(1.0, slow))


class AsyncFedAvg(Twin):
    def __init__(self, cap: float = math.inf) -> None:
        super().__init__()
        self.cap = cap

    def step(self) -> Floats:
        (came,) = self.buffer
        rates = sum(1 / self.usual(client) for client, durations in self.durations.items() if durations)
        return 0.5 * min(rates * self.usual(came.client) * self.share(came.client), self.cap) * came.delta


class FedAsync(Twin):
    def admits(self, came: Came) -> bool:
        return self.version - came.version <= 6

    def step(self) -> Floats:
        (came,) = self.buffer
        late = self.version - came.version
        alpha = 0.7 * (1 if late <= 2 else 1 / (3 * (late - 2) + 1))
        model = (1 - alpha) * self.models[-1] + alpha * (self.models[came.version] + came.delta)
        return model - self.models[-1]


# FedFix


class FedFix(Twin):
    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[int] = []

    def ready(self) -> bool:
        return self.woke

    def frees(self, client: int) -> None:
        waits = any(came.client == client for came in self.buffer)
        (self.waiting if waits else self.idle).append(client)

    def handle(self, event: Event) -> None:
        if isinstance(event, Left) and event.client in self.waiting:
            self.waiting.remove(event.client)
        super().handle(event)

    def step(self) -> Floats:
        step = np.zeros(len(FIRST))
        for came in self.buffer:
            step += max(1, math.ceil(round(self.usual(came.client) / 1.5, 9))) / len(self.examples) * came.delta
        self.idle += self.waiting
        self.waiting = []
        return 0.5 * step


# SAFA


class Safa(Twin):
    def __init__(self, share: float, lag: int, deadline: float) -> None:
        super().__init__()
        self.share_wanted, self.lag, self.patience = share, lag, deadline
        self.has: dict[int, int] = {}
        self.cache: dict[int, Floats] = {}
        self.own: set[int] = set()
        """Whose entry of the cache is a model of its own."""
        self.picked_before: set[int] = set()
        self.deprecated: list[int] = []
        self.begins = True
        self.until = math.inf
        self.quota = 0

    def sent(self, came: Came) -> None:
        self.has.pop(came.client, None)

    def ready(self) -> bool:
        new = [came for came in self.buffer if came.client not in self.picked_before]
        return len(new) >= self.quota or not self.running or self.time >= self.until

    def step(self) -> Floats:
        first = [came for came in self.buffer if came.client not in self.picked_before]
        then = [came for came in self.buffer if came.client in self.picked_before]
        picked = (first + then)[: self.quota]
        unpicked = (first + then)[self.quota :]
        for client in self.deprecated:
            self.cache[client] = self.models[-1]
            self.own.discard(client)
        for came in picked:
            self.cache[came.client] = self.models[came.version] + came.delta
            self.own.add(came.client)
        mean = np.zeros(len(FIRST))
        for client in self.examples:
            mean += self.share(client) * self.cache.get(client, FIRST.astype(np.float64))
            self.parts[client] += self.share(client) * (client in self.own)
        for came in unpicked:
            self.cache[came.client] = self.models[came.version] + came.delta
            self.own.add(came.client)
        self.picked_before = {came.client for came in picked}
        self.begins = True
        return mean - self.models[-1]

    def pick(self) -> None:
        if self.begins:
            self.deprecated = []
            for number, (client, version, _) in list(self.running.items()):
                if version < self.version - self.lag:
                    self.called_off.append(number)
                    del self.running[number]
                    self.idle.append(client)
            if not (self.idle or self.running):
                return
            self.until = self.time + self.patience
            self.quota = math.ceil(round(self.share_wanted * len(self.examples), 9))
        elif self.running or self.buffer:
            return
        self.begins = False
        for client in self.idle:
            version = self.has.get(client, self.version)
            if version < self.version - self.lag:
                self.deprecated.append(client)
                version = self.version
            self.has[client] = version
            self.orders.append(Order(client, version))
        self.idle = []


# Pisces


class Pisces(Twin):
    def __init__(
        self, places: int, bound: float, window: int | None, credit: float = math.inf, unseen: float = 0.0
    ) -> None:
        super().__init__()
        self.credit: dict[int, float] = defaultdict(lambda: credit)
        self.past: list[Came] = []
        """All updates ever, in the order of arrival."""
        self.places, self.bound, self.window, self.unseen = places, bound, window, unseen
        self.losses: dict[int, float] = {}
        self.lateness: dict[int, list[int]] = defaultdict(list)
        self.wakes: set[float] = set()

    def sent(self, came: Came) -> None:
        self.losses[came.client] = came.report.loss
        self.past.append(came)

    @property
    def due(self) -> float:
        known = [self.usual(c) if self.durations[c] else self.unseen for c, _, _ in self.running.values()]
        return self.renewed + max(known, default=0.0) / self.bound

    def ready(self) -> bool:
        return self.time >= self.due

    def step(self) -> Floats:
        for came in self.buffer:
            self.lateness[came.client].append(self.version - came.version)
        for came in self.past[-len(self.buffer) :]:
            near = [other for other in self.past[-50:] if abs(other.version - came.version) <= 2]
            losses = [other.report.loss for other in near]
            place = [other is came for other in near].index(True)
            self.credit[came.client] -= len(losses) >= 5 and outlier(losses, place, 0.3, 5)
        step, examples = np.zeros(len(FIRST)), sum(came.report.examples for came in self.buffer)
        for came in self.buffer:
            step += came.report.examples / examples / math.sqrt(1 + self.version - came.version) * came.delta
        return step

    def utility(self, client: int) -> float:
        late = self.lateness[client][-self.window if self.window else 0 :]
        mean = sum(late) / len(late) if late else 0.0
        return self.examples[client] * self.losses[client] / math.sqrt(1 + mean)

    def pick(self) -> None:
        """Who goes is a matter of chance, so that only what must be so is foretold."""

    def expects(self, commands: list[Command]) -> None:
        given = [command for command in commands if isinstance(command, Dispatch)]
        unmerged = {came.client for came in self.buffer}
        worthy = [client for client in self.idle if self.credit[client] > 0 and client not in unmerged]
        assert len(given) == min(self.places - len(self.running), len(worthy))
        for task in given:
            assert task.client in worthy and task.version == self.version
            if task.client in self.losses:
                best = max(self.utility(client) for client in worthy if client in self.losses)
                assert self.utility(task.client) == pytest.approx(best, rel=1e-12)
            worthy.remove(task.client)
            self.idle.remove(task.client)
        self.explores([task.client not in self.losses for task in given], worthy)

    def explores(self, unseen: list[bool], left: list[int]) -> None:
        """Were those explored that had to be, given who was left?"""
        assert all(unseen) or all(client in self.losses for client in left), "the unseen go first"

    def follow(self, commands: list[Command], newest: Vector) -> None:
        super().follow(commands, newest)
        self.wakes |= {command.time for command in commands if isinstance(command, Wake)}
        assert not self.buffer or any(abs(at - self.due) < 1e-9 for at in self.wakes if at >= self.time)


class Shy(Pisces):
    """It never explores unless it must."""

    def explores(self, unseen: list[bool], left: list[int]) -> None:
        assert not any(unseen) or all(client not in self.losses for client in left)


class Curious(Pisces):
    """It explores at random."""

    def explores(self, unseen: list[bool], left: list[int]) -> None:
        """Whatever chance says."""


TWINS: dict[str, tuple[Callable[[], Strategy], Callable[[], Twin]]] = {
    "asyncfeded": (lambda: zoo.asyncfeded(factor=0.8, eps=0.5, target=1.5, gain=2.0, steps=3), AsyncFedED),
    "asyncfeded, refusing": (
        lambda: zoo.asyncfeded(factor=0.8, eps=0.5, target=1.5, gain=2.0, steps=3, max_gamma=1.2),
        lambda: AsyncFedED(1.2),
    ),
    "asofed": (zoo.asofed, AsoFed),
    "async_fedavg": (lambda: zoo.async_fedavg(lr=0.5, cap=None), AsyncFedAvg),
    "async_fedavg, capped": (lambda: zoo.async_fedavg(lr=0.5, cap=1.2), lambda: AsyncFedAvg(1.2)),
    "fedasync": (
        lambda: zoo.fedasync(alpha=0.7, staleness="hinge", slope=3.0, start=2.0, max_staleness=6),
        FedAsync,
    ),
    "fedfix": (lambda: zoo.fedfix(interval=1.5, importance="uniform", lr=0.5), FedFix),
    "safa": (lambda: zoo.safa(share=0.5, lag=2), lambda: Safa(0.5, 2, math.inf)),
    "safa, all": (lambda: zoo.safa(share=1.0, lag=0), lambda: Safa(1.0, 0, math.inf)),
    "safa, hurried": (lambda: zoo.safa(share=0.4, lag=1, deadline=3.0), lambda: Safa(0.4, 1, 3.0)),
    "pisces": (
        lambda: zoo.pisces(concurrency=3, staleness_bound=2.0, explore=1.0, decay=1.0, unseen=0.0),
        lambda: Pisces(3, 2.0, 5),
    ),
    "pisces, window": (
        lambda: zoo.pisces(concurrency=2, staleness_bound=0.7, window=2, explore=0.0, least=0.0, unseen=3.0),
        lambda: Shy(2, 0.7, 2, unseen=3.0),
    ),
    "pisces, suspicious": (
        lambda: zoo.pisces(concurrency=3, window=None, unseen=2.5, credit=4, nearby=2, reach=0.3),
        lambda: Curious(3, 3.0, None, 4, unseen=2.5),
    ),
}

MORE: dict[str, Callable[[], Strategy]] = {
    "fednova": lambda: zoo.fednova(cohort=3, over=0.5, deadline=4.0),
    "ringleader": zoo.ringleader,
    "fedcompass": lambda: zoo.fedcompass(min_steps=2, max_steps=6),
    "fedfa": lambda: zoo.fedfa(models=4),
    "fadas": lambda: zoo.fadas(buffer=2, lr=0.5),
    "malenia": zoo.malenia,
    "ringmaster": lambda: zoo.ringmaster(max_delay=3),
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", TWINS)
def test_the_code_does_what_its_twin_does(name: str, seed: int) -> None:
    strategy, twin = TWINS[name]
    lives(strategy(), twin(), seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", [*TWINS, *MORE])
def test_a_server_restored_in_the_middle_goes_on_alike(name: str, seed: int) -> None:
    made = MORE[name] if name in MORE else TWINS[name][0]
    random = Random(seed)
    server = Watched(made(), clients=6, parameters=FIRST, seed=seed)
    other = Server(made(), clients=6, parameters=FIRST, seed=seed)
    asked: list[float] = []
    event: Event = Joined(0.0, [0, 1, 2, 3])
    for number in range(150):
        commands = server.handle(event)
        if number:
            assert other.handle(event) == commands
            assert exact(other.state()) == exact(server.state())
        if random.random() < 0.2 or not number:
            arrays, text = pack(server.state())
            other = Server(made(), clients=6, parameters=FIRST, seed=seed)
            other.restore(unpack(arrays, text))
        asked += [command.time for command in commands if isinstance(command, Wake)]
        later = event.time + random.choice([0.5, 1.0])
        if asked and min(asked) <= later:
            event = Woken(min(asked))
            asked.remove(event.time)
        else:
            event = happens(server, random, later, 6)
    assert server.view.version > 5
