"""The server: a pure state machine, events in, commands out. It owns no clock, no thread, no socket, no training."""

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from fairlag import seeds
from fairlag.buffer import Buffer
from fairlag.errors import DivergedError, FairlagError, InputError, ProtocolError, StrategyError
from fairlag.ledger import Ledger
from fairlag.rules.admit import well_formed
from fairlag.rules.rule import failure, traits
from fairlag.strategy import Strategy
from fairlag.types import (
    NOTHING,
    Aggregation,
    Arrived,
    Cancel,
    Command,
    Dispatch,
    Ended,
    Event,
    Failed,
    Floats,
    Joined,
    Left,
    Outcome,
    Record,
    Stop,
    Wake,
    Woke,
)
from fairlag.vector import EMPTY, Matrix, Vector
from fairlag.versions import Versions
from fairlag.view import View


class Server:
    """Runs one strategy: told of every event, it answers with what to do next.

    >>> from fairlag.types import NOTHING
    >>> from fairlag.zoo import buffered_fedavg
    >>> server = Server(buffered_fedavg(buffer=2), clients=2)
    >>> [command.client for command in server.handle(Joined(0.0, [0, 1]))]
    [0, 1]
    >>> server.handle(Arrived(1.0, 0, NOTHING))
    []
    >>> [(command.client, command.version) for command in server.handle(Arrived(2.0, 1, NOTHING))]
    [(0, 1), (1, 1)]
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        clients: int,
        parameters: Vector = EMPTY,
        seed: int = 0,
        aggregations: int | None = None,
        until_time: float | None = None,
        record: Record | None = None,
    ) -> None:
        """A server for a fleet of so many clients, that stops after so many aggregations or at that time."""
        strategy.check(clients)
        if aggregations is not None and aggregations < 1:
            raise InputError(f"aggregations is {aggregations}, it must be at least 1, or None for no limit")
        if until_time is not None and not until_time > 0:
            raise InputError(f"until_time is {until_time}, it must be positive, or None for no limit")
        self.strategy = strategy
        self._ledger = Ledger(clients=clients, window=strategy.window)
        self._versions = Versions(parameters)
        self.view = View(self._ledger, self._versions)
        self.stopped: Stop | None = None
        self.partial = 0
        self.last_loss = ""
        self.refusals: Counter[str] = Counter()
        self._ended: Counter[Outcome] = Counter()
        self._selector = strategy.select.start(self.view, seeds.key(seed, "select"))
        self._trigger = strategy.trigger
        self._admit = strategy.admit
        self._readers = strategy.readers
        self._record = record
        self._aggregations = aggregations
        self._until_time = until_time
        self._next_task = 0
        self._wake = -math.inf
        self._state = strategy.apply.init(self._versions.newest)
        self._size = self._versions.newest.size
        self._stores = self._size > 0 or "weigh" in self._readers
        self._blank = object() if self._size else NOTHING
        self._rows: Matrix = np.empty((strategy.trigger.needs, self._size), np.float32)
        self._handlers: dict[type, Callable[..., list[Command]]] = {
            Joined: self._joined,
            Left: self._left,
            Failed: self._failed,
            Woke: self._woke,
        }

    @property
    def versions(self) -> Versions:
        """The parameters of the newest version and of those that a task still needs."""
        return self._versions

    @property
    def counts(self) -> dict[str, int]:
        """How many tasks were dispatched, and what became of them: the rest adds up to the first."""
        ledger = self._ledger
        return {
            "dispatched": self._next_task,
            **{outcome.value: self._ended[outcome] for outcome in Outcome},
            "running": len(ledger.running),
            "buffered": len(ledger.buffer),
        }

    def handle(self, event: Event) -> list[Command]:
        """Takes the next event, returns what the runtime must do, in order. After a Stop nothing happens any more."""
        if self.stopped is not None:
            return []
        ledger = self._ledger
        time = event[0]
        if not time >= ledger.time:
            raise ProtocolError(f"time runs backwards: {event} came after time {ledger.time}")
        ledger.time = time
        return self._arrived(event) if type(event) is Arrived else self._handlers[type(event)](event)

    # What each event does

    def _arrived(self, event: Arrived) -> list[Command]:
        _, number, update = event
        ledger = self._ledger
        task = ledger.running.pop(number, None) if type(number) is int else None
        if task is None:
            ended = type(number) is int and 0 <= number < self._next_task
            self.refusals["replay of a task that has ended" if ended else "unknown task"] += 1
            return []
        client = task[1]
        reason = None if update is self._blank else well_formed(update, self._size)
        if reason is None and self._admit is not None:
            reason = self._admit(update, task, self.view)
        if reason is None:
            if self._stores:
                self._store(update.delta)
            ledger.admit(task, update.examples)
        else:
            self.refusals[reason] += 1
            self._end(task, Outcome.REFUSED, reason)
        self._selector.free(client, ledger.contributed[client] == ledger.version)
        return self._advance()

    def _joined(self, event: Joined) -> list[Command]:
        ledger = self._ledger
        for client in event.clients:
            if client < 0:
                raise ProtocolError(f"client {client} joined at time {event.time}, clients are numbered from 0")
            if ledger.is_present(client):
                raise ProtocolError(f"client {client} joined at time {event.time} but is already there")
            ledger.join(client)
            self._selector.free(client, ledger.contributed[client] == ledger.version)
        commands: list[Command] = []
        if not self._next_task:
            ledger.renewed = event.time
            if self._until_time is not None:
                commands.append(Wake(self._until_time))
        return commands + self._advance()

    def _left(self, event: Left) -> list[Command]:
        ledger, client = self._ledger, event.client
        if not ledger.is_present(client):
            raise ProtocolError(f"client {client} left at time {event.time} but was not there")
        task = ledger.leave(client)
        if task is None:
            self._selector.gone(client)
            return self._advance()
        self._end(task, Outcome.LOST, "its client left")
        return [Cancel(task.task), *self._advance()]

    def _failed(self, event: Failed) -> list[Command]:
        ledger = self._ledger
        task = ledger.running.pop(event.task, None)
        if task is None:
            return []
        self._end(task, Outcome.LOST, event.reason)
        self._selector.free(task.client, ledger.contributed[task.client] == ledger.version)
        return self._advance()

    def _woke(self, event: Woke) -> list[Command]:
        if self._until_time is not None and event.time >= self._until_time:
            return [self._stop(f"time {self._until_time} was reached")]
        self._ledger.woke = True
        if event.time >= self._wake:
            self._wake = -math.inf
        commands = self._advance()
        self._ledger.woke = False
        return commands

    # What follows from it

    def _advance(self) -> list[Command]:
        ledger, trigger = self._ledger, self._trigger
        commands: list[Command] = []
        if len(ledger.buffer) >= trigger.needs and trigger.ready(self.view):
            self._aggregate(commands, partial=False)
        if self.stopped is None:
            self._dispatch(commands)
        if not ledger.running and ledger.buffer and self._stalled():
            self._aggregate(commands, partial=True)
            if self.stopped is None:
                self._dispatch(commands)
        if trigger.wake is not None and self.stopped is None:
            self._ask_to_wake(trigger.wake(self.view), commands)
        return commands

    def _stalled(self) -> bool:
        """Nobody is running, everyone who is there waits for a newer version: will no Woke come to make one?"""
        return bool(self._selector.waiting) and self._wake < self._ledger.time and self.stopped is None

    def _ask_to_wake(self, time: float | None, commands: list[Command]) -> None:
        if time is not None and time != self._wake and time > self._ledger.time:
            self._wake = time
            commands.append(Wake(time))

    def _dispatch(self, commands: list[Command]) -> None:
        picked = self._selector.pick()
        if not picked:
            return
        number, ledger = self._next_task, self._ledger
        for client in picked:
            commands.append(ledger.dispatch(number, client))
            number += 1
        self._next_task = number
        self._versions.hold(len(picked))
        ledger.target, ledger.until = self._selector.target, self._selector.until

    def _aggregate(self, commands: list[Command], *, partial: bool) -> None:
        ledger = self._ledger
        tasks, staleness, examples = ledger.merge()
        buffer = Buffer(tasks, staleness, examples, self._rows if "weigh" in self._readers else None)
        weights = self._weigh(buffer)
        if self._size:
            self._step(Buffer(tasks, staleness, examples, self._rows), weights)
        else:
            self._versions.publish(self._versions.newest)
        self._versions.release([task[2] for task in tasks])
        ledger.renew()
        self._ended[Outcome.AGGREGATED] += len(tasks)
        self.partial += partial
        if self._record is not None:
            self._record(Aggregation(ledger.version, ledger.time, tasks, buffer.staleness, weights, partial))
        if self.strategy.select.rounds:
            self._dismiss(commands)
        self._selector.renew()
        if ledger.version == self._aggregations:
            commands.append(self._stop(f"{ledger.version} aggregations were made"))

    def _weigh(self, buffer: Buffer) -> Floats:
        weigh = self.strategy.weigh
        try:
            returned = weigh(buffer, self.view)
        except FairlagError:
            raise
        except Exception as error:
            raise failure("weighting", weigh, error) from error
        try:
            weights = np.array(returned, np.float64)
        except (TypeError, ValueError):
            weights = np.empty(0)
        if weights.shape != (len(buffer),) or not all(map(math.isfinite, weights.tolist())):
            raise StrategyError(
                f"the weighting {traits(weigh).label} returned {returned!r} for a buffer of {len(buffer)}: "
                "it must return one finite number per update"
            )
        weights.flags.writeable = False
        self._ledger.credit(buffer.clients, weights)
        return weights

    def _step(self, buffer: Buffer, weights: Floats) -> None:
        """Edits, reduces and applies: the next version."""
        strategy, parameters = self.strategy, self._versions.newest
        updates = buffer.updates
        if strategy.edit is not None:
            updates = strategy.edit(updates, buffer, self.view)
            _check_shape("edit", strategy.edit, updates, (len(buffer), self._size))
        step = strategy.reduce(weights, updates)
        _check_shape("reduce", strategy.reduce, step, parameters.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            # A step may be a view of the buffer's rows, which the next updates overwrite; a rule may keep it.
            step, self._state = strategy.apply.update(np.array(step, np.float32), self._state, parameters)
            _check_shape("apply", strategy.apply, step, parameters.shape)
            parameters = parameters + step
        if not np.isfinite(parameters).all():
            raise DivergedError(
                f"version {self._ledger.version + 1} is not finite: the model diverged, smaller steps may help"
            )
        self._versions.publish(parameters)

    def _dismiss(self, commands: list[Command]) -> None:
        """The round is over: whoever still runs need not go on."""
        ledger = self._ledger
        tasks = list(ledger.running.values())
        ledger.running.clear()
        for task in tasks:
            self._end(task, Outcome.CANCELLED, "the round is over")
            self._selector.free(task.client, ledger.contributed[task.client] == ledger.version)
            commands.append(Cancel(task.task))

    def _store(self, delta: Vector) -> None:
        """The update is copied into the next free row: from here on nobody else can change it."""
        place = len(self._ledger.buffer)
        if place == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[place] = delta

    def _end(self, task: Dispatch, outcome: Outcome, reason: str) -> None:
        """A task ends without being aggregated."""
        self._versions.release([task.version])
        self._ended[outcome] += 1
        if outcome is Outcome.LOST:
            self.last_loss = reason
        if self._record is not None:
            self._record(Ended(task, self._ledger.time, outcome, reason))

    def _stop(self, reason: str) -> Stop:
        self.stopped = Stop(reason)
        return self.stopped


def _check_shape(slot: str, rule: object, result: object, shape: tuple[int, ...]) -> None:
    if not isinstance(result, np.ndarray) or result.shape != shape:
        found = getattr(result, "shape", type(result).__name__)
        label = getattr(rule, "label", None) or traits(rule).label
        raise StrategyError(f"{slot} {label} returned {found}, it must return an array of shape {shape}")
