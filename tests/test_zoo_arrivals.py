"""The methods that merge updates as they come: timelines computed by hand, and the limits that must coincide."""

import math
from typing import Any

import numpy as np
import pytest

from fairlag import zoo
from fairlag.core.types import Command, Dispatch
from fairlag.rules.local import Local
from tests.support.scenes import Scene, handed, vec, wakes


def asked(commands: list[Command]) -> list[tuple[int, int, int]]:
    """The (client, version, steps) of every Dispatch."""
    return [(each.client, each.version, each.steps) for each in commands if isinstance(each, Dispatch)]


# FedAsync


@pytest.mark.parametrize(
    ("options", "discount", "end"),
    [
        ({"staleness": "constant"}, 1, 9.0),
        ({"staleness": "polynomial", "power": 1.0}, 1 / 3, 7.0),
        ({"staleness": "polynomial", "power": 0.5}, 3**-0.5, 6 + 3 * 3**-0.5),
        ({"staleness": "hinge", "slope": 4.0, "start": 1.0}, 1 / 5, 6.6),
        ({"staleness": "hinge", "slope": 4.0, "start": 2.0}, 1, 9.0),
    ],
)
def test_fedasync_mixes_whole_models_and_stale_ones_less(options: dict[str, Any], discount: float, end: float) -> None:
    scene = Scene(zoo.fedasync(alpha=0.5, **options), 2, parameters=vec(0))
    assert handed(scene.arrive(0, 8)) == [(0, 1)] and scene.parameters == [4]  # 0 and 8
    assert handed(scene.arrive(0, 4)) == [(0, 2)] and scene.parameters == [6]  # 4 and 8
    assert handed(scene.arrive(1, 12)) == [(1, 3)]  # 6 and 12, from version 0
    assert scene.weights == [[0.5], [0.5], pytest.approx([0.5 * discount], rel=1e-15)]
    assert scene.parameters == pytest.approx([end], rel=1e-6)


def test_fedasync_drops_what_is_too_stale() -> None:
    scene = Scene(zoo.fedasync(alpha=0.5, max_staleness=1), 2, parameters=vec(0))
    scene.arrive(0, 8)
    scene.arrive(0, 4)
    assert handed(scene.arrive(1, 12)) == [(1, 2)]
    assert scene.parameters == [6] and scene.server.refusals == {"staler than 1": 1}
    scene.arrive(0, 0)
    scene.arrive(1, 0)  # by one version: that is still admitted
    assert scene.server.view.version == 4


def test_the_defaults_of_fedasync_are_those_of_the_paper() -> None:
    strategy = zoo.fedasync()
    assert strategy.local == Local(prox=0.005)
    scene = Scene(strategy, 2, parameters=vec(0))
    for client in (0, 0, 0, 1):
        scene.arrive(client, 1)
    assert scene.weights[0] == [0.6] and scene.weights[3] == pytest.approx([0.6 * 4**-0.5], rel=1e-15)
    hinged = Scene(zoo.fedasync(staleness="hinge"), 2, parameters=vec(0))
    for client in (0, 0, 0, 0, 1, *(0,) * 5, 1):
        hinged.arrive(client, 1)
    assert [record.staleness.tolist() for record in hinged.merged if record.tasks[0].client] == [[4], [5]]
    assert hinged.weights[4] == [0.6] and hinged.weights[-1] == pytest.approx([0.6 / 11], rel=1e-15)


def test_fedasync_with_one_client_and_alpha_1_is_the_sum_of_its_updates_bit_for_bit() -> None:
    scene, total = Scene(zoo.fedasync(alpha=1.0), 1, parameters=vec(1, -2)), vec(1, -2)
    for delta in np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32):
        scene.arrive(0, *delta.tolist())
        total = total + delta
        assert scene.server.versions.newest.tobytes() == total.tobytes()
    assert scene.weights == [[1.0]] * 50


# Asynchronous FedAvg


