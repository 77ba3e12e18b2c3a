"""The server: a pure state machine, events in, commands out. It owns no clock, no thread, no socket, no training."""

import math
from collections.abc import Callable, Mapping
from itertools import takewhile

import numpy as np

from fairlag.core import seeds
from fairlag.core.admission import Admission
from fairlag.core.budgets import Budgets
from fairlag.core.counting import TaskCounter
from fairlag.core.dispatching import Dispatcher
from fairlag.core.ledger import Ledger
from fairlag.core.mechanism import Mechanism, check_private
from fairlag.core.merger import Merger
from fairlag.core.secure import SecureSum, check_hidden
from fairlag.core.state import Savable, State, take
from fairlag.core.strategy import Strategy
from fairlag.core.types import (
    Aggregation,
    Arrived,
    Cancel,
    CheckedUpdate,
    Command,
    Dispatch,
    Event,
    Failed,
    Integers,
    Joined,
    Left,
    OnVersion,
    Outcome,
    Record,
    Stop,
    Wake,
    Woke,
    aggregations_made,
    budgets_spent,
    check_limits,
    record_of,
    time_reached,
)
from fairlag.core.vector import EMPTY, Layout, Vector
from fairlag.core.versions import Versions
from fairlag.core.view import Reference, View
from fairlag.errors import ProtocolError, StrategyError
from fairlag.rules.rule import failure

_PLAIN = {"partial": int, "_wake": float}


