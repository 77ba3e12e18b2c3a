"""Selection: who is dispatched, in which order, how many at once, and that random picks follow the seed."""

from collections import Counter

import numpy as np
import pytest

from fairlag import zoo
from fairlag.core import seeds
from fairlag.core.ledger import Ledger
from fairlag.core.strategy import Strategy
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules import select, trigger, weigh
from tests.support.scenes import Scene, handed


def places(m: int, *, buffer: int = 1, fresh: bool = False) -> Strategy:
    return Strategy(select.concurrency(m, fresh=fresh), trigger.count(buffer), weigh.uniform)


def draws(seed: int, members: list[int], count: int) -> list[int]:
    """A plain twin of the pool: draw by place, fill the gap with the last member."""
    picked = []
    for ordinal in range(count):
        place = int(seeds.uniform(seeds.key(seed, "select"), ordinal) * len(members))
        picked.append(members[place])
        last = members.pop()
        if place < len(members):
            members[place] = last
    return picked


def test_all_idle_takes_everyone_in_the_order_of_coming() -> None:
    scene = Scene(zoo.buffered_fedavg(buffer=1), 4, join=False)
    assert handed(scene.join(3, 1)) == [(3, 0), (1, 0)]
    assert handed(scene.join(0, 2)) == [(0, 0), (2, 0)]


def test_waiting_clients_are_served_in_the_order_of_their_updates() -> None:
    scene = Scene(zoo.buffered_fedavg(buffer=3), 4)
    scene.arrive(2)
    scene.arrive(0)
    assert handed(scene.arrive(1)) == [(2, 1), (0, 1), (1, 1)]


@pytest.mark.parametrize("seed", range(5))
def test_places_go_to_the_clients_that_the_seed_draws(seed: int) -> None:
    scene = Scene(places(3), 8, seed=seed)
    assert [client for client, _ in handed(scene.first)] == draws(seed, list(range(8)), 3)


@pytest.mark.parametrize("members", [[4, 900, 2], [], [7]])
def test_a_pool_that_was_saved_forgets_whoever_goes(members: list[int]) -> None:
    """Also whom it never held, as those who wait for a newer version."""
    view = View(Ledger())
    one, other = (select.concurrency(3).start(view, 5) for _ in range(2))
    for client in members:
        one.free(client, current=False, pending=False)
    other.restore(one.state())
    for selector in (one, other):
        for client in (2, 3, 10_000, 2):
            selector.gone(client)
    picked = one.pick()
    assert other.pick() == picked and set(picked) == set(members) - {2}


def test_never_more_run_than_there_are_places() -> None:
    scene = Scene(places(2, buffer=3), 5)
    for _ in range(30):
        assert scene.server.view.running == 2
        running = sorted(scene.tasks.values())[-2:]
        scene.arrive(running[0].client)


def test_a_place_that_becomes_free_is_given_again_at_once() -> None:
    scene = Scene(places(1), 2)
    ((client, _),) = handed(scene.first)
    assert len(handed(scene.leave(client))) == 1 and scene.server.counts["lost"] == 1


def test_an_idle_client_that_left_is_not_drawn() -> None:
    scene = Scene(places(1), 3)
    (client, _) = handed(scene.first)[0]
    others = [other for other in range(3) if other != client]
    scene.leave(others[0])
    picked = set()
    for _ in range(20):
        picked.add(max(scene.tasks.values()).client)
        scene.arrive(max(scene.tasks.values()).client)
    assert picked == {client, others[1]}


def test_places_are_shared_evenly() -> None:
    scene = Scene(places(1), 4)
    counts: Counter[int] = Counter()
    for _ in range(4000):
        task = max(scene.tasks.values())
        counts[task.client] += 1
        scene.arrive(task.client)
    assert all(abs(count - 1000) < 120 for count in counts.values())


def test_places_with_fresh_hold_back_who_knows_the_newest_version() -> None:
    scene = Scene(places(2, buffer=2, fresh=True), 3)
    first, second = (client for client, _ in handed(scene.first))
    (third,) = {0, 1, 2} - {first, second}
    assert handed(scene.arrive(first)) == [(third, 0)], "not the one that has just trained from version 0"
    assert {version for _, version in handed(scene.arrive(second))} == {1}
    assert scene.server.view.running == 2


@pytest.mark.parametrize(
    ("m", "over", "picked"), [(2, 0.0, 2), (2, 0.5, 3), (10, 0.3, 13), (10, 0.31, 14), (3, 1.0, 6)]
)
def test_a_cohort_has_its_size_and_its_surplus(m: int, over: float, picked: int) -> None:
    scene = Scene(zoo.fedavg(cohort=m, over=over), 20)
    assert len(handed(scene.first)) == picked and scene.server.view.target == m


@pytest.mark.parametrize("seed", range(5))
def test_a_cohort_is_the_one_that_the_seed_draws(seed: int) -> None:
    scene = Scene(zoo.fedavg(cohort=4), 9, seed=seed)
    assert [client for client, _ in handed(scene.first)] == draws(seed, list(range(9)), 4)


def test_cohorts_change_from_round_to_round_and_reach_everyone() -> None:
    scene = Scene(zoo.fedavg(cohort=3), 9)
    cohorts = [sorted(client for client, _ in handed(scene.first))]
    for _ in range(40):
        *first, last = cohorts[-1]
        for client in first:
            assert scene.arrive(client) == []
        cohorts.append(sorted(client for client, _ in handed(scene.arrive(last))))
    assert len({tuple(cohort) for cohort in cohorts}) > 20
    assert set(np.ravel(cohorts).tolist()) == set(range(9))


def test_fewer_idle_clients_make_a_smaller_round() -> None:
    scene = Scene(zoo.fedavg(cohort=3), 3, join=False)
    assert len(handed(scene.join(1))) == 1 and scene.server.view.target == 1
    assert scene.join(0, 2) == [], "the round is on: who comes now waits for the next"
    assert len(handed(scene.arrive(1))) == 3 and scene.server.view.target == 3


@pytest.mark.parametrize("m", [0, -2, 2.5])
def test_a_selection_of_nobody_is_refused(m: int) -> None:
    with pytest.raises(StrategyError, match=f"the concurrency is {m}, it must be a whole number of at least 1 client"):
        select.concurrency(m)
    with pytest.raises(StrategyError, match=f"the cohort is {m}, it must be a whole number of at least 1 client"):
        select.cohort(m)


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_a_senseless_surplus_or_deadline_is_refused(value: float) -> None:
    with pytest.raises(StrategyError, match=f"over-selection is {value}"):
        select.cohort(2, over=value)
    if not value > 0:
        with pytest.raises(StrategyError, match=f"deadline is {value}"):
            select.cohort(2, deadline=value)


def test_labels_say_how_a_rule_is_written() -> None:
    assert [
        rule.label
        for rule in (
            select.all_idle(fresh=False),
            select.concurrency(3),
            select.concurrency(3, fresh=True),
            select.cohort(2),
            select.cohort(2, over=0.5),
            select.cohort(2, deadline=9.0),
        )
    ] == [
        "all_idle(fresh=False)",
        "concurrency(3)",
        "concurrency(3, fresh=True)",
        "cohort(2)",
        "cohort(2, over=0.5)",
        "cohort(2, deadline=9.0)",
    ]
