"""A server that checks at every event what must always be true, and an executor whose updates may be faulty."""

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from math import inf
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
)
from fairlag.core.vector import Layout, Vector
from fairlag.execute.nothing import Nothing
from fairlag.rules import select, weigh
from fairlag.rules.rule import provenance
from tests.support.history import History
from tests.support.remade import Memory, Remade


class Computes(Nothing):
    """An executor whose updates depend only on the task and the parameters; a share of them is faulty."""

    def __init__(self, faults: float = 0.0) -> None:
        super().__init__()
        self.faults = faults
        self.open: dict[int, Vector] = {}

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        assert task.task not in self.open
        self.open[task.task] = parameters

    def result(self, task: Dispatch) -> Update:
        parameters = self.open.pop(task.task)  # fails if a result is requested twice, or after it was discarded
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

    def __init__(
        self, strategy: Strategy, *, clients: int, record: Callable[[Row], None] | None = None, **options: Any
    ) -> None:
        self.log: list[Aggregation | Ended | Dispatch] = []
        self.seen: list[Row] = []
        self.attending: set[int] = set()
        """The clients that are present according to the records."""
        self.live: dict[int, Dispatch] = {}
        self.pending: list[Dispatch] = []
        self.there: set[int] = set()
        self.outcomes: dict[int, Outcome] = {}
        self.ends: Counter[str] = Counter()
        self.trained: dict[int, int] = {}
        """The version that a client's last admitted update was trained from."""
        self.given: Counter[int] = Counter()
        self.over: set[int] = set()
        """The clients whose privacy budgets are spent."""
        self.newest = 0
        self.account = np.zeros(clients)
        self.units = np.zeros(clients)
        self.lateness = np.zeros(clients, np.int64)
        self.merges = np.zeros(clients, np.int64)
        self.bytes: dict[int, bytes] = {}
        self.unmatched = 0
        self.known = History(clients, options.get("examples"))
        self.model = np.empty(0, np.float32)
        self.state_of_rule: tuple[tuple[Any, ...], Memory] = (), {}
        self._books = tuple(name for name in vars(self) if name != "seen")
        self._tell = record
        self.made: list[Vector] = []
        """The versions that an event made."""
        self.expects: Callable[[Arrived], None] = lambda event: None
        """Is shown each update that is admitted."""
        self.unmasked: dict[int, Vector] = {}
        """If updates are masked: what is behind those that were sent, by task."""
        super().__init__(strategy, clients=clients, record=self.seen.append, **options)
        self.on_version = lambda version, time, parameters: self.made.append(parameters)
        layout = options.get("layout") or Layout(("parameters",), (self.versions.newest.shape,))
        self.layout, self.masked = layout, options.get("secure") is not None
        self.remade = Remade(strategy, layout, options.get("privacy"))
        self.model = self.versions.newest
        self.state_of_rule = self.remade.begun(self.model)
        made = provenance(strategy.select.start)
        self._selects = None if made is None else made.make

    def remembered(self) -> dict[str, Any]:
        """The watcher's own books, to be recalled when the server is restored to this moment."""
        return {name: copy(getattr(self, name)) for name in self._books}

    def recall(self, books: dict[str, Any]) -> None:
        """Continues with the books of an earlier moment, whatever the server itself remembers of it."""
        for name, each in books.items():
            setattr(self, name, copy(each))

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
        if self._tell is not None:
            for record in self.seen:
                self._tell(record)
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
        self.agrees()
        return commands

    def _follow(self, event: Event) -> None:
        """Follows what the event alone changes."""
        match event:
            case Joined(_, clients):
                self.there |= set(clients)
                self._first_seen(clients)
            case Left(_, client):
                self.there.remove(client)
            case Failed(_, number, _, True, _) if number in self.live:
                self.there.remove(self.live[number].client)
            case Arrived(_, number, _):
                task = self.live.get(number) if type(number) is int else None
                first = self.seen[0] if self.seen else None
                if task is None:
                    self.unmatched += 1
                elif isinstance(first, Ended) and first.outcome is Outcome.REFUSED:
                    rule = self.strategy.admit is not None or self.masked
                    assert rule or not self._is_sound(event.update), f"a sound update was refused: {first.reason}"
                else:
                    assert self.masked or self._is_sound(event.update), "an update that is not sound was admitted"
                    self.pending.append(self.live.pop(number))
                    self.trained[task.client] = task.version
                    self._admitted(task, event)

    def _first_seen(self, clients: Sequence[int]) -> None:
        known = self.known
        for client in clients:
            known.examples[client] = known.examples[client] or known.first[client]

    def _admitted(self, task: Dispatch, event: Arrived) -> None:
        self.expects(event)
        update = event.update if not self.masked else Update(self.unmasked.pop(task.task), event.update.report)
        report = event.update.report
        if self._privacy is not None and self._privacy.noise:
            report = Report(self.known.examples[task.client])
        self.known.admitted(task, self.remade.kept(update), report, event.time)

    def _is_sound(self, update: Update) -> bool:
        """Is it an update of this model, with a report that can be true?"""
        delta, report, size = update.delta, update.report, self.versions.newest.size
        if delta.dtype != np.float32 or delta.shape != (size,) or not np.isfinite(delta).all():
            return False
        if any(delta[place].min(initial=0.0) < 0 for place in self.layout.variances):
            return False
        return report.examples >= 1 and report.steps >= 1 and 0 < report.effort < inf and 0 <= report.loss < inf

    def _attended(self, record: Presence, event: Event) -> None:
        assert record.time == event.time and record.version == self.newest and record.clients
        assert self.attending.isdisjoint(record.clients) if record.present else self.attending >= set(record.clients)
        self.attending ^= set(record.clients)

    def _merged(self, record: Aggregation, event: Event) -> None:
        assert record.version == self.newest + 1 and record.time == event.time
        merged = [task for task in self.pending if task in record.tasks]
        self.pending = [task for task in self.pending if task not in record.tasks]
        assert record.tasks == tuple(merged), "an aggregation merges the buffer in the order of arrival"
        assert merged and (self.strategy.select.holds or not self.pending)
        assert record.staleness.tolist() == [self.newest - task.version for task in merged]
        assert (record.staleness >= 0).all()
        assert record.weights.shape == (len(merged),) and np.isfinite(record.weights).all()
        waited = self.known.waiting
        assert list(record.arrivals) == [waited[task.task][2] for task in merged], "an arrival time is not what it was"
        updates, reports = [], list[Report]()
        for task, late, weight in zip(merged, record.staleness, record.weights, strict=True):
            self._conclude(task, Outcome.AGGREGATED)
            update, report = self.known.merged(task, int(late))
            updates.append(update)
            reports.append(report)
            self.account[task.client] += weight * (record.parts is None)
            self.lateness[task.client] += late
            self.merges[task.client] += 1
        if self.strategy.weigh is weigh.by_examples and not record.refused:
            held = np.array([report.examples for report in reports])
            assert np.allclose(record.weights, held / held.sum()), "the weights are not the shares of the examples"
        if record.parts is not None:  # every client has a part in every version
            clients, changes, unit = record.parts
            assert len(set(clients.tolist())) == len(clients) and np.isfinite(changes).all()
            self.units[clients] += changes
            self.account += self.units * unit
        self.newest += 1
        after = self.made.pop(0)
        if self.remade.applies:
            self.state_of_rule = self.remade.check(
                record,
                updates,
                reports,
                (self.model, self.state_of_rule),
                after,
                sum(map(bool, self.known.examples)),
                lambda version: np.frombuffer(self.bytes[version], np.float32),
            )
        self.model = after

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
        if not task.ordinal:
            self.known.since[client] = event.time
        self.given[client] += 1
        self.live[task.task] = task
        self.log.append(task)

    def agrees(self) -> None:
        """What the server says about itself agrees with the watcher."""
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
        self.known.agrees(self._ledger)
        if (window := self.strategy.window) and self.known.received:
            clients = np.array([client for client, late in enumerate(self.known.late) if late])
            means = [np.mean(late[-window:]) for late in self.known.late if late]
            assert np.allclose(self.view.mean_staleness(clients, window), means)
        self._nobody_is_forgotten()
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

    def _nobody_is_forgotten(self) -> None:
        """A present client has a task, or there is a reason why it has none; late tasks are called off."""
        if self.stopped is not None or self._budgets is not None:
            return
        delay, busy = self.strategy.select.delay, {task.client for task in self.live.values()}
        assert delay is None or all(task.version > self.newest - delay for task in self.live.values()), "not called off"
        sent = {task.client for task in self.pending}
        idle = self.there - busy
        if self.strategy.select.fresh:
            idle = {client for client in idle if self.trained.get(client) != self.newest}
        match self._selects:
            case select.all_idle:
                assert not idle, f"clients {idle} have no task"
            case select.once_merged:
                assert idle <= sent, f"clients {idle - sent} have no task"
            case select.concurrency:
                assert not idle or len(busy) >= (self.strategy.select.places or 0), f"clients {idle} have no task"
            case select.cohort:
                assert busy or sent or not idle, f"clients {idle} have no task"