class Server:
    """Runs one strategy: `handle` takes an event and returns the commands that follow from it.

    >>> from fairlag.core.types import NOTHING
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
        layout: Layout | None = None,
        seed: int = 0,
        aggregations: int | None = None,
        until_time: float | None = None,
        examples: Integers | None = None,
        most_examples: Integers | None = None,
        group_of: Callable[[int], str] | None = None,
        max_growth: float | None = None,
        reference: Reference | None = None,
        secure: SecureSum | None = None,
        privacy: Mechanism | None = None,
        record: Record | None = None,
        on_version: OnVersion | None = None,
    ) -> None:
        """A server for a number of clients. It stops after `aggregations` versions or at `until_time`.

        `examples` is the initial number of training examples per client, as far as the server knows. A client that
        reports more than its `most_examples` counts as one with that many.
        `group_of` names a client's group, for strategies that treat groups differently.
        The layout names the parts of the parameters, for server rules that ask; without a layout, they are one array.
        It also says which parts are statistics, such as BatchNorm's running mean: rules do not see these, the server
        averages them.
        With `max_growth`, an aggregation is refused as a whole if it would make the model more than this many times as
        large, or not finite. Without it, a model that is not finite ends the run with a DivergedError.
        `reference` trains a version on the server's own examples, for strategies that compare updates with that step.
        With `secure`, updates arrive masked: the server never sees a single one, and `secure` adds them up.
        With `privacy`, updates are clipped, every step gets noise, and a client whose budget is spent gets no tasks.
        """
        strategy.check(clients)
        check_limits(aggregations, until_time)
        self.strategy = strategy
        self._ledger = Ledger(
            clients=clients,
            window=strategy.window,
            profiles=strategy.profiles,
            awaits=strategy.awaits,
            examples=examples,
            account=strategy.account,
            group_of=group_of,
            unseen=strategy.trigger.unseen,
            longest=strategy.intervals,
        )
        self.running: Mapping[int, Dispatch] = self._ledger.running
        """The running tasks by number, in order of dispatch."""
        layout = layout or Layout(("parameters",), ((len(parameters),),))
        shared = np.zeros(layout.parameters.size if strategy.local.shares else 0, np.float32)
        self.versions = Versions(np.concatenate([parameters, shared]), before=strategy.select.lag)
        """The parameters of the newest version and of the versions that tasks still need.

        If the direction of local steps takes a vector from the server, a version ends with it.
        """
        size = self.versions.newest.size
        if strategy.reference and size and reference is None:
            raise StrategyError(
                f"{strategy} compares updates with a step on the server's own examples, but the server has none: "
                "give `trusted` in [data]"
            )
        self.view = View(self._ledger, self.versions, size - layout.parameters.size, reference)
        if secure is not None:
            check_hidden(strategy, layout)
        if privacy is not None:
            check_private(layout, max_growth, privacy)
        self._merger = Merger(strategy, self.versions, self.view, layout, max_growth, secure, privacy)
        self._privacy, self._clients = privacy, clients
        self._budgets: Budgets | None = None
        if privacy is not None and privacy.allowed < math.inf:
            self._budgets = Budgets(privacy.allowed, privacy.least)
        self.stopped: Stop | None = None
        self.partial = 0
        self.refused = ""
        """Why the last aggregation was refused, and which clients are suspected; empty if it was not."""
        self.tasks = TaskCounter(self._ledger, self.versions, record)
        """How tasks ended."""
        self.refusals = self.tasks.refusals
        """How many updates were refused, by reason."""
        self._selector = strategy.select.start(self.view, seeds.key(seed, "select"))
        self._ledger.round = self._selector
        self._dispatcher = Dispatcher(strategy, self._ledger, self.versions, self._selector, self.view, self._merger)
        self._parts: dict[str, Savable] = {
            "ledger": self._ledger,
            "versions": self.versions,
            "merger": self._merger,
            "selector": self._selector,
        }
        self._store = self._merger.store if self._merger.stores else None
        self._trigger = strategy.trigger
        self._admission = Admission(strategy, layout, size, self.view, most_examples, secure=secure, privacy=privacy)
        self._blank, self._trusts = self._admission.blank, self._admission.asks_nothing
        if self._admission.memory is not None:
            self._parts["admit"] = self._admission.memory
        if secure is not None:
            self._parts["secure"] = secure
        if self._budgets is not None:
            self._parts["budgets"] = self._budgets
        self.record = record
        """Gets each version, each task that ended without being aggregated, and each client that joins or leaves."""
        self.on_version = on_version
        """Gets the parameters of each new version."""
        self._aggregations = aggregations
        self._until_time = until_time
        self._wake = -math.inf
        self._handlers: dict[type, Callable[..., list[Command]]] = {
            Joined: self._joined,
            Left: self._left,
            Failed: self._failed,
            Woke: self._woke,
        }

    @property
    def counts(self) -> dict[str, int]:
        """How many tasks were dispatched, and how they ended: the later entries add up to the first."""
        return self.tasks.counts(self._dispatcher.next_task)

    @property
    def part(self) -> float:
        """How much of the run is done, by versions or by time, from 0 to 1; 0 if the run has no limit."""
        versions = self._ledger.version / self._aggregations if self._aggregations is not None else 0.0
        return max(versions, self._ledger.time / self._until_time) if self._until_time is not None else versions

    @property
    def awaits(self) -> float:
        """When the trigger wants to be asked again; −∞ if it has not asked."""
        return self._wake

    @property
    def barred(self) -> int:
        """How many clients, present or away, will never get a task again."""
        return self._selector.barred + self.spent

    @property
    def spent(self) -> int:
        """How many clients get no task because their privacy budget is spent."""
        return 0 if self._budgets is None else len(self._budgets.spent)

    @property
    def waits_for(self) -> str:
        """What the server waits for, as a sentence, for a run that no longer makes progress."""
        view, why = self.view, self._selector.why
        if not why and view.present and not view.running:
            why = f"{self.strategy.select.label} picks none of them"
        return (
            f"{self.strategy} has {view.buffered} of the {max(self._trigger.needs, view.target)} updates it waits for, "
            f"{view.running} tasks are running, {view.present} clients are present" + (f", but {why}" if why else "")
        ) + (f"; the privacy budgets of {self.spent} clients are spent" if self.spent else "")

    def handle(self, event: Event) -> list[Command]:
        """Takes the next event and returns the commands for the runtime, in order; none after a Stop."""
        if self.stopped is not None:
            return []
        ledger = self._ledger
        time = event[0]
        if not time >= ledger.time:
            raise ProtocolError(f"time runs backwards: {event} came after time {ledger.time}")
        ledger.time = time
        return self._arrived(event) if type(event) is Arrived else self._handlers[type(event)](event)

    def state(self) -> State:
        """Everything that the server remembers between two events, without its constructor arguments."""
        return {
            **{name: part.state() for name, part in self._parts.items()},
            "stopped": self.stopped and self.stopped.reason,
            **{name: getattr(self, name) for name in _PLAIN},
            "_next_task": self._dispatcher.next_task,
            **self.tasks.state(),
        }

    def restore(self, state: State) -> None:
        """Continues from the saved state of a server that was constructed with the same arguments."""
        for name, part in self._parts.items():
            if name in state or name != "admit":  # a fleet may continue with bounds that it did not have before
                part.restore(take(state, name, dict))
        for name, kind in _PLAIN.items():
            setattr(self, name, take(state, name, kind))
        self.stopped = Stop(reason) if isinstance(reason := state["stopped"], str) else None
        self._dispatcher.next_task = take(state, "_next_task", int)
        self.tasks.restore(state)

    # One handler per event

    def _arrived(self, event: Arrived) -> list[Command]:
        _, number, update = event
        ledger = self._ledger
        task = ledger.running.pop(number, None) if type(number) is int else None
        if task is None:
            ended = type(number) is int and 0 <= number < self._dispatcher.next_task
            self.refusals["replay of a task that has ended" if ended else "unknown task"] += 1
            return []
        known = self._trusts and (update is self._blank or type(update) is CheckedUpdate)
        reason = None
        if not known:
            reason, update = self._admission.judged(update, task)
        if reason is None:
            if self._store is not None:
                self._store(update.delta, len(ledger.buffer))
            ledger.admit(task, update.report)
        else:
            self.tasks.end(task, Outcome.REFUSED, reason)
        client = task[1]
        self._free(client, pending=reason is None)
        return self._advance()

    def _joined(self, event: Joined) -> list[Command]:
        ledger, joined = self._ledger, event.clients
        first = not ledger.clients
        if self._budgets is not None:
            joined = [client for client in joined if client not in self._budgets.spent]
        for client in joined:
            if client < 0:
                raise ProtocolError(f"client {client} joined at time {event.time}, clients are numbered from 0")
            if not ledger.join(client):
                raise ProtocolError(f"client {client} joined at time {event.time} but is already present")
            self._free(client)
        self.tasks.attend(joined, present=True)
        commands: list[Command] = []
        if first:
            ledger.renewed = event.time
            if self._until_time is not None:
                commands.append(Wake(self._until_time))
        return commands + self._advance()

    def _left(self, event: Left) -> list[Command]:
        ledger, client = self._ledger, event.client
        if self._budgets is not None:
            if client in self._budgets.spent:
                return []
            self._budgets.leave(client)
        if not ledger.is_present(client):
            raise ProtocolError(f"client {client} left at time {event.time} but was not present")
        task = ledger.leave(client)
        self.tasks.attend((client,), present=False)
        if task is None:
            self._selector.gone(client)
            return self._advance()
        self._selector.lost(client)
        self.tasks.end(task, Outcome.LOST, "its client left")
        return [Cancel(task.task), *self._advance()]

    def _failed(self, event: Failed) -> list[Command]:
        task = self._ledger.running.pop(event.task, None)
        if task is None:
            return []
        if event.gone:
            self._ledger.leave(task.client)
            self._selector.lost(task.client)
            self.tasks.attend((task.client,), present=False)
        self.tasks.end(task, Outcome.REFUSED if event.refused else Outcome.LOST, event.reason)
        if not event.gone:
            self._free(task.client)
        return self._advance()

    def _woke(self, event: Woke) -> list[Command]:
        if self._until_time is not None and event.time >= self._until_time:
            return [self._stop(time_reached(self._until_time))]
        self._ledger.woke = True
        if event.time >= self._wake:
            self._wake = -math.inf
        commands = self._advance()
        self._ledger.woke = False
        return commands

    # What follows from an event

    def _advance(self) -> list[Command]:
        ledger, trigger = self._ledger, self._trigger
        commands: list[Command] = []
        try:
            ready = len(ledger.buffer) >= trigger.needs and trigger.ready(self.view)
        except Exception as error:
            raise failure("trigger", trigger, error) from error
        if ready:
            self._aggregate(commands, partial=False)
        if self._budgets is not None:
            self._settle(self._budgets, commands)
        if self.stopped is None:
            self._dispatcher.dispatch(commands)
        if not ledger.running and ledger.buffer and self._stalled():
            self._aggregate(commands, partial=True)
            if self._budgets is not None:
                self._settle(self._budgets, commands)
            if self.stopped is None:
                self._dispatcher.dispatch(commands)
        # Without running tasks and buffered updates, a Woke could change nothing.
        if trigger.wake is not None and self.stopped is None and (ledger.running or ledger.buffer):
            self._ask_to_wake(trigger.wake(self.view), commands)
        return commands

    def _stalled(self) -> bool:
        """No task is running and all present clients wait for a newer version: is no Woke due that could make one?"""
        waiting = self._selector.waiting or (self._budgets is not None and self._budgets.waiting)
        return bool(waiting) and self._wake < self._ledger.time and self.stopped is None

    def _ask_to_wake(self, time: float | None, commands: list[Command]) -> None:
        if time is not None and time != self._wake and time > self._ledger.time:
            self._wake = time
            commands.append(Wake(time))

    def _aggregate(self, commands: list[Command], *, partial: bool) -> None:
        ledger = self._ledger
        drafted = self._selector.draft(ledger.buffer)
        tasks, staleness, reports, arrivals = ledger.merge(drafted if self.strategy.select.holds else None)
        buffer, weights, parts, self.refused = self._merger.merge(tasks, staleness, reports, drafted)
        if self._budgets is not None and self._privacy is not None:
            self._budgets.charge(self._privacy.uses(buffer.clients, weights))
        if parts is None:
            ledger.credit(buffer.clients, weights)
        else:
            ledger.stand(parts)
        self.versions.release([task[2] for task in tasks])
        ledger.renew()
        self.partial += partial
        if self.record is not None:
            row = (ledger.version, ledger.time, tasks, arrivals, buffer.staleness, weights, partial, self.refused)
            self.record(record_of(Aggregation, (*row, parts, ledger.acted)))
        if self.on_version is not None:
            self.on_version(ledger.version, ledger.time, self.versions.newest)
        cancelled = self._selector.renew()
        if (delay := self.strategy.select.delay) is not None:
            cancelled = {**cancelled, **self._overdue(delay)}
        if cancelled:
            self._cancel(cancelled, commands)
        if ledger.version == self._aggregations:
            commands.append(self._stop(aggregations_made(ledger.version)))

    def _overdue(self, delay: int) -> dict[int, str]:
        """The tasks that are this many versions behind; in the order of dispatch, versions never fall."""
        ledger, reason = self._ledger, f"{delay} versions behind"
        late = takewhile(lambda task: task.version <= ledger.version - delay, ledger.running.values())
        return {task.task: reason for task in late}

    def _cancel(self, cancelled: Mapping[int, str], commands: list[Command]) -> None:
        """Cancels these tasks; their clients are idle again."""
        for number, reason in cancelled.items():
            task = self._ledger.running.pop(number)
            self.tasks.end(task, Outcome.CANCELLED, reason)
            self._free(task.client)
            commands.append(Cancel(number))

    def _free(self, client: int, *, pending: bool = False) -> None:
        """The client is present and idle; `pending`: its update has just entered the buffer."""
        ledger = self._ledger
        if self._budgets is None or self._budgets.fits(client, self.view.senders.count(client)):
            self._selector.free(client, ledger.contributed[client] == ledger.version, pending)
        else:
            self._selector.lost(client)
            self._budgets.wait(client)

    def _settle(self, budgets: Budgets, commands: list[Command]) -> None:
        """Clients whose budget is spent leave for good; if too few are left to make a version, the run is over."""
        if not budgets.unsettled or self.stopped is not None:
            return
        ledger = self._ledger
        free, over = budgets.settled(ledger.buffer)
        for client in free:
            self._free(client)
        for client in over:
            ledger.retire(client)
        self.tasks.attend(over, present=False)
        left = max(self._clients, ledger.clients) - len(budgets.spent)
        if left < budgets.least:
            commands.append(self._stop(budgets_spent(len(budgets.spent), left, budgets.least)))

    def _stop(self, reason: str) -> Stop:
        self.stopped = Stop(reason)
        return self.stopped
