"""A simulation that is saved and restored goes on as if it had never stopped: the same events, commands and bytes."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlag import zoo
from fairlag.core.server import Server
from fairlag.core.state import State
from fairlag.core.strategy import Strategy
from fairlag.core.types import Command, Dispatch, Event, Stop, Update
from fairlag.core.vector import EMPTY, Layout, Vector
from fairlag.errors import InputError, Interrupted, StalledError, StrategyError
from fairlag.fleet.availability import parse as available
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.rules import admit, apply, select, trigger, weigh
from fairlag.runtime.virtual import Simulation
from tests.support.scenes import vec
from tests.support.states import exact, plain, through_a_file
from tests.support.watched import Computes
from tests.support.worlds import worlds


class Momentum(NamedTuple):
    speed: Vector
    peak: np.float32
    versions: int


def momentum(beta: float) -> apply.Apply:
    """A server rule that remembers an array, a number of numpy's and one of Python's."""

    def update(step: Vector, state: Any, parameters: Vector) -> tuple[Vector, tuple[object, ...]]:
        speed = np.float32(beta) * state.speed + step
        now = Momentum(speed, max(state.peak, np.float32(np.abs(speed).max())), state.versions + 1)
        return speed / (now.peak + np.float32(now.versions)), now

    def init(first: Vector, layout: Layout) -> Momentum:
        return Momentum(np.zeros_like(first), np.float32(0), 0)

    return apply.Apply(f"momentum({beta})", init, update)


class Logs(Server):
    """A server that writes down all that it is told, does and records."""

    def __init__(self, strategy: Strategy, **options: Any) -> None:
        self.log: list[Any] = []
        super().__init__(strategy, record=lambda record: self.log.append(plain(record)), **options)

    def handle(self, event: Event) -> list[Command]:
        commands = super().handle(event)
        self.log.append((plain(event), commands))
        return commands


class Notes(Computes):
    """An executor that notes what it was handed, in order."""

    def __init__(self, faults: float) -> None:
        super().__init__(faults)
        self.noted: dict[int, tuple[Dispatch, bytes, float]] = {}

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        super().submit(task, parameters, due)
        self.noted[task.task] = task, parameters.tobytes(), due


class Life:
    """A simulation with all that belongs to it, as it is constructed anew after a crash."""

    def __init__(self, strategy: Strategy, groups: list[Group], seed: int, parameters: Vector) -> None:
        fleet = Fleet(groups, seed=seed)
        limits: dict[str, Any] = {"aggregations": 25, "until_time": 400.0}
        self.server = Logs(strategy, clients=fleet.clients, parameters=parameters, seed=seed, **limits)
        self.executor = Notes(faults=0.2 if parameters.size else 0.0)
        self.simulation = Simulation(self.server, fleet, self.executor)

    def end(self) -> str:
        try:
            return self.simulation.to_the_end().reason
        except StalledError as error:
            return str(error)

    def proceed(self, events: int) -> Stop | None:
        """So many events; one that can never go on, as where everyone is barred, just stays where it is."""
        try:
            return self.simulation.proceed(events)
        except StalledError:
            return None

    @property
    def result(self) -> tuple[object, ...]:
        server = self.server
        ends = server.stopped, server.partial, server.tasks.last_loss, dict(server.refusals), server.counts
        # When a run is over, how long its last stretch would have been depends on how it was divided.
        state = exact({**self.simulation.state(), "passed": 0})
        return (*ends, server.versions.kept, plain(server.versions.newest), state)


def goes_on(fresh: Callable[[], Life], gaps: Iterable[int]) -> None:
    """Saves after so many events, again after so many more, and so on, each time going on in another life."""
    whole, life = fresh(), fresh()
    reason = whole.end()
    log: list[Any] = []
    for gap in gaps:
        stop = life.proceed(gap)
        log += life.server.log
        state, saved, other = life.simulation.state(), exact(life.simulation.state()), fresh()
        other.simulation.restore(through_a_file(state))
        assert exact(other.simulation.state()) == saved, "restored is what was saved"
        held = {number: life.executor.noted[number] for number in sorted(life.executor.open)}
        assert list(other.executor.noted.items()) == list(held.items()), "running tasks are handed out again, in order"
        assert other.proceed(0) == stop
        life.proceed(20)
        assert exact(state) == saved, "a state stays what it is when its simulation goes on"
        life = other
    assert life.end() == reason
    assert log + life.server.log == whole.server.log
    assert life.result == whole.result


ZOO: dict[str, Strategy] = {
    **{name: algorithm.make() for name, algorithm in zoo.ALGORITHMS.items()},
    "hurried cohort": zoo.fedavg(cohort=6, over=0.5, deadline=3.0),
    "every": Strategy(select.all_idle(), trigger.every(0.7), weigh.uniform),
    "quorum": Strategy(select.all_idle(fresh=False), trigger.quorum(5, deadline=2.0), weigh.mean_gap),
    "concurrency": zoo.fedbuff(buffer=3, concurrency=4, max_staleness=2),
    "fresh places": Strategy(select.concurrency(5, fresh=True), trigger.count(2), weigh.by_examples),
    "window": zoo.fedstaleweight(buffer=2, window=3),
    "account": zoo.fairshare(buffer=3, estimator="account", cap=2.0, limit=0.5, importance="examples"),
    "account of all": zoo.fairshare(
        buffer=3, estimator="account", cap=2.0, entitled="known", limit=0.3, reward=0.2, most=0.4
    ),
    "momentum": replace(zoo.exponential(buffer=3), apply=apply.chain(apply.scale(0.5), momentum(0.9), momentum(0.5))),
    "refusals": replace(zoo.buffered_fedavg(buffer=2), admit=admit.all_of(admit.max_staleness(3))),
}
CLIENTS = 12
FLEETS = {
    "steady": [Group("fast", 8, parse("uniform(1, 2)")), Group("slow", 4, parse("uniform(8, 12)"))],
    "ties": [Group("all", CLIENTS, parse("2"))],
    "daily": [
        Group("phones", 9, parse("lognormal(600, 1)"), available("daily(0, 0.05, 0.02)")),
        Group("guests", 3, parse("uniform(30, 60)"), join=20.0, leave=300.0),
    ],
    "restless": [Group("restless", CLIENTS, parse("exponential(3)"), available("alternating(exponential(9), 4)"))],
    "shy": [
        Group("shy", 6, parse("uniform(1, 3)"), vanish=0.4),
        Group("s", 6, parse("2"), vanish=0.3, away=parse("5")),
    ],
}


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("name", ZOO)
def test_every_strategy_goes_on_in_every_fleet(name: str, fleet: str) -> None:
    goes_on(lambda: Life(ZOO[name], FLEETS[fleet], 0, vec(0, 0, 0)), [0, 1, 8, 23, 55, 999])


@pytest.mark.parametrize("fleet", FLEETS)
def test_an_audit_goes_on(fleet: str) -> None:
    goes_on(lambda: Life(ZOO["fedstaleweight"], FLEETS[fleet], 0, EMPTY), [0, 10, 30, 999])


@settings(max_examples=100, deadline=None)
@given(worlds(), st.integers(0, 2**32), st.lists(st.integers(0, 60), min_size=1, max_size=4))
def test_random_worlds_go_on_from_random_moments(
    world: tuple[list[Group], Strategy], seed: int, gaps: list[int]
) -> None:
    groups, strategy = world
    goes_on(lambda: Life(strategy, groups, seed, vec(0, 0)), gaps)


@pytest.mark.parametrize("gap", [500, 1000, 9_999])
def test_a_stall_is_noticed_at_the_same_event(gap: int) -> None:
    strategy = replace(zoo.buffered_fedavg(buffer=1), admit=lambda update, task, view: "never / ever")
    goes_on(lambda: Life(strategy, [Group("a", 60, parse("uniform(1, 2)"))], 0, EMPTY), [gap])


def test_a_clients_row_is_kept_though_nobody_expected_it() -> None:
    """More clients come to a server than it was made for."""
    fleet = Fleet([Group("a", 5, parse("uniform(1, 2)"))], seed=0)
    one, other = (Simulation(Server(zoo.buffered_fedavg(buffer=2), clients=2, aggregations=30), fleet) for _ in "ab")
    one.proceed(20)
    other.restore(one.state())
    assert other.to_the_end() == one.to_the_end() and exact(other.state()) == exact(one.state())


def test_parts_of_any_length_are_the_whole() -> None:
    whole, parts = (Life(ZOO["concurrency"], FLEETS["shy"], 0, vec(0, 0)) for _ in "ab")
    whole.end()
    while parts.simulation.proceed(7) is None:
        pass
    assert parts.server.log == whole.server.log and parts.result == whole.result


@pytest.mark.parametrize("read", [0, 1, 30])
def test_interrupted_while_a_result_is_waited_for_no_event_is_lost(read: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, stopped, other = (Life(ZOO["concurrency"], FLEETS["shy"], 0, vec(0, 0)) for _ in "abc")
    whole.end()
    results = stopped.executor.result

    def waited_for(task: Dispatch) -> Update:
        if len(asked) == read:
            raise Interrupted("Ctrl-C")
        asked.append(task.task)
        return results(task)

    asked: list[int] = []
    monkeypatch.setattr(stopped.executor, "result", waited_for)
    with pytest.raises(Interrupted):
        stopped.end()
    other.simulation.restore(through_a_file(stopped.simulation.state()))
    other.end()
    assert stopped.server.log + other.server.log == whole.server.log
    assert other.result == whole.result


# What does not fit


def saved(strategy: Strategy, parameters: Vector) -> State:
    life = Life(strategy, FLEETS["steady"], 0, parameters)
    life.simulation.proceed(50)
    return life.simulation.state()


@pytest.mark.parametrize(
    ("strategy", "parameters", "words"),
    [
        ("fedstaleweight", vec(0, 0), r"has shape \(3,\), it must have shape \(2,\)"),
        ("window", vec(0, 0, 0), "recent"),
        ("momentum", vec(0, 0, 0), r"the state of chain\(.*\) is not one that its init makes: there are 0 saved"),
        ("fedavg", vec(0, 0, 0), "'idle'"),
        ("account", vec(0, 0, 0), "'accounts'"),
        ("concurrency", vec(0, 0, 0), "'pool'"),
    ],
)
def test_the_state_of_another_experiment_is_refused(strategy: str, parameters: Vector, words: str) -> None:
    life = Life(ZOO[strategy], FLEETS["steady"], 0, parameters)
    with pytest.raises(InputError, match=words):
        life.simulation.restore(saved(ZOO["fedstaleweight"], vec(0, 0, 0)))


def test_a_server_rule_whose_state_could_not_be_restored_is_noticed_when_it_is_saved() -> None:
    grows = apply.Apply("grows()", lambda first, layout: (), lambda step, state, parameters: (step, (*state, 1)))
    with pytest.raises(StrategyError, match=r"grows\(\) is not one that its init makes"):
        saved(replace(zoo.fedstaleweight(), apply=grows), vec(0))
