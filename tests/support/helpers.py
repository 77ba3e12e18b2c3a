"""What tests share: a server driven by hand, a server that is watched while it runs, and executors that compute."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fairlag.core import seeds
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import (
    Aggregation,
    Arrived,
    Cancel,
    Command,
    Dispatch,
    Ended,
    Event,
    Failed,
    Joined,
    Left,
    Outcome,
    Presence,
    Report,
    Row,
    Stop,
    Update,
    Wake,
    Woke,
)
from fairlag.core.vector import EMPTY, Layout, Vector
from fairlag.execute.nothing import Nothing
from fairlag.zoo import ALGORITHMS

DELAYS = [
    "constant(2)",
    "uniform(1, 3)",
    "normal(10, 2)",
    "exponential(4)",
    "lognormal(3, 1)",
    "gamma(2, 2)",
    "pareto(1, 1.5)",
    "mixture(0.9, uniform(1, 2), 0.1, 30)",
    "scaled(0.1, uniform(1, 2))",
    "empirical(1, 1.5, 4)",
]
"""One of every kind that needs no file."""


def vec(*values: float) -> Vector:
    """A float32 vector."""
    return np.array(values, np.float32)


def handed(commands: Sequence[Command]) -> list[tuple[int, int]]:
    """The (client, version) of every Dispatch."""
    return [(command.client, command.version) for command in commands if isinstance(command, Dispatch)]


def wakes(commands: Sequence[Command]) -> list[float]:
    """The time of every Wake."""
    return [command.time for command in commands if isinstance(command, Wake)]


def cancelled(commands: Sequence[Command]) -> list[int]:
    """The task of every Cancel."""
    return [command.task for command in commands if isinstance(command, Cancel)]


def small(name: str, size: int = 2, **options: Any) -> dict[str, Any]:
    """An algorithm of the zoo as an experiment names it, its sizes shrunk to a small fleet, and only its sizes."""
    known = ALGORITHMS[name].parameters
    sizes = {each: size for each in ("buffer", "cohort", "concurrency") if each in known and known[each].default}
    return {"use": name, **sizes, **options}


class Scene:
    """A server driven by hand, one method an event; `at` is its time, by default a second after the one before."""

    def __init__(
        self,
        strategy: Strategy,
        clients: int,
        *,
        parameters: Vector = EMPTY,
        layout: Layout | None = None,
        join: bool = True,
        aggregations: int | None = None,
        until_time: float | None = None,
        seed: int = 0,
        examples: Sequence[int] | None = None,
    ) -> None:
        self.records: list[Row] = []
        self.server = Server(
            strategy,
            clients=clients,
            parameters=parameters,
            layout=layout,
            aggregations=aggregations,
            until_time=until_time,
            seed=seed,
            examples=None if examples is None else np.array(examples),
            record=self.records.append,
        )
        self.time = -1.0
        self.tasks: dict[int, Dispatch] = {}
        """The last task of each client."""
        self.first = self.join(*range(clients), at=0.0) if join else []

    def send(self, event: Event) -> list[Command]:
        self.time = event.time
        commands = self.server.handle(event)
        self.tasks |= {command.client: command for command in commands if isinstance(command, Dispatch)}
        return commands

    def _at(self, at: float | None) -> float:
        return self.time + 1 if at is None else at

    def join(self, *clients: int, at: float | None = None) -> list[Command]:
        return self.send(Joined(self._at(at), clients))

    def leave(self, client: int, at: float | None = None) -> list[Command]:
        return self.send(Left(self._at(at), client))

    def arrive(
        self,
        client: int,
        *delta: float,
        examples: int = 1,
        steps: int = 1,
        effort: float = 1.0,
        loss: float = 0.0,
        at: float | None = None,
    ) -> list[Command]:
        """The update of the client's last task; where none is given, the client's own unit vector."""
        size = self.server.versions.newest.size
        values = vec(*delta) if delta else np.eye(size, dtype=np.float32)[client] if size else EMPTY
        update = Update(values, Report(examples, steps, effort, loss))
        return self.send(Arrived(self._at(at), self.tasks[client].task, update))

    def fail(self, client: int, reason: str = "out of memory", at: float | None = None) -> list[Command]:
        return self.send(Failed(self._at(at), self.tasks[client].task, reason))

    def wake(self, at: float) -> list[Command]:
        return self.send(Woke(at))

    @property
    def merged(self) -> list[Aggregation]:
        return [record for record in self.records if isinstance(record, Aggregation)]

    @property
    def ended(self) -> list[Ended]:
        return [record for record in self.records if isinstance(record, Ended)]

    @property
    def weights(self) -> list[list[float]]:
        """The weights of every aggregation so far."""
        return [record.weights.tolist() for record in self.merged]

    @property
    def parameters(self) -> list[float]:
        values: list[float] = self.server.versions.newest.tolist()
        return values


def one_late(strategy: Strategy) -> Scene:
    """Three clients, a buffer of two, an event every second; client 2 is late.

    version  time  merged (client, trained from, staleness)
    1        2     (0, 0, 0), (1, 0, 0)
    2        4     (0, 1, 0), (1, 1, 0)
    3        6     (2, 0, 2), (0, 2, 0)
    4        8     (2, 2, 1), (1, 2, 1)
    5        10    (2, 3, 1), (0, 3, 1)

    Client i always sends the unit vector i, so the parameters are the total weight of each client.
    """
    scene = Scene(strategy, 3, parameters=vec(0, 0, 0))
    for client in (0, 1, 0, 1, 2, 0, 2, 1, 2, 0):
        scene.arrive(client)
    return scene


class Computes(Nothing):
    """An executor whose updates depend on the task and the parameters alone; a share of them is faulty."""

    def __init__(self, faults: float = 0.0) -> None:
        super().__init__()
        self.faults = faults
        self.open: dict[int, Vector] = {}

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        assert task.task not in self.open
        self.open[task.task] = parameters

    def result(self, task: Dispatch) -> Update:
        parameters = self.open.pop(task.task)  # fails where a result is asked for twice, or after its discard
        stream = seeds.key("computes", task.client)
        delta = seeds.uniforms(stream, 100 * task.ordinal, parameters.size).astype(np.float32) - 0.1 * parameters
        fault = int(seeds.uniform(seeds.key("fault", task.client), task.ordinal) / max(self.faults, 1e-9) * 4)
        broken = [
            Update(np.full(parameters.size, np.nan, np.float32)),
            Update(np.zeros(parameters.size + 1, np.float32)),
            Update(np.zeros(parameters.size, np.float64)),
            Update(delta, Report(0)),
        ]
        odd = seeds.uniform(seeds.key("loss", task.client), task.ordinal)
        report = Report(1 + task.client, 1 + task.ordinal % 3, 1.0 + task.ordinal % 3, 9.0 if odd < 0.1 else odd)
        return broken[fault] if fault < 4 else Update(delta, report)

    def discard(self, number: int) -> None:
        del self.open[number]


class Watched(Server):
    """A server that checks, at every event and against its own bookkeeping, what DESIGN.md says is always true."""

    def __init__(self, strategy: Strategy, *, clients: int, **options: Any) -> None:
        self.log: list[Aggregation | Ended | Dispatch] = []
        self.seen: list[Row] = []
        self.attending: set[int] = set()
        """Who is there according to the records."""
        self.live: dict[int, Dispatch] = {}
        self.pending: list[Dispatch] = []
        self.there: set[int] = set()
        self.outcomes: dict[int, Outcome] = {}
        self.ends: Counter[str] = Counter()
        self.trained: dict[int, int] = {}
        """The version that a client's last admitted update was trained from."""
        self.given: Counter[int] = Counter()
        self.newest = 0
        self.account = np.zeros(clients)
        self.units = np.zeros(clients)
        self.lateness = np.zeros(clients, np.int64)
        self.merges = np.zeros(clients, np.int64)
        self.bytes: dict[int, bytes] = {}
        self.unmatched = 0
        super().__init__(strategy, clients=clients, record=self.seen.append, **options)

    def handle(self, event: Event) -> list[Command]:
        stopped = self.stopped
        commands = super().handle(event)
        if stopped is not None:
            assert not commands and not self.seen
            return commands
        self._follow(event)
        allowed: set[int] = set()
        for record in self.seen:
            if isinstance(record, Presence):
                self._attended(record, event)
                continue
            if isinstance(record, Aggregation):
                self._merged(record, event)
            else:
                self._over(record, event, allowed)
            self.log.append(record)
        self.seen.clear()
        for place, command in enumerate(commands):
            match command:
                case Dispatch():
                    self._given(command, event)
                case Cancel(task):
                    allowed.remove(task)
                case Wake(time):
                    assert time >= event.time
                case Stop():
                    assert place == len(commands) - 1
        assert not allowed, "a task was lost or cancelled without telling the runtime"
        self._agrees()
        return commands

    def _follow(self, event: Event) -> None:
        """What the event says by itself."""
        match event:
            case Joined(_, clients):
                self.there |= set(clients)
            case Left(_, client):
                self.there.remove(client)
            case Failed(_, number, _, True, _) if number in self.live:
                self.there.remove(self.live[number].client)
            case Arrived(_, number, _):
                task = self.live.get(number)
                first = self.seen[0] if self.seen else None
                if task is None:
                    self.unmatched += 1
                elif not (isinstance(first, Ended) and first.outcome is Outcome.REFUSED):
                    self.pending.append(self.live.pop(number))
                    self.trained[task.client] = task.version

    def _attended(self, record: Presence, event: Event) -> None:
        assert record.time == event.time and record.version == self.newest and record.clients
        assert self.attending.isdisjoint(record.clients) if record.present else self.attending >= set(record.clients)
        self.attending ^= set(record.clients)

    def _merged(self, record: Aggregation, event: Event) -> None:
        assert record.version == self.newest + 1 and record.time == event.time
        assert record.tasks == tuple(self.pending), "an aggregation merges the buffer in the order of arrival"
        assert record.staleness.tolist() == [self.newest - task.version for task in self.pending]
        assert (record.staleness >= 0).all()
        assert record.weights.shape == (len(self.pending),) and np.isfinite(record.weights).all()
        for task, late, weight in zip(self.pending, record.staleness, record.weights, strict=True):
            self._conclude(task, Outcome.AGGREGATED)
            self.account[task.client] += weight * (record.parts is None)
            self.lateness[task.client] += late
            self.merges[task.client] += 1
        if record.parts is not None:  # every client is looked at in every version: what its part of it is
            clients, changes, unit = record.parts
            assert len(set(clients.tolist())) == len(clients) and np.isfinite(changes).all()
            self.units[clients] += changes
            self.account += self.units * unit
        self.pending = []
        self.newest += 1

    def _over(self, record: Ended, event: Event, allowed: set[int]) -> None:
        assert record.task == self.live.pop(record.task.task) and record.time == event.time and record.reason
        self._conclude(record.task, record.outcome)
        if record.outcome is Outcome.CANCELLED or isinstance(event, Left):
            allowed.add(record.task.task)

    def _conclude(self, task: Dispatch, outcome: Outcome) -> None:
        assert task.task not in self.outcomes, "a task ended twice"
        self.outcomes[task.task] = outcome
        self.ends[outcome.value] += 1

    def _given(self, task: Dispatch, event: Event) -> None:
        client = task.client
        assert client in self.there, "an absent client was given a task"
        assert client not in {other.client for other in self.live.values()}, "a client got a second task"
        assert not self.strategy.select.fresh or self.trained.get(client) != task.version, "not a fresh version"
        assert self.newest - self.strategy.select.lag <= task.version <= self.newest
        assert (task.task, task.ordinal) == (sum(self.given.values()), self.given[client])
        assert task.time == event.time and task.steps >= 0 and task.pace > 0
        self.given[client] += 1
        self.live[task.task] = task
        self.log.append(task)

    def _agrees(self) -> None:
        """The server's account of itself is the watcher's."""
        assert self.counts == {
            "dispatched": sum(self.given.values()),
            **{outcome.value: self.ends[outcome.value] for outcome in Outcome},
            "running": len(self.live),
            "buffered": len(self.pending),
        }
        assert self.counts["dispatched"] == sum(self.counts.values()) - self.counts["dispatched"]
        assert sum(self.refusals.values()) == self.ends["refused"] + self.unmatched
        assert self.view.version == self.newest and self.attending == self.there
        expected = self.account[: len(self.view.weight_sums)].tolist()
        same = expected if not self.units.any() else pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert self.view.weight_sums.tolist() == same
        assert self.view.staleness_sums.tolist() == self.lateness[: len(self.view.staleness_sums)].tolist()
        assert self.view.update_counts.tolist() == self.merges[: len(self.view.update_counts)].tolist()
        if (accounts := self._ledger.accounts) is not None:
            assert accounts.balances.min() >= -1e-9, "a client spent more than it earned"
            assert abs(self.view.earned.sum() + accounts.kept - self.newest) <= 1e-9 * (1 + self.newest)
        held = {task.version for task in (*self.live.values(), *self.pending)}
        recent = range(max(self.newest - self.strategy.select.lag, 0), self.newest + 1)
        assert sorted(self.versions.kept) == sorted({*held, *recent})
        assert self.versions.newest is self.versions[self.newest]
        for version in self.versions.kept:
            parameters = self.versions[version]
            assert not parameters.flags.writeable
            assert self.bytes.setdefault(version, parameters.tobytes()) == parameters.tobytes(), "a version changed"
