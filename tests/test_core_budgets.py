"""Privacy budgets: never exceeded, in any strategy, fleet and order of events; and what happens once they are spent."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlag import zoo
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import NOTHING, Arrived, Dispatch, Event, Joined, Left, Stop
from fairlag.errors import InputError, StalledError
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.rules import select, trigger, weigh
from fairlag.runtime.virtual import Simulation, run
from fairlag.zoo.private import noisy
from tests.support.private import Guarded, mechanism, private
from tests.support.scenes import vec
from tests.support.watched import Computes
from tests.support.worlds import STEPS, groups, play


@st.composite
def limited(draw: st.DrawFn) -> tuple[list[Group], Strategy, float, float, int]:
    made = draw(groups())
    strategy, bound = draw(private(sum(each.count for each in made)))
    return made, strategy, bound, draw(st.sampled_from([1.0, 1.5, 3.2, 8.0])), draw(st.integers(0, 2**32))


@settings(max_examples=60, deadline=None)
@given(limited())
def test_no_budget_is_ever_exceeded(case: tuple[list[Group], Strategy, float, float, int]) -> None:
    made, strategy, bound, updates, seed = case
    fleet = Fleet(made, seed=seed)
    guard = mechanism(strategy, bound, updates=updates)
    server = Guarded(
        strategy,
        clients=fleet.clients,
        parameters=vec(0, 0),
        seed=seed,
        aggregations=60,
        until_time=400.0,
        privacy=guard,
    )
    try:
        run(server, fleet, Computes())
    except StalledError:
        assert server.barred or server.counts["lost"] > 1000
    assert max(server.charged.values(), default=0.0) <= guard.budget * (1 + 1e-8)
    assert server.barred == len(server.over)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), private(n), STEPS)), st.sampled_from([1.0, 2.5, 6.0]))
def test_no_budget_is_exceeded_in_any_order_of_events(
    script: tuple[int, tuple[Strategy, float], list[tuple[int, int, int]]], updates: float
) -> None:
    clients, (strategy, bound), steps = script
    guard = mechanism(strategy, bound, updates=updates)
    server = Guarded(strategy, clients=clients, parameters=vec(0, 0), privacy=guard)
    play(server, clients, steps)
    assert max(server.charged.values(), default=0.0) <= guard.budget * (1 + 1e-8)


def drive(server: Server, clients: int, order: list[int]) -> list[list[int]]:
    """Lets clients send in this order; returns who got a task after each update."""
    running: dict[int, int] = {}

    def told(event: Event) -> list[int]:
        tasks = [command for command in server.handle(event) if isinstance(command, Dispatch)]
        running.update((task.client, task.task) for task in tasks)
        return [task.client for task in tasks]

    told(Joined(0.0, range(clients)))
    return [told(Arrived(float(time + 1), running[client], NOTHING)) for time, client in enumerate(order)]


def test_a_client_gets_exactly_the_updates_that_its_budget_allows() -> None:
    strategy = noisy(zoo.buffered_fedavg(buffer=2), bound=0.5, clients=3)
    server = Server(strategy, clients=3, privacy=mechanism(strategy, 0.5, updates=2.0))
    # Every update weighs 1/2 = α_max and so costs one of two units. 0 and 1 may send twice, then 0 and 1 are out.
    given = drive(server, 3, [0, 1, 0, 1])
    assert given == [[], [0, 1], [], []]
    assert server.barred == 2 and server.view.present == 1
    assert server.stopped == Stop(
        "the privacy budgets of 2 clients are spent: 1 are left, and a version needs at least 2"
    )


def test_a_client_waits_until_it_is_known_what_its_update_weighs() -> None:
    rule = weigh.normalised(weigh.exponential(0.5))
    strategy = noisy(Strategy(select.all_idle(fresh=False), trigger.count(2), rule), bound=1.0, clients=2)
    server = Server(strategy, clients=2, privacy=mechanism(strategy, 1.0, updates=1.3))
    # A second task does not fit while the first update might weigh 1; it weighed 1/2 and cost 1/4.
    assert drive(server, 2, [0, 1]) == [[], [0, 1]]
    assert server.barred == 0


def test_a_client_that_spent_its_budget_earns_no_more_and_blocks_nobody() -> None:
    strategy = noisy(zoo.fairshare(buffer=1, most=0.5, entitled="known"), bound=1.0, clients=3)
    server = Server(strategy, clients=3, privacy=mechanism(strategy, 1.0, updates=1.0))
    drive(server, 3, [0])
    assert server.barred == 1
    assert server._ledger.accounts is not None
    held = server._ledger.accounts.held(0)
    server.handle(Left(5.0, 0))
    server.handle(Joined(6.0, [0]))
    server.handle(Arrived(7.0, 1, NOTHING))
    assert server.view.version == 2 and server._ledger.accounts.held(0) == held


def test_a_trigger_that_waits_for_everyone_does_not_wait_for_clients_without_a_budget() -> None:
    strategy = noisy(Strategy(select.all_idle(), trigger.everyone(), weigh.per_client), bound=1.0, clients=2)
    server = Server(strategy, clients=2, privacy=mechanism(strategy, 1.0, updates=1.5))
    drive(server, 2, [0, 1])  # both cost 1/4 of α_max², so both fit again
    assert server.view.version == 1 and server.barred == 0 and server.view.running == 2


@pytest.mark.parametrize("updates", [2.0, 7.5])
def test_budgets_are_saved_and_restored(updates: float) -> None:
    strategy = noisy(zoo.fairshare(buffer=3, most=0.4), bound=0.5, clients=7)

    def fresh() -> tuple[Server, Simulation]:
        made = [Group("fast", 5, parse("uniform(1, 2)")), Group("slow", 2, parse("uniform(4, 6)"))]
        server = Server(
            strategy,
            clients=7,
            parameters=vec(0, 0),
            privacy=mechanism(strategy, 0.5, updates=updates),
            aggregations=80,
        )
        return server, Simulation(server, Fleet(made, seed=1), Computes())

    whole, simulation = fresh()
    half, first = fresh()
    while simulation.proceed(1) is None:
        pass
    first.proceed(30)
    again, second = fresh()
    state = half.state(), first.state()
    again.restore(state[0])
    second.restore(state[1])
    while second.proceed(1) is None:
        pass
    assert again.stopped == whole.stopped and whole.stopped is not None
    assert again.versions.newest.tobytes() == whole.versions.newest.tobytes()
    assert again.barred == whole.barred > 0


def test_a_budget_that_allows_no_update_is_refused() -> None:
    strategy = noisy(zoo.buffered_fedavg(buffer=2), bound=0.5, clients=3)
    with pytest.raises(InputError, match=r"one update of the largest weight costs 0\.125"):
        mechanism(strategy, 0.5, updates=0.9)
    assert mechanism(strategy, 0.5).allowed == inf
    assert mechanism(strategy, 0.5, updates=1.0).allowed == 1.0
    assert np.isfinite(mechanism(strategy, 0.5, updates=1.0).budget)