def test_async_fedavg_weighs_by_the_running_sum_of_rates() -> None:
    scene = Scene(zoo.async_fedavg(importance="uniform"), 2, parameters=vec(0))
    scene.arrive(0, 8, at=2.0)  # Σ 1/T = 1/2: 1/2 · 2 / 2
    assert scene.weights == [[0.5]] and scene.parameters == [4]
    scene.arrive(1, 2, at=8.0)  # Σ 1/T = 1/2 + 1/8: 5/8 · 8 / 2
    assert scene.weights[-1] == [2.5] and scene.parameters == [9]
    scene.arrive(0, 4, at=8.0)  # T = (2 + 6)/2, Σ 1/T = 1/4 + 1/8: 3/8 · 4 / 2
    assert scene.weights[-1] == [0.75] and scene.parameters == [12]
    assert scene.server.view.rate == 0.375


def test_async_fedavg_weighs_by_examples_and_takes_a_rate() -> None:
    scene = Scene(zoo.async_fedavg(lr=0.5), 2, parameters=vec(0), examples=[10, 30])
    scene.arrive(0, 8, examples=10, at=2.0)
    assert scene.weights == [[0.25]] and scene.parameters == [1]
    scene.arrive(1, 2, examples=30, at=8.0)  # 5/8 · 8 · 3/4
    assert scene.weights[-1] == [3.75] and scene.parameters == [4.75]


def test_async_fedavg_gives_every_client_the_same_influence() -> None:
    scene = Scene(zoo.async_fedavg(importance="uniform"), 2, parameters=vec(0, 0))
    for tick in range(1, 801):
        if tick % 8 == 0:
            scene.arrive(1, at=float(tick))
        scene.arrive(0, at=float(tick))
    shares = scene.server.view.weight_sums / scene.server.view.weight_sums.sum()
    assert shares.tolist() == pytest.approx([0.5, 0.5], abs=0.01)


HOUR = 3600.0
CAPS: list[tuple[dict[str, float | None], float]] = [({}, 10.0), ({"cap": 25.0}, 25.0), ({"cap": None}, math.inf)]


@pytest.mark.parametrize(("cap", "most"), CAPS)
def test_one_answer_that_comes_an_hour_late_is_bounded(cap: dict[str, float | None], most: float) -> None:
    """Without a cap it weighs 3,600 · (1 + 1/3,600) / 2 = 1,800.5 and ⌈3,600/5⌉ / 2 = 360."""
    scene = Scene(zoo.ALGORITHMS["async_fedavg"].make(importance="uniform", **cap), 2, parameters=vec(0))
    scene.arrive(0, 1, at=1.0)
    scene.arrive(1, 1, at=HOUR)
    assert scene.weights[-1] == [pytest.approx(min(1800.5, most))]
    scene = Scene(zoo.ALGORITHMS["fedfix"].make(interval=5.0, importance="uniform", **cap), 2, parameters=vec(0))
    scene.arrive(1, 1, at=HOUR)
    scene.wake(HOUR)
    assert scene.weights[-1] == [pytest.approx(min(360.0, most))]


def test_a_task_that_takes_no_time_still_counts_in_async_fedavg() -> None:
    scene = Scene(zoo.async_fedavg(importance="uniform"), 2, parameters=vec(0))
    scene.arrive(0, 8, at=0.0)
    assert scene.weights == [pytest.approx([0.5])]


# FedFix


def test_fedfix_merges_at_each_tick_what_has_arrived() -> None:
    scene = Scene(zoo.fedfix(interval=5.0, importance="uniform"), 3, parameters=vec(0, 0, 0))
    assert wakes(scene.first) == [5.0]
    assert scene.arrive(0, at=2.0) == []  # it waits until its update is merged
    commands = scene.wake(5.0)
    assert handed(commands) == [(0, 1)] and wakes(commands) == [10.0]
    assert scene.arrive(1, at=7.0) == [] and scene.arrive(0, at=9.0) == []
    assert handed(scene.wake(10.0)) == [(1, 2), (0, 2)]
    assert handed(scene.wake(15.0)) == [] and scene.server.view.version == 2  # nothing arrived: no version
    assert scene.arrive(2, at=16.0) == []
    commands = scene.wake(20.0)
    assert handed(commands) == [(2, 3)] and wakes(commands) == [25.0]
    # ⌈T/5⌉/3 with T = 2; 7 and (2 + 4)/2; 16
    assert scene.weights == [[1 / 3], [2 / 3, 1 / 3], [4 / 3]]
    assert scene.parameters == pytest.approx([2 / 3, 2 / 3, 4 / 3])
    assert [record.time for record in scene.merged] == [5.0, 10.0, 20.0]


