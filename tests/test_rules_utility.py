"""Selection by utility: who goes first, what a merge changes, and how credit is lost."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlag.core.strategy import Strategy
from fairlag.errors import StrategyError
from fairlag.rules import trigger, weigh
from fairlag.rules.local import Local
from fairlag.rules.utility import Credit, by_utility
from tests.support.scenes import Scene, handed
from tests.support.twins import outlier


def useful(
    places: int,
    *,
    buffer: int = 1,
    power: float = 0.5,
    window: int | None = None,
    credit: Credit | None = None,
    **exploring: float,
) -> Strategy:
    rule = by_utility(places, power=power, window=window, credit=credit, **exploring)
    return Strategy(rule, trigger.count(buffer), weigh.uniform, local=Local(losses=True))


def running(scene: Scene) -> list[int]:
    return sorted(task.client for task in scene.server.running.values())


def heard_of_all(strategy: Strategy, losses: Sequence[float], examples: Sequence[int] | None = None) -> Scene:
    """A scene with one place in which each client was heard of once, none of them late."""
    scene = Scene(strategy, len(losses))
    for _ in losses:
        (client,) = running(scene)
        scene.arrive(client, loss=losses[client], examples=1 if examples is None else examples[client])
    return scene


@pytest.mark.parametrize("seed", range(4))
def test_those_that_were_never_seen_go_first_in_an_order_that_the_seed_draws(seed: int) -> None:
    scene, order = Scene(useful(1), 5, seed=seed), []
    for _ in range(5):
        order += running(scene)
        scene.arrive(order[-1], loss=100.0)
    assert sorted(order) == [0, 1, 2, 3, 4]
    again = Scene(useful(1), 5, seed=seed)
    assert running(again) == order[:1]


def test_not_every_seed_draws_the_same_order() -> None:
    assert len({tuple(running(Scene(useful(2), 6, seed=seed))) for seed in range(10)}) > 3


def test_the_next_is_the_one_with_the_most_examples_times_loss() -> None:
    scene = heard_of_all(useful(1), [1.0, 3.0, 2.0, 0.5], [1, 1, 2, 6])
    assert running(scene) == [2]  # 1, 3, 4, 3
    scene.arrive(2, loss=0.0)
    assert running(scene)[0] in (1, 3)
    scene.arrive(running(scene)[0], loss=0.1)
    assert running(scene)[0] in (1, 3)


def test_a_loss_of_the_last_update_counts_and_not_those_before() -> None:
    scene = heard_of_all(useful(1), [5.0, 3.0])
    assert running(scene) == [0]
    scene.arrive(0, loss=4.0)
    assert running(scene) == [0]
    scene.arrive(0, loss=2.0)
    assert running(scene) == [1]


@pytest.mark.parametrize(("power", "first"), [(0.0, 0), (1.0, 1)])
def test_staleness_is_discounted_with_its_power(power: float, first: int) -> None:
    # Client 0 is one version late with its only update, client 1 is not: 3 · 2^−power against 2.
    scene = Scene(useful(2, power=power), 3)
    x, y = running(scene)
    (z,) = {0, 1, 2} - {x, y}
    scene.arrive(y, loss=2.0)  # version 1: z goes
    scene.arrive(x, loss=3.0)  # 1 version late; the better of x and y takes the place
    assert running(scene) == sorted([z, (x, y)[first]])


def test_a_window_forgets_old_staleness() -> None:
    # Client 0 is 4 versions late, and then in time twice: 4/3 over all of its past, 0 over the last two.
    for window, late in ((None, 4 / 3), (2, 0.0), (3, 4 / 3)):
        scene = Scene(useful(2, power=1.0, window=window), 2)
        for client in (1, 1, 1, 1, 0, 0, 0):
            scene.arrive(client, loss=2.0)
        assert [record.staleness.item() for record in scene.merged[4:]] == [4, 0, 0]
        assert scene.server._selector._utility(0) == pytest.approx(2 / (1 + late))  # type: ignore[attr-defined]


def test_who_has_sent_an_update_waits_until_it_is_merged_and_its_staleness_counts() -> None:
    # Two updates a version. x was in time; y comes 1 version late, which is known only when it is merged.
    scene = Scene(useful(2, buffer=2, power=1.0), 4)
    x, y = running(scene)
    scene.arrive(x, loss=2.0)
    z = next(client for client in running(scene) if client != y)
    scene.arrive(z, loss=0.1)  # version 1: x and z were in time
    w = next(client for client in running(scene) if client != y)
    scene.arrive(y, loss=3.0)  # it waits to be merged: x with 2 goes, though 3 is more
    assert running(scene) == sorted([w, x])
    scene.leave(y)
    assert handed(scene.join(y)) == [], "nor by coming back"
    scene.arrive(w, loss=1.6)  # version 2: of w's staleness 0, of y's 1, so that 3/(1 + 1) is less than 1.6
    assert running(scene) == sorted([w, x])


def test_if_all_wait_to_be_merged_they_are() -> None:
    scene = Scene(useful(2, buffer=5), 2)
    scene.arrive(0, loss=1.0)
    assert running(scene) == [1]
    scene.arrive(1, loss=1.0)
    assert running(scene) == [0, 1] and scene.merged[0].partial


# Exploration


@pytest.mark.parametrize(("explore", "goes"), [(1.0, False), (0.0, True)])
def test_a_place_goes_to_the_unseen_as_often_as_it_shall(explore: float, goes: bool) -> None:
    scene = Scene(useful(1, explore=explore), 4)
    first = running(scene)
    assert handed(scene.arrive(first[0], loss=1.0))[0][0] in ({first[0]} if goes else {0, 1, 2, 3} - {*first})


def test_a_place_is_given_away_at_random() -> None:
    explored = 0
    for seed in range(400):
        scene = Scene(useful(1, explore=0.3), 2, seed=seed)
        (first,) = running(scene)
        explored += handed(scene.arrive(first, loss=1.0))[0][0] != first
    assert abs(explored / 400 - 0.3) < 4 * math.sqrt(0.3 * 0.7 / 400)


def test_the_chance_of_the_unseen_decays_down_to_the_least() -> None:
    scene = Scene(useful(1, explore=0.9, decay=0.5, least=0.2), 9)
    chances = []
    for _ in range(5):
        chances.append(scene.server._selector._explore)  # type: ignore[attr-defined]
        scene.arrive(*running(scene), loss=1.0)
    assert chances == [0.45, 0.225, 0.2, 0.2, 0.2]


def test_of_several_places_as_many_as_drawn_go_to_the_unseen_and_the_rest_to_the_best() -> None:
    # Four of eight were heard of, and all go; when they come back at once, four places are free.
    explored = []
    for seed in range(100):
        scene = Scene(useful(4, buffer=4, explore=0.5), 8, seed=seed, join=False)
        scene.join(0, 1, 2, 3)
        for client in range(4):
            scene.arrive(client, loss=1.0 + client)
        for client in range(4):
            scene.leave(client)
        scene.join(*range(8))
        seen = [client for client in running(scene) if client < 4]
        assert len(running(scene)) == 4 and seen == [0, 1, 2, 3][4 - len(seen) :], "the best of those"
        explored.append(4 - len(seen))
    assert set(explored) == {0, 1, 2, 3, 4} and abs(sum(explored) / 100 - 2) < 4 * 1.0 / 10


@pytest.mark.parametrize("name", ["explore", "decay", "least"])
@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_a_chance_that_is_none_is_refused(name: str, value: float) -> None:
    with pytest.raises(StrategyError, match=f"{name} is {value}, it must be a number from 0 to 1"):
        by_utility(2, **{name: value})  # type: ignore[arg-type]


# Credit


def suspicious(**options: float) -> Strategy:
    return useful(4, credit=Credit(**{"credit": 2, "least": 3, **options}))  # type: ignore[arg-type]


def test_an_outlier_loses_credit_and_in_the_end_is_not_selected_any_more() -> None:
    scene = Scene(suspicious(), 4)
    for client, loss in ((0, 1.0), (1, 1.1), (2, 1.2)):
        scene.arrive(client, loss=loss)
    assert handed(scene.arrive(3, loss=9.0)) == [(3, 4)] and scene.server.waits_for.endswith("4 clients are present")
    assert handed(scene.arrive(3, loss=9.0)) == [] and running(scene) == [0, 1, 2]
    assert scene.server.waits_for.endswith("4 clients are present, but 1 of 4 clients have no credit left")
    scene.leave(3)
    assert handed(scene.join(3)) == [], "coming back gives no credit"
    for client in (0, 1, 2, 0, 1, 2):
        assert handed(scene.arrive(client, loss=1.1))
    assert running(scene) == [0, 1, 2]
    assert scene.server.waits_for.endswith("4 clients are present, but 1 of 4 clients have no credit left")


def test_whoever_runs_when_its_credit_ends_may_finish_and_is_still_merged() -> None:
    scene = Scene(useful(4, buffer=3, credit=Credit(credit=1, least=3)), 4)
    for client, loss in ((0, 1.0), (1, 1.1), (2, 1.2)):
        scene.arrive(client, loss=loss)
    scene.arrive(3, loss=9.0)
    scene.leave(3)
    scene.arrive(0, loss=1.0)
    assert handed(scene.join(3)) == []
    assert handed(scene.arrive(1, loss=1.0)) == [(0, 2), (1, 2)], "merged, and now its credit has ended"
    assert scene.server.view.update_counts[3] == 1 and scene.server.barred == 1


def test_losses_from_versions_far_apart_are_not_compared() -> None:
    for nearby, left in ((0, [0, 1, 2, 3]), (9, [0, 1, 2])):
        scene = Scene(suspicious(nearby=nearby, credit=1), 4)
        for client in (0, 1, 2, 0, 1, 2):
            scene.arrive(client, loss=1.0)
        scene.arrive(0, loss=1.0)
        scene.fail(3)  # it is given version 7
        scene.arrive(3, loss=9.0)
        assert running(scene) == left


def test_only_the_last_losses_are_looked_at() -> None:
    for pool, left in ((3, [0, 1, 2]), (2, [0, 1, 2, 3])):
        scene = Scene(suspicious(pool=pool, credit=1), 4)
        for client in (0, 1):
            scene.arrive(client, loss=1.0)
        scene.arrive(3, loss=9.0)
        assert running(scene) == left, "a pool of two never holds the three that suspicion needs"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 30).map(lambda value: value / 4), min_size=5, max_size=12), st.integers(1, 5))
def test_an_outlier_is_what_no_cluster_reaches(losses: list[float], least: int) -> None:
    place = len(losses) - 1
    assert Credit(reach=0.5, least=least).outlier(losses, place) == outlier(losses, place, 0.5, least)


@pytest.mark.parametrize(
    ("name", "value"), [("credit", 0), ("nearby", -1), ("pool", 0), ("least", 0), ("reach", 0.0), ("reach", math.inf)]
)
def test_a_credit_that_makes_no_sense_is_refused(name: str, value: float) -> None:
    with pytest.raises(StrategyError, match=f"{name} is {value}, it must be a"):
        Credit(**{name: value})  # type: ignore[arg-type]


def test_a_long_life_needs_no_more_memory() -> None:
    scene = Scene(useful(2), 6)
    for _ in range(300):  # those of little use come and go, and are never taken from the queue
        for client in (2, 3, 4, 5):
            if client not in running(scene):
                scene.leave(client)
                scene.join(client)
        client = running(scene)[0]
        scene.arrive(client, loss=1.0 if client < 2 else 1e-6)
    assert len(scene.server._selector._seen._heap) <= 2 * 6 + 16  # type: ignore[attr-defined]
