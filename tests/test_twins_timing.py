"""Plain twins of the newer methods whose timing is subtle, written from their definitions alone."""

import math
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from fairlag import zoo
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Event, Failed, Floats, Left, Row, Update
from fairlag.core.vector import Vector
from fairlag.execute.serial import Serial
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.rules import weigh
from fairlag.rules.local import Local
from fairlag.runtime import virtual
from tests.support.learning import data, first
from tests.test_twins import Came, Order, Twin, lives
from tests.test_twins_memory import LR, PLACES, PLAN, STEPS, cross_entropy


class Ringmaster(Twin):
    """Every arrival is added; a task that is so many versions behind begins anew."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def step(self) -> Floats:
        (came,) = self.buffer
        return 0.5 * came.delta

    def pick(self) -> None:
        for number, (client, version, _) in list(self.running.items()):
            if self.version - version >= self.most:
                self.called_off.append(number)
                del self.running[number]
                self.idle.append(client)
        super().pick()


class Malenia(Twin):
    """The mean of the means of everyone that is there, from the newest version alone."""

    def admits(self, came: Came) -> bool:
        return came.version == self.version

    def ready(self) -> bool:
        return self.there <= {came.client for came in self.buffer}

    def step(self) -> Floats:
        sent: dict[int, list[Floats]] = defaultdict(list)
        for came in self.buffer:
            sent[came.client].append(came.delta)
        total = np.zeros(3)
        for deltas in sent.values():
            total += sum(deltas) / len(deltas)
        return total / len(sent)


class Ringleader(Twin):
    """Phase 1 fills a table, phase 2 makes one step for each client in it."""

    def __init__(self) -> None:
        super().__init__()
        self.table: dict[int, list[Floats]] = {}
        self.later: list[tuple[int, Floats]] = []
        self.to_serve: set[int] = set()
        self.newest: tuple[int, Floats] | None = None

    def sent(self, came: Came) -> None:
        self.buffer.clear()
        if came.client in self.to_serve:
            self.newest = came.client, came.delta
        else:
            self.later.append((came.client, came.delta))

    def handle(self, event: Event) -> None:
        gone = {event.client} if isinstance(event, Left) else set[int]()
        if isinstance(event, Failed) and event.gone and event.task in self.running:
            gone = {self.running[event.task][0]}
        self.to_serve -= gone
        super().handle(event)

    def advance(self) -> None:
        if self.newest is not None:
            client, delta = self.newest
            self.table[client].append(delta)
            self.to_serve.remove(client)
            self.newest = None
            self.steps()
        elif not self.to_serve and self.later and self.there <= {client for client, _ in self.later}:
            self.table = {}
            for client, delta in self.later:
                self.table.setdefault(client, []).append(delta)
            self.to_serve = (set(self.table) & self.there) - {self.later[-1][0]}
            self.later = []
            self.steps()
        self.pick()

    def steps(self) -> None:
        mean = np.zeros(3)
        for client, deltas in self.table.items():
            mean += sum(deltas) / len(deltas) / len(self.table)
            self.parts[client] += 1 / len(self.table)
        self.models.append(self.models[-1] + 0.5 * mean)


class Appointment:
    """A group of clients that should arrive together."""

    def __init__(self, expected: float, latest: float) -> None:
        self.expected, self.latest = expected, latest
        self.out: set[int] = set()
        self.back: list[Came] = []


class FedCompass(Twin):
    LEAST, MOST, MOMENTUM, SLACK = 2, 6, 0.7, 1.2

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[int, float] = {}
        self.meetings: list[Appointment] = []
        self.meets: dict[int, Appointment | None] = {}
        """Per client: whom it was to meet with its last task; None if that was its first."""
        self.made: dict[int, int] = {}
        self.waiting: dict[int, Appointment] = {}
        self.late: list[Came] = []

    def handle(self, event: Event) -> None:
        gone = event.client if isinstance(event, Left) else None
        if isinstance(event, Failed) and event.gone and event.task in self.running:
            gone = self.running[event.task][0]
        if gone is not None:
            self.waiting.pop(gone, None)
            self.misses(gone)
        super().handle(event)

    def misses(self, client: int) -> None:
        meeting = self.meets.get(client)
        if meeting is not None:
            meeting.out.discard(client)

    def arrived(self, client: int, version: int, began: float, update: Update) -> None:
        delta, report = update
        if not np.isfinite(delta).all():
            self.frees(client)
            return
        self.examples[client] = report.examples
        seconds = max(self.time - began, 1e-9) / self.made[client]
        old = self.seconds.get(client)
        self.seconds[client] = seconds if old is None else (1 - self.MOMENTUM) * old + self.MOMENTUM * seconds
        came = Came(client, version, self.time - began, delta.astype(np.float64), report)
        meeting = self.meets[client]
        if meeting is None:
            self.idle.append(client)
            self.mixes([came])
        elif meeting in self.meetings and self.time <= meeting.latest:
            meeting.out.remove(client)
            meeting.back.append(came)
            self.waiting[client] = meeting
        else:
            self.frees(client)
            self.late.append(came)

    def frees(self, client: int) -> None:
        self.misses(client)
        self.idle.append(client)

    def mixes(self, came: list[Came]) -> None:
        model, shares = np.zeros(3), 0.0
        for each in came:
            alpha = 0.8 / math.sqrt(1 + self.version - each.version) / len(self.examples)
            model += alpha * (self.models[each.version] + each.delta)
            shares += alpha
        self.models.append((1 - shares) * self.models[-1] + model)
        self.idle.sort(key=lambda client: (self.seconds.get(client, 0.0), client))

    def advance(self) -> None:
        due = [each for each in self.meetings if each.back and (not each.out or self.time >= each.latest)]
        self.meetings = [each for each in self.meetings if each not in due and (each.out or each.back)]
        for client in [client for client, meeting in self.waiting.items() if meeting in due]:
            del self.waiting[client]
            self.idle.append(client)
        if due:
            self.mixes([came for each in due for came in each.back] + self.late)
            self.late = []
        self.pick()

    def order(self, client: int) -> Order:
        if client not in self.seconds:
            self.meets[client], self.made[client] = None, self.MOST
        else:
            self.makes_an_appointment(client, self.seconds[client])
        return Order(client, self.version, self.made[client])

    def makes_an_appointment(self, client: int, seconds: float) -> None:
        best, chosen = 0, None
        for meeting in self.meetings:
            steps = math.floor(round((meeting.expected - self.time) / seconds, 9))
            if self.LEAST <= steps <= self.MOST and steps >= best:
                best, chosen = steps, meeting
        if chosen is None:
            best = self.steps_alone(seconds)
            chosen = Appointment(self.time + best * seconds, self.time + self.SLACK * best * seconds)
            self.meetings.append(chosen)
        chosen.out.add(client)
        self.meets[client], self.made[client] = chosen, best

    def steps_alone(self, seconds: float) -> int:
        possible = []
        for meeting in self.meetings:
            if self.time < meeting.latest:
                members = meeting.out | {came.client for came in meeting.back}
                again = meeting.latest + self.MOST * min(self.seconds[member] for member in members)
                steps = math.floor(round((again - self.time) / seconds, 9))
                if steps <= self.MOST:
                    possible.append(steps)
        return max(self.LEAST, *possible) if possible else self.MOST


TWINS: dict[str, tuple[Callable[[], Strategy], Callable[[], Twin]]] = {
    "ringmaster, 1": (lambda: zoo.ringmaster(max_delay=1, lr=0.5), lambda: Ringmaster(1)),
    "ringmaster, 4": (lambda: zoo.ringmaster(max_delay=4, lr=0.5), lambda: Ringmaster(4)),
    "malenia": (zoo.malenia, Malenia),
    "ringleader": (lambda: zoo.ringleader(lr=0.5), Ringleader),
    "fedcompass": (
        lambda: zoo.fedcompass(min_steps=2, max_steps=6, momentum=0.7, slack=1.2, alpha=0.8),
        FedCompass,
    ),
}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", TWINS)
def test_the_code_does_what_its_twin_does(name: str, seed: int) -> None:
    strategy, twin = TWINS[name]
    lives(strategy(), twin(), seed)


# q-FedAvg: every batch is the whole of a client's data, so that its gradients need no random numbers


def qfedavg_by_hand(rows: list[Aggregation], w: Floats, q: float) -> Floats:
    """Clients report F at the model that they get; w ← w − Σ F^q g / Σ (q F^(q−1) ‖g‖² + F^q / η), g = −Δ/η."""
    for row in rows:
        top, bottom = np.zeros(len(w)), 0.0
        for task in row.tasks:
            x, (before, _) = w, cross_entropy(w, task.client)
            for _ in range(STEPS):
                x = x - LR * cross_entropy(x, task.client)[1]
            g = (w - x) / LR
            top += before**q * g
            bottom += q * before ** (q - 1) * (g @ g) + before**q / LR
        w = w - top / bottom
    return w


def trained_rounds(strategy: Strategy) -> tuple[Vector, list[Aggregation]]:
    records = list[Row]()
    server = Server(strategy, clients=3, parameters=first(PLAN), aggregations=15, record=records.append)
    with closing(Serial(PLAN, data(), PLACES)) as executor:
        executor.begin(0, PLACES, strategy.local)
        virtual.run(server, Fleet([Group("all", 3, parse("uniform(1, 2)"))], seed=0), executor)
    return server.versions.newest, [row for row in records if isinstance(row, Aggregation)]


@pytest.mark.parametrize("q", [0.5, 1.0, 5.0])
def test_qfedavg_trains_as_its_twin(q: float) -> None:
    """The twin finds the difference between the loss before and while training: 1e-3 and more, here at most 1e-5."""
    found, rows = trained_rounds(zoo.qfedavg(q=q, local_lr=LR, cohort=2))
    start = first(PLAN).astype(np.float64)
    assert np.allclose(found, qfedavg_by_hand(rows, start, q), rtol=1e-4, atol=1e-5)
    while_training, _ = trained_rounds(replace(zoo.qfedavg(q=q, local_lr=LR, cohort=2), local=Local(losses=True)))
    assert not np.allclose(while_training, qfedavg_by_hand(rows, start, q), rtol=1e-3, atol=1e-4)


def test_qfedavg_with_q_0_trains_as_fedavg_with_equal_weights_bit_for_bit() -> None:
    plain, _ = trained_rounds(replace(zoo.fedavg(cohort=2), weigh=weigh.uniform))
    assert trained_rounds(zoo.qfedavg(q=0.0, local_lr=LR, cohort=2))[0].tobytes() == plain.tobytes()