def test_fedfix_weighs_by_examples() -> None:
    scene = Scene(zoo.fedfix(interval=5.0, lr=0.5), 2, parameters=vec(0), examples=[2, 6])
    scene.arrive(1, 8, examples=6, at=5.0)  # T = 5 is one interval, not two
    scene.wake(5.0)
    assert scene.weights == [[0.75]] and scene.parameters == [3]
    scene.arrive(0, 8, examples=2, at=5.5)
    scene.wake(10.0)
    assert scene.weights[-1] == [0.5] and scene.parameters == [5]


def test_fedfix_takes_three_intervals_for_three_though_their_sum_is_rounded_up() -> None:
    scene = Scene(zoo.fedfix(interval=0.1, importance="uniform"), 1, parameters=vec(0))
    scene.arrive(0, 1, at=0.1 * 3)  # 0.30000000000000004
    scene.wake(0.4)
    assert scene.weights == [[3.0]]


def test_who_comes_back_to_fedfix_waits_until_its_late_update_is_merged() -> None:
    scene = Scene(zoo.fedfix(interval=5.0), 2, parameters=vec(0))
    scene.arrive(0, 1, at=1.0)
    scene.wake(5.0)
    scene.arrive(1, 1, at=6.0)  # from version 0
    scene.leave(1, at=7.0)
    assert handed(scene.join(1, at=8.0)) == []
    assert handed(scene.wake(10.0)) == [(1, 2)]


# AsyncFedED


def test_asyncfeded_weighs_by_drift_and_sets_the_steps() -> None:
    scene = Scene(zoo.asyncfeded(target=1.0, gain=2.0, steps=2), 2, parameters=vec(0, 0))
    assert asked(scene.first) == [(0, 0, 2), (1, 0, 2)]
    # γ = 0: the weight is 1/(0 + 1), K = 2 + (1 − 0) · 2
    assert asked(scene.arrive(0, 3, 4)) == [(0, 1, 4)]
    # γ = 5/2: 1/3.5 and 2 + (1 − 2.5) · 2 = −1, at least 1
    assert asked(scene.arrive(1, 0, 2)) == [(1, 2, 1)]
    assert scene.weights == [[1.0], [1 / 3.5]]
    assert scene.parameters == pytest.approx([3, 4 + 2 / 3.5], rel=1e-6)
    # γ = (2/3.5)/8 = 1/14: K = 4 + round(13/7)
    assert asked(scene.arrive(0, 8, 0)) == [(0, 3, 6)]
    assert scene.weights[-1] == pytest.approx([14 / 15], rel=1e-6)
    assert asked(scene.arrive(1, 0, 8)) == [(1, 4, 1)]  # γ = (8 · 14/15)/8: 1 + round(2/15)


def test_asyncfeded_has_a_factor_and_a_regularisation() -> None:
    scene = Scene(zoo.asyncfeded(factor=0.5, eps=0.25), 2, parameters=vec(0, 0))
    scene.arrive(0, 3, 4)
    scene.arrive(1, 0, 1)  # the model moved by 10
    assert scene.weights == [[2.0], [0.5 / 10.25]]


@pytest.mark.parametrize(("limit", "refused"), [(2.0, 1), (2.5, 0)])
def test_asyncfeded_drops_what_the_model_has_moved_away_from(limit: float, refused: int) -> None:
    scene = Scene(zoo.asyncfeded(steps=2, max_gamma=limit), 2, parameters=vec(0, 0))
    scene.arrive(0, 3, 4)
    commands = scene.arrive(1, 0, 2)
    assert scene.server.refusals == ({f"drift above {limit}": 1} if refused else {})
    assert scene.server.view.version == 2 - refused
    if refused:  # nothing is learnt from what is dropped
        assert asked(commands) == [(1, 1, 2)] and scene.parameters == [3, 4]


