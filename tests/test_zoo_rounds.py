"""FedProx, FedNova and SAFA: rounds computed by hand, and the limits in which they are FedAvg."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlag import zoo
from fairlag.core.strategy import Strategy
from fairlag.rules.local import Local
from tests.support.scenes import Scene, cancelled, handed, vec

ROUNDS = [((0, 0.1, 3), (1, 0.7, 9), (2, -2.3, 1)), ((2, 1e-3, 7), (0, 0.3, 3), (1, -0.9, 2))]
"""Who sends what, and how many examples are said to be behind it."""


def after_rounds(strategy: Strategy, **said: float) -> Scene:
    """Two whole rounds of three clients, whose reports besides examples are all the same."""
    scene = Scene(strategy, 3, parameters=vec(1, -0.0))
    for arrivals in ROUNDS:
        for client, x, examples in arrivals:
            scene.arrive(client, x, x / 3, examples=examples, effort=said.get("effort", 1.0))
    assert scene.server.view.version == 2
    return scene


# FedProx


@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_the_server_of_fedprox_is_that_of_fedavg_bit_for_bit(mu: float) -> None:
    one, other = after_rounds(zoo.fedprox(mu=mu, cohort=3, lr=0.7)), after_rounds(zoo.fedavg(cohort=3, lr=0.7))
    assert one.weights == other.weights
    assert one.server.versions.newest.tobytes() == other.server.versions.newest.tobytes()


def test_fedprox_asks_its_clients_for_the_proximal_term_and_for_nothing_else() -> None:
    options = {"cohort": 4, "over": 0.5, "deadline": 7.0}
    assert zoo.ALGORITHMS["fedprox"].make(mu=0.3, **options).local == Local(prox=0.3)
    given = repr(zoo.ALGORITHMS["fedprox"].make(mu=0.3, **options))
    assert given.replace(", local=Local(prox=0.3)", "") == repr(zoo.ALGORITHMS["fedavg"].make(**options))


# FedNova


def test_fednova_weighs_against_the_steps() -> None:
    # p = 1/4, 3/4 and a = 2, 4: Σ p a = 3.5, weights p · 3.5 / a
    scene = Scene(zoo.fednova(cohort=2), 2, parameters=vec(0, 0))
    scene.arrive(0, 8, 0, examples=10, steps=2, effort=2.0)
    scene.arrive(1, 0, 8, examples=30, steps=4, effort=4.0)
    assert scene.weights == [[0.4375, 0.65625]] and scene.parameters == [3.5, 5.25]


def with_momentum(steps: int, rho: float) -> float:
    return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)


def test_fednova_weighs_by_what_gradients_count_with_local_momentum() -> None:
    # a(1) = 1 and a(3) = (3 − 0.875)/0.5 = 4.25, though the steps are 1 and 3: Σ p a = 2.625
    assert with_momentum(1, 0.5) == 1.0 and with_momentum(3, 0.5) == 4.25
    scene = Scene(zoo.fednova(cohort=2), 2, parameters=vec(0, 0))
    scene.arrive(0, 8, 0, steps=1, effort=1.0)
    scene.arrive(1, 0, 34, steps=3, effort=4.25)
    assert scene.weights == [pytest.approx([1.3125, 2.625 / 8.5], rel=1e-15)]
    assert scene.parameters == pytest.approx([10.5, 10.5], rel=1e-6)


@pytest.mark.parametrize("effort", [1.0, 7.0, 1000.0])
def test_fednova_with_equal_steps_is_fedavg_bit_for_bit(effort: float) -> None:
    nova, plain = after_rounds(zoo.fednova(cohort=3), effort=effort), after_rounds(zoo.fedavg(cohort=3))
    assert nova.weights == plain.weights
    assert nova.server.versions.newest.tobytes() == plain.server.versions.newest.tobytes()


def test_fednova_with_equal_steps_and_momentum_is_fedavg() -> None:
    nova = after_rounds(zoo.fednova(cohort=3), effort=with_momentum(7, 0.9))
    plain = after_rounds(zoo.fedavg(cohort=3))
    assert nova.weights == [pytest.approx(each, rel=1e-14) for each in plain.weights]


@pytest.mark.parametrize(("cap", "total"), [({}, 10.0), ({"cap": 2.5}, 2.5), ({"cap": None}, 2500.500025)])
def test_the_weights_of_fednova_are_bounded(cap: dict[str, float | None], total: float) -> None:
    """Beside a client of effort 10,000, so that the mean is 5,000.5, one of effort 1 would weigh 2,500.25."""
    scene = Scene(zoo.ALGORITHMS["fednova"].make(cohort=2, **cap), 2, parameters=vec(0))
    scene.arrive(0, 1, effort=1.0)
    scene.arrive(1, 1, effort=10_000.0)
    assert sum(scene.weights[0]) == pytest.approx(total)


SENT = st.tuples(st.integers(1, 500), st.integers(1, 60), st.sampled_from([0.0, 0.5, 0.9]), st.integers(-99, 99))


@settings(max_examples=30, deadline=None)
@given(st.lists(SENT, min_size=1, max_size=6))
def test_fednova_is_the_mean_of_normalised_updates_times_the_mean_effort(
    sent: list[tuple[int, int, float, int]],
) -> None:
    scene = Scene(zoo.fednova(cohort=len(sent), cap=None, lr=0.5), len(sent), parameters=vec(3))
    total, effort, normalised = sum(examples for examples, *_ in sent), 0.0, 0.0
    for client, (examples, steps, rho, x) in enumerate(sent):
        # Every step's gradient counts once for each later step that its momentum still pushes.
        counts = sum(sum(rho**later for later in range(steps - step)) for step in range(steps))
        scene.arrive(client, x, examples=examples, steps=steps, effort=counts)
        effort += examples / total * counts
        normalised += examples / total * x / counts
        assert with_momentum(steps, rho) == pytest.approx(counts)
    assert scene.parameters == pytest.approx([3 + 0.5 * effort * normalised], rel=1e-5, abs=1e-4)


# SAFA


def test_safa_drafts_those_first_that_were_not_drafted_last_and_keeps_the_others_for_the_next_round() -> None:
    scene = Scene(zoo.safa(share=0.5, lag=1), 4, parameters=vec(0))
    assert handed(scene.first) == [(0, 0), (1, 0), (2, 0), (3, 0)]
    # Round 1: 0 and 1 fill the quota; the cache is 4, 8, 0, 0. The others go on.
    assert scene.arrive(0, 4) == []
    assert handed(scene.arrive(1, 8)) == [(0, 1), (1, 1)] and scene.parameters == [3]
    # Round 2: 0 and 1 come first, with models of 4 and 9, but 2 and 3 are drafted: 4, 8, 8, 4. Then 4, 9, 8, 4.
    for client, x in ((0, 1), (1, 6), (2, 8)):
        assert scene.arrive(client, x) == []
    commands = scene.arrive(3, 4)
    assert handed(commands) == [(0, 2), (1, 2), (2, 2), (3, 2)] and cancelled(commands) == []
    assert scene.parameters == [6]
    # Round 3: 2 comes first, with 12, but 1 and 0 are drafted: 16, 8, 8, 4. Then 16, 8, 12, 4.
    assert scene.arrive(2, 6) == [] and scene.arrive(1, 2) == []
    assert handed(scene.arrive(0, 10)) == [(2, 3), (1, 3), (0, 3)] and scene.parameters == [9]
    # Round 4: 3, still from version 2, and 2 again: 16, 8, 9, 5.
    scene.arrive(3, -1)
    assert handed(scene.arrive(2, 0)) == [(3, 4), (2, 4)] and scene.parameters == [9.5]
    assert scene.weights == [[0.25] * 2, [0.25] * 4, [0.25] * 3, [0.25] * 2]
    assert [record.staleness.tolist() for record in scene.merged] == [[0, 0], [0, 0, 1, 1], [0, 0, 0], [1, 0]]


def test_safa_calls_off_who_is_too_far_behind_and_counts_it_with_the_model_it_was_given() -> None:
    scene = Scene(zoo.safa(share=1 / 3, lag=1), 3, parameters=vec(0))
    assert handed(scene.arrive(0, 3)) == [(0, 1)] and scene.parameters == [1]  # 3, 0, 0
    commands = scene.arrive(1, 6)  # 3, 6, 0; client 2 is now 2 behind
    assert scene.parameters == [3] and cancelled(commands) == [2] and handed(commands) == [(1, 2), (2, 2)]
    assert [(each.task.task, each.outcome, each.reason) for each in scene.ended] == [
        (2, "cancelled", "more than 1 versions behind")
    ]
    assert handed(scene.arrive(0, 5)) == [(0, 3)] and scene.parameters == [5]  # 6, 6, and version 2 = 3
    commands = scene.arrive(2, 9)  # 6, 6, 3 + 9; now client 1 is 2 behind
    assert handed(commands) == [(2, 4), (1, 4)] and scene.parameters == [8]
    assert scene.server.counts["cancelled"] == 2 and scene.server.versions.kept == (3, 4)


def test_safa_averages_by_the_examples_that_clients_have_now() -> None:
    scene = Scene(zoo.safa(share=0.5), 2, parameters=vec(0), examples=[1, 3])
    scene.arrive(0, 8, examples=1)
    assert scene.parameters == [2] and scene.weights == [[0.25]]
    scene.arrive(1, 4, examples=7)
    assert scene.parameters == [4.5] and scene.weights[-1] == [0.875]  # 8/8 + 7/8 · 4


def test_safa_takes_a_server_learning_rate() -> None:
    scene = Scene(zoo.safa(share=1.0, lr=0.5), 2, parameters=vec(2))
    scene.arrive(0, 4)
    scene.arrive(1, 8)
    assert scene.parameters == [5]


@pytest.mark.parametrize("lag", [0, 3])
def test_safa_that_drafts_everyone_is_fedavg_by_examples(lag: int) -> None:
    random = np.random.default_rng(lag)
    examples = [5, 1, 14]
    safa = Scene(zoo.safa(share=1.0, lag=lag), 3, parameters=vec(1, -2), examples=examples)
    fedavg = Scene(zoo.fedavg(cohort=3), 3, parameters=vec(1, -2))
    for _ in range(20):
        for client in random.permutation(3).tolist():
            delta = random.normal(size=2).tolist()
            for scene in (safa, fedavg):
                scene.arrive(client, *delta, examples=examples[client])
        assert np.allclose(safa.parameters, fedavg.parameters, rtol=1e-5, atol=1e-5)
    assert safa.weights == fedavg.weights and len(safa.weights) == 20


# What coincides in the limit


def test_fedbuff_with_a_whole_cohort_and_no_staleness_is_fedavg_bit_for_bit() -> None:
    # Four places and four examples each: powers of two, so that 1/4 is n/Σn to the bit, as is 4/16.
    buff = Scene(zoo.fedbuff(buffer=4, concurrency=4, lr=0.3), 4, parameters=vec(0, 1))
    plain = Scene(zoo.fedavg(cohort=4, lr=0.3), 4, parameters=vec(0, 1))
    random = np.random.default_rng(0)
    for scene in (buff, plain):
        assert sorted(handed(scene.first)) == [(0, 0), (1, 0), (2, 0), (3, 0)]
    deltas = random.normal(size=(4, 2)).tolist()
    for client, delta in enumerate(deltas):
        for scene in (buff, plain):
            scene.arrive(client, *delta, examples=4)
    assert buff.weights == plain.weights == [[0.25] * 4]
    assert buff.server.versions.newest.tobytes() == plain.server.versions.newest.tobytes()


def test_fedfix_with_a_long_interval_is_fedavg_with_everyone_bit_for_bit() -> None:
    random = np.random.default_rng(1)
    examples = [3, 10, 1, 6]
    fix = Scene(zoo.fedfix(interval=100.0, lr=0.9), 4, parameters=vec(0.1, 1), examples=examples)
    plain = Scene(zoo.fedavg(cohort=4, lr=0.9), 4, parameters=vec(0.1, 1))
    for number in range(8):
        for client in random.permutation(4).tolist():
            delta = random.normal(size=2).tolist()
            for scene in (fix, plain):
                scene.arrive(client, *delta, examples=examples[client])
        fix.wake(100.0 * (number + 1))
        plain.time = fix.time
        assert fix.server.versions.newest.tobytes() == plain.server.versions.newest.tobytes()
    assert fix.weights == plain.weights and len(fix.weights) == 8


def test_fairshare_in_its_corner_is_fedstaleweight_bit_for_bit_in_a_long_life() -> None:
    random = np.random.default_rng(2)
    ours = Scene(
        zoo.fairshare(buffer=3, estimator="staleness", normalise="buffer", cap=None), 5, parameters=vec(0.1, 1)
    )
    theirs = Scene(zoo.fedstaleweight(buffer=3), 5, parameters=vec(0.1, 1))
    for _ in range(120):
        running = sorted(task.client for task in ours.server.running.values())
        client = running[int(len(running) * random.random() ** 2)]
        delta = random.normal(size=2).tolist()
        for scene in (ours, theirs):
            scene.arrive(client, *delta)
    assert ours.weights == theirs.weights and len(ours.weights) == 40
    assert max(record.staleness.max() for record in ours.merged) > 2
    assert ours.server.versions.newest.tobytes() == theirs.server.versions.newest.tobytes()


def test_fedavgm_without_momentum_is_fedavg_bit_for_bit_in_a_long_life() -> None:
    random = np.random.default_rng(3)
    scenes = [Scene(each, 3, parameters=vec(0, 1)) for each in (zoo.fedavg(cohort=3), zoo.fedavgm(cohort=3, beta=0.0))]
    for _ in range(30):
        for client in range(3):
            delta, examples = random.normal(size=2).tolist(), int(random.integers(1, 50))
            for scene in scenes:
                scene.arrive(client, *delta, examples=examples)
    assert scenes[0].weights == scenes[1].weights and len(scenes[0].weights) == 30
    assert scenes[0].server.versions.newest.tobytes() == scenes[1].server.versions.newest.tobytes()


def test_a_quota_is_a_share_rounded_up() -> None:
    for clients, share, quota in ((10, 0.3, 3), (10, 0.31, 4), (3, 1 / 3, 1), (3, 2 / 3, 2), (1, 0.01, 1)):
        scene = Scene(zoo.safa(share=share), clients)
        assert scene.server.view.target == quota == math.ceil(round(share * clients, 9))