def test_an_update_of_no_length_counts_nothing_and_asks_for_one_step() -> None:
    scene = Scene(zoo.asyncfeded(steps=9), 2, parameters=vec(0, 0))
    scene.arrive(0, 3, 4)
    assert asked(scene.arrive(1, 0, 0)) == [(1, 2, 1)]
    assert scene.weights[-1] == [0.0] and scene.parameters == [3, 4]
    assert asked(scene.arrive(0, 0, 0)) == [(0, 3, 15)]  # the model has not moved: γ = 0, twice 3 more steps


# ASO-Fed


def test_asofed_replaces_a_clients_last_model_by_its_share_of_the_data_at_that_time() -> None:
    scene = Scene(zoo.asofed(), 2, parameters=vec(0))
    scene.arrive(0, 4)  # 1/2 · (4 − 0)
    assert scene.parameters == [2]
    scene.arrive(0, 4)  # 1/2 · (6 − 4)
    assert scene.parameters == [3]
    scene.arrive(1, 8, examples=3)  # from version 0: 3/4 · (8 − 0)
    assert scene.parameters == [9]
    scene.arrive(0, -1, examples=5)  # from version 2: 5/8 · (2 − 6)
    assert scene.parameters == [6.5]
    assert scene.weights == [[1 / 2], [1 / 2], [3 / 4], [5 / 8]]


def test_asofed_lets_slow_clients_take_longer_steps() -> None:
    scene = Scene(zoo.asofed(), 2, parameters=vec(0))
    paces = [scene.tasks[0].pace]
    for at in (math.e**3, math.e**3 + 2.0):
        scene.arrive(0, 1, at=at)
        paces.append(scene.tasks[0].pace)
    assert paces == [1.0, pytest.approx(3.0), pytest.approx(math.log((math.e**3 + 2.0) / 2))]
    scene.arrive(1, 1, at=math.e**3 + 2.5)
    scene.arrive(1, 1, at=math.e**3 + 2.75)
    assert scene.tasks[1].pace == pytest.approx(math.log((math.e**3 + 2.75) / 2))
    quick = Scene(zoo.asofed(), 1, parameters=vec(0))
    quick.arrive(0, 1, at=2.0)  # ln 2 is below 1
    assert quick.tasks[0].pace == 1.0


@pytest.mark.parametrize(("kind", "length"), [("paper", 1), ("normalised", 2)])
def test_asofed_turns_its_attention_to_the_first_layer_after_the_step(kind: Any, length: int) -> None:
    scene = Scene(zoo.asofed(attention=kind), 1, parameters=vec(0, 0))
    scene.arrive(0, 1, 3)
    shares = np.exp([1.0, 3.0]) / np.exp([1.0, 3.0]).sum()
    assert scene.parameters == pytest.approx((length * np.array([1.0, 3.0]) * shares).tolist(), rel=1e-6)


def test_asofed_with_one_client_is_the_sum_of_its_updates() -> None:
    scene = Scene(zoo.asofed(), 1, parameters=vec(1, -2))
    whole = Scene(zoo.asofed(), 1, parameters=vec(1, -2))
    total, exact = vec(1, -2), np.array([1, -2])
    random = np.random.default_rng(0)
    for _ in range(40):
        scene.arrive(0, *(delta := random.normal(size=2)).tolist())
        total = total + delta.astype(np.float32)
        assert np.allclose(scene.parameters, total, rtol=1e-5, atol=1e-5)
        whole.arrive(0, *(numbers := random.integers(-9, 9, 2)).tolist())
        exact = exact + numbers
    assert whole.parameters == exact.tolist() and whole.weights == [[1.0]] * 40


# Pisces


def test_pisces_sends_the_most_useful_and_merges_at_the_pace_of_the_slowest() -> None:
    made = zoo.pisces(concurrency=2, explore=1.0, decay=1.0, unseen=8.0)  # the bound is 2
    scene = Scene(made, 4, parameters=vec(0, 0, 0, 0))
    a, b = (client for client, _ in handed(scene.first))
    assert wakes(scene.first) == [4.0]
    commands = scene.arrive(a, examples=2, loss=1.0, at=2.0)  # b was never heard of: due at 8/2
    ((c, version),) = handed(commands)
    assert version == 0 and c not in (a, b) and wakes(commands) == []
    assert handed(scene.wake(4.0)) == [] and scene.server.view.version == 1, "no place is free"
    commands = scene.arrive(b, loss=3.0, at=6.0)
    ((d, version),) = handed(commands)
    assert version == 1 and {a, b, c, d} == {0, 1, 2, 3} and wakes(commands) == [], "those never seen go first"
    commands = scene.wake(8.0)  # due at 4 + 8/2, as c and d were never heard of
    assert scene.server.view.version == 2 and handed(commands) == [] and wakes(commands) == [12.0]
    # a: 2 · 1; b: 3 · 2^−½, as it was 1 version late: b goes, which usually takes 6; d is still unknown
    commands = scene.arrive(c, loss=0.1, at=9.0)
    assert handed(commands) == [(b, 2)] and wakes(commands) == []
    commands = scene.arrive(d, loss=9.0, at=10.0)  # now the slowest takes 6: due at 8 + 6/2
    assert handed(commands) == [(a, 2)] and wakes(commands) == [11.0]
    scene.wake(11.0)
    assert [record.time for record in scene.merged] == [4.0, 8.0, 11.0]
    # c is 2 versions late and d 1: of one example each
    assert scene.weights == [[1.0], [pytest.approx(2**-0.5)], pytest.approx([0.5 * 3**-0.5, 0.5 * 2**-0.5])]


def test_pisces_weighs_by_examples_and_staleness() -> None:
    scene = Scene(zoo.pisces(concurrency=3, unseen=30.0), 3, parameters=vec(0))
    for client in range(3):
        scene.arrive(client, 1, examples=client + 1, loss=1.0)
    assert scene.weights == [[1 / 6, 2 / 6, 3 / 6]] and scene.parameters == pytest.approx([1])


def test_pisces_bars_nobody_unless_asked_to() -> None:
    wild = zoo.pisces(concurrency=4, unseen=0.0), zoo.pisces(concurrency=4, unseen=0.0, credit=1)
    for strategy, barred in zip(wild, (0, 1), strict=True):
        scene = Scene(strategy, 6)
        for number in range(60):
            client = sorted(task.client for task in scene.server.running.values())[number % 4]
            scene.arrive(client, loss=1.0 if client else 50.0)
        assert scene.server.barred == barred


def test_pisces_asks_for_losses_and_no_more() -> None:
    assert zoo.pisces().local == Local(losses=True)
    assert zoo.pisces(window=4).window == 4 and zoo.pisces().window == 5 and zoo.pisces(window=None).window == 0


READERS = {
    "safa": ("reduce",),
    "fedasync": ("edit",),
    "asyncfeded": ("local", "weigh"),
    "asofed": ("reduce",),
    "pisces": ("local",),
    "ringleader": ("reduce",),
    "fedcompass": ("edit",),
    "qfedavg": ("local", "weigh"),
    "fedfa": ("reduce",),
    **dict.fromkeys(("mifa", "fedvarp", "fedstale", "ca2fl", "ace", "area"), ("reduce",)),
}


@pytest.mark.parametrize("name", zoo.ALGORITHMS)
def test_a_strategy_says_which_of_its_rules_read_single_updates(name: str) -> None:
    assert zoo.ALGORITHMS[name].make().readers == READERS.get(name, ())


def test_refusing_by_drift_or_rules_of_steps_read_single_updates_but_refusing_by_staleness_does_not() -> None:
    assert zoo.asyncfeded(max_gamma=3.0).readers == ("local", "weigh", "admit")
    assert zoo.fedbuff(max_staleness=3).readers == ()
    assert zoo.fedasync(max_staleness=3).readers == ("edit",)
