"""Newer methods that decide when an update counts: timelines computed by hand, and the limits that must coincide."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fairlag import zoo
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Dispatch, Row
from fairlag.core.vector import Layout
from fairlag.errors import StrategyError
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.rules import apply, select, trigger, weigh
from fairlag.rules.local import Local
from fairlag.runtime import virtual
from tests.support.scenes import Scene, cancelled, handed, vec, wakes

Sent = Sequence[tuple[int, float]]
"""Who sends what, in the order of arrival."""

PLAIN = zoo.buffered_fedavg(buffer=1)
"""Plain asynchronous SGD: every arrival is added to the newest model."""
SENT: Sent = [(0, 0.3), (1, -0.7), (0, 1e-3), (2, 0.1), (0, 5.0), (1, 0.2), (2, -0.9), (0, 0.4)]
"""Nobody is more than four versions late."""


def after(strategy: Strategy, sent: Sent, *, clients: int = 3) -> Scene:
    scene = Scene(strategy, clients, parameters=vec(1, -2))
    for client, x in sent:
        scene.arrive(client, x, -x / 3)
    return scene


def same_bytes(one: Scene, other: Scene) -> bool:
    assert one.server.view.version == other.server.view.version > 0
    return one.server.versions.newest.tobytes() == other.server.versions.newest.tobytes()


def steps_of(scene: Scene) -> dict[int, int]:
    return {client: task.steps for client, task in scene.tasks.items()}


# Delay-adaptive asynchronous SGD


def test_delay_adaptive_weighs_by_n_over_the_staleness_once_it_exceeds_n() -> None:
    scene = Scene(zoo.delay_adaptive(lr=0.5), 2, parameters=vec(0))
    for _ in range(5):
        scene.arrive(0, 2)  # always fresh
    scene.arrive(1, 20)  # five versions late, of two clients
    scene.arrive(1, 2)  # fresh: what was late before does not matter
    assert scene.weights == [[1.0]] * 5 + [[0.4], [1.0]] and scene.parameters == [10]


def test_delay_adaptive_with_staleness_up_to_n_is_plain_asynchronous_sgd_bit_for_bit() -> None:
    scene = after(zoo.delay_adaptive(), SENT, clients=4)
    assert max(record.staleness.max() for record in scene.merged) == 3
    assert same_bytes(scene, after(PLAIN, SENT, clients=4)) and scene.weights == [[1.0]] * 8


# Rennala SGD


def test_rennala_takes_several_of_one_client_and_none_of_an_older_version() -> None:
    scene = Scene(zoo.rennala(buffer=2, lr=0.5), 2, parameters=vec(0))
    assert handed(scene.arrive(0, 4)) == [(0, 0)]
    assert handed(scene.arrive(0, 8)) == [(0, 1)] and scene.parameters == [3]
    assert handed(scene.arrive(1, 99)) == [(1, 1)]  # from version 0
    assert scene.server.refusals == {"staler than 0": 1} and scene.parameters == [3]
    scene.arrive(1, 4)
    scene.arrive(0, 4)
    assert scene.parameters == [5] and scene.weights == [[0.5, 0.5]] * 2


def test_rennala_can_call_off_what_would_be_dropped() -> None:
    scene = Scene(zoo.rennala(buffer=2, call_off=True), 3, parameters=vec(0))
    scene.arrive(0, 4)
    commands = scene.arrive(1, 8)
    assert cancelled(commands) == [2, 3] and handed(commands) == [(1, 1), (2, 1), (0, 1)]
    assert [each.reason for each in scene.ended] == ["1 versions behind"] * 2
    assert not scene.server.refusals and scene.parameters == [6]


def test_rennala_whose_clients_send_one_fresh_update_each_is_fedavg_with_equal_weights_bit_for_bit() -> None:
    rounds = [(0, 0.3), (1, -0.7), (2, 0.1)]
    expected = Strategy(select.cohort(3), trigger.cohort_done(), weigh.uniform)
    assert same_bytes(after(zoo.rennala(buffer=3), rounds), after(expected, rounds))


# Malenia SGD


def test_malenia_waits_for_everyone_and_counts_everyone_the_same() -> None:
    scene = Scene(zoo.malenia(lr=0.5), 2, parameters=vec(0))
    scene.arrive(0, 4)
    scene.arrive(0, 8)
    assert scene.merged == []
    commands = scene.arrive(1, 2)  # (6 + 2)/2
    assert handed(commands) == [(1, 1)] and scene.weights == [[0.25, 0.25, 0.5]] and scene.parameters == [2]
    scene.arrive(0, 99)  # its third task is from version 0
    assert scene.server.refusals == {"staler than 0": 1}
    scene.arrive(1, 3)
    scene.arrive(1, 5)
    scene.arrive(0, 4)
    assert scene.parameters == [4] and scene.server.view.weight_sums.tolist() == [1, 1]


def test_malenia_does_not_wait_for_who_has_left() -> None:
    scene = Scene(zoo.malenia(), 3, parameters=vec(0))
    scene.arrive(0, 4)
    scene.arrive(1, 8)
    scene.leave(1)
    assert scene.merged == []
    scene.leave(2)  # of those that are there, everyone has contributed; client 1's update counts as well
    assert scene.parameters == [6]
    scene.join(1, 2)
    for client in (0, 0, 1):  # the first is dropped: it was trained from version 0
        scene.arrive(client, 9)
    assert scene.server.view.version == 1
    scene.arrive(2, 9)
    assert scene.parameters == [15]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_malenia_with_one_update_each_is_fedavg_with_equal_weights_bit_for_bit(count: int) -> None:
    random = np.random.default_rng(count)
    one = Scene(zoo.malenia(), count, parameters=vec(1, -2))
    other = Scene(zoo.fedavg(cohort=count), count, parameters=vec(1, -2))
    for _ in range(6):
        for client in random.permutation(count).tolist():
            delta = random.normal(size=2).tolist()
            other.arrive(client, *delta)
            if one.tasks[client].version < one.server.view.version:  # begun before the others were done
                one.arrive(client, 9, 9)
            one.arrive(client, *delta)
    assert same_bytes(one, other) and one.weights == other.weights == [[1 / count] * count] * 6


# Ringmaster ASGD


def test_ringmaster_calls_off_what_is_too_late_and_begins_it_anew() -> None:
    scene = Scene(zoo.ringmaster(max_delay=2, lr=0.5), 2, parameters=vec(0))
    assert cancelled(scene.arrive(0, 4)) == [] and scene.tasks[1].version == 0
    commands = scene.arrive(0, 4)
    assert cancelled(commands) == [1] and handed(commands) == [(0, 2), (1, 2)]
    assert [(each.outcome, each.reason) for each in scene.ended] == [("cancelled", "2 versions behind")]
    scene.arrive(0, 4)
    scene.arrive(1, 2)  # one version late: it counts in full
    assert scene.parameters == [7] and scene.weights == [[1.0]] * 4


def test_the_simulator_really_calls_off_and_begins_anew() -> None:
    """A task of ten seconds that is called off every three never ends; the client is never heard of."""
    records: list[Row] = []
    fleet = Fleet([Group("fast", 1, parse("constant(1)")), Group("slow", 1, parse("constant(10)"))], seed=0)
    server = Server(zoo.ringmaster(max_delay=3), clients=2, aggregations=30, record=records.append)
    virtual.run(server, fleet)
    assert {task.client for row in records if isinstance(row, Aggregation) for task in row.tasks} == {0}
    assert server.counts["cancelled"] == 10 and server.view.time == 30.0
    patient = Server(zoo.ringmaster(max_delay=12), clients=2, aggregations=30)
    virtual.run(patient, fleet)
    assert patient.counts["cancelled"] == 0 and patient.view.update_counts.tolist() == [28, 2]


def test_ringmaster_without_a_bound_is_plain_asynchronous_sgd_bit_for_bit() -> None:
    for bound in (None, 100):
        assert same_bytes(after(zoo.ringmaster(max_delay=bound), SENT), after(PLAIN, SENT))


def test_tasks_are_called_off_with_limited_concurrency_too_but_not_in_rounds() -> None:
    few = select.restarting(select.concurrency(2), delay=1)
    scene = Scene(Strategy(few, trigger.count(1), weigh.uniform), 4)
    commands = scene.arrive(next(iter(scene.tasks)))
    assert cancelled(commands) == [1] and [version for _, version in handed(commands)] == [1, 1]
    assert scene.server.view.running == 2 and scene.server.counts["cancelled"] == 1
    with pytest.raises(StrategyError, match=r"cohort\(2\) ends late tasks in its own way"):
        select.restarting(select.cohort(2), delay=1)
    with pytest.raises(StrategyError, match="is 0, it must be a whole number of at least 1 version"):
        select.restarting(select.all_idle(), delay=0)


# Ringleader ASGD


def test_ringleader_fills_a_table_then_makes_one_step_for_each_client() -> None:
    scene = Scene(zoo.ringleader(lr=0.5), 3, parameters=vec(0))
    for client, x in ((0, 3), (0, 9), (1, 6)):
        assert handed(scene.arrive(client, x)) == [(client, 0)]
    assert handed(scene.arrive(2, 12)) == [(2, 1)]  # the means are 6, 6 and 12
    assert scene.parameters == [4]
    scene.arrive(2, 30)  # it made the first step: for the next table
    assert scene.server.view.version == 1 and scene.server.view.buffered == 1
    scene.arrive(0, 6)  # (3 + 9 + 6)/3, 6 and 12
    assert scene.parameters == [8]
    scene.arrive(0, 4)
    assert scene.server.view.version == 2 and scene.server.view.buffered == 2
    scene.arrive(1, 18)  # 6, (6 + 18)/2 and 12
    assert scene.parameters == [13]
    scene.arrive(0, 2)  # the next table is 2: 30 and 0: (4 + 2)/2
    assert scene.server.view.version == 3
    scene.arrive(1, 9)  # 3, 9 and 30
    assert scene.parameters == [20] and scene.server.view.buffered == 0
    assert [[task.client for task in row.tasks] for row in scene.merged] == [[0, 0, 1, 2], [0], [1], [2, 0, 0, 1]]
    assert [row.staleness.tolist() for row in scene.merged] == [[0] * 4, [1], [2], [2, 1, 1, 0]]
    assert scene.server.view.weight_sums.tolist() == pytest.approx([4 / 3] * 3)


def test_ringleader_goes_on_without_who_has_left() -> None:
    scene = Scene(zoo.ringleader(), 3, parameters=vec(0))
    for client in (0, 1, 2):
        scene.arrive(client, 3)
    assert scene.parameters == [3]  # 0 and 1 have a step to make
    scene.arrive(2, 6)
    scene.arrive(0, 3)
    assert scene.parameters == [6]
    scene.arrive(0, 6)
    scene.leave(1)  # the round is over; everyone that is there is in the next table
    assert scene.parameters == [12] and scene.server.view.weight_sums.tolist() == pytest.approx(
        [2 / 3 + 1 / 2, 2 / 3, 2 / 3 + 1 / 2]
    )


def test_ringleader_with_one_client_is_plain_asynchronous_sgd_bit_for_bit() -> None:
    sent = [(0, x) for x in np.random.default_rng(0).normal(size=30).tolist()]
    assert same_bytes(after(zoo.ringleader(), sent, clients=1), after(PLAIN, sent, clients=1))


def test_the_first_step_of_ringleader_is_that_of_malenia() -> None:
    sent = [(0, 0.3), (1, -0.7), (1, 0.9), (0, 1e-3), (2, 0.1)]
    one, other = after(zoo.ringleader(), sent), after(zoo.malenia(), sent)
    assert one.server.view.version == 1 and one.parameters == pytest.approx(other.parameters, rel=1e-6)


# FADAS


def test_fadas_shortens_its_step_if_the_buffer_is_stale_and_never_forgets_a_size() -> None:
    made = zoo.fadas(buffer=1, lr=1.0, beta1=0.5, beta2=0.75, eps=1.0, delay_limit=1)
    scene = Scene(made, 2, parameters=vec(0))
    scene.arrive(0, 4)  # m = 2, ŝ = 4
    assert scene.parameters == pytest.approx([2 / 3], rel=1e-6)
    scene.arrive(0, 0)  # m = 1, s = 3, but ŝ = 4
    assert scene.parameters == pytest.approx([1], rel=1e-6)
    scene.arrive(1, 8)  # two versions late: m = 4.5, ŝ = 2.25 + 16, times 1/2
    assert scene.parameters == pytest.approx([1 + 2.25 / (18.25**0.5 + 1)], rel=1e-6)
    scene.arrive(1, 0)  # fresh again: m = 2.25, in full
    assert scene.parameters == pytest.approx([1 + 4.5 / (18.25**0.5 + 1)], rel=1e-6)


@pytest.mark.parametrize(("limit", "rate"), [(0, 0.25), (3, 0.25), (4, 1.0), (math.inf, 1.0)])
def test_fadas_looks_at_the_stalest_update_of_a_buffer(limit: float, rate: float) -> None:
    made = zoo.fadas(buffer=2, lr=1.0, beta1=0.0, beta2=0.0, eps=1.0, delay_limit=limit)
    scene = Scene(made, 2, parameters=vec(0))
    for _ in range(8):
        scene.arrive(0, 0)
    scene.arrive(0, 3)
    scene.arrive(1, 3)  # four versions late, in a buffer with one that is fresh
    assert scene.merged[-1].staleness.tolist() == [0, 4] and scene.parameters == [0.75 * rate]


def test_fadas_without_a_limit_is_buffered_amsgrad_bit_for_bit() -> None:
    options: dict[str, Any] = {"beta1": 0.8, "beta2": 0.95, "eps": 1e-4}
    adaptive = apply.chain(apply.amsgrad(1.0, **options), apply.scale(0.9))
    plain = after(replace(zoo.buffered_fedavg(buffer=1, fresh=False), apply=adaptive), SENT)
    assert max(record.staleness.max() for record in plain.merged) >= 2
    assert same_bytes(after(zoo.fadas(buffer=1, lr=0.9, delay_limit=math.inf, **options), SENT), plain)
    assert not same_bytes(after(zoo.fadas(buffer=1, lr=0.9, delay_limit=1, **options), SENT), plain)


def test_amsgrad_is_that_of_torch_without_its_correction_of_the_bias() -> None:
    steps = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32) * 10.0 ** -(np.arange(40)[:, None] ** 0.5)
    rule, start = apply.amsgrad(0.3, 0.8, 0.95, 1e-3), np.zeros(3, np.float32)
    state, ours = rule.init(start, Layout(("weight",), ((3,),))), start
    theirs = torch.zeros(3, requires_grad=True)
    optimiser = torch.optim.Adam([theirs], betas=(0.8, 0.95), amsgrad=True)
    for number, step in enumerate(steps.astype(np.float32), 1):
        change, state = rule.update(step, state, ours)
        ours = ours + change
        root = math.sqrt(1 - 0.95**number)
        optimiser.param_groups[0].update(lr=0.3 * (1 - 0.8**number) / root, eps=1e-3 / root)
        theirs.grad = torch.from_numpy(-step)
        optimiser.step()
    assert ours.tolist() == pytest.approx(theirs.tolist(), rel=1e-4)


# FedCompass


def compass(**options: Any) -> Strategy:
    return zoo.ALGORITHMS["fedcompass"].make(**{"min_steps": 2, "max_steps": 10, "momentum": 1.0, **options})


def test_fedcompass_plans_steps_so_that_a_group_arrives_together() -> None:
    """Client 0 takes one second per step, client 1 four, and later ten."""
    scene = Scene(compass(alpha=1.0, power=0.0), 2, parameters=vec(0))
    assert steps_of(scene) == {0: 10, 1: 10}, "nothing is known of them: the most"
    scene.arrive(0, 4, at=10.0)  # the first is merged alone: 0 and 4, 4 with weight 1/2
    assert scene.parameters == [2] and scene.tasks[0].steps == 10  # group A: at 20, at the latest at 25
    commands = scene.arrive(0, 4, at=20.0)
    assert scene.parameters == [4] and handed(commands) == [(0, 2)]  # A is complete; B: 30, 35
    scene.arrive(0, 0, at=30.0)  # C: 40, 45
    scene.arrive(0, 0, at=40.0)  # D: 50, 55
    scene.arrive(1, 8, at=40.0)  # alone, from version 0: 4 and 8
    assert scene.parameters == [6] and scene.tasks[1].steps == 2  # it can make ⌊10/4⌋ steps until D
    assert wakes(scene.arrive(1, 2, at=48.0)) == [55.0]
    assert scene.server.view.version == 5 and scene.server.view.buffered == 1, "it waits for client 0"
    commands = scene.arrive(0, 4, at=50.0)
    # D is complete: models of 6 + 2 and 4 + 4, half each. The faster chooses first: E: 60, 65.
    assert scene.parameters == [8] and handed(commands) == [(0, 6), (1, 6)] and steps_of(scene) == {0: 10, 1: 2}
    assert wakes(scene.arrive(0, 4, at=60.0)) == [65.0]
    commands = scene.wake(65.0)  # client 1 is late: E is merged without it; F: 75, 80
    assert scene.parameters == [10] and handed(commands) == [(0, 7)]
    commands = scene.arrive(1, 8, at=70.0)  # 10 s per step now: too slow for F, but F may be back at 80 + 10
    assert handed(commands) == [(1, 7)] and scene.tasks[1].steps == 2 and scene.server.view.version == 7
    scene.arrive(0, 2, at=75.0)  # F, with what was late: 10 + 2 and 8 + 8
    assert scene.parameters == [14] and scene.merged[-1].staleness.tolist() == [1, 0]
    assert scene.weights == [[0.5]] * 5 + [[0.5, 0.5], [0.5], [0.5, 0.5]]


def test_fedcompass_weighs_by_staleness_and_the_number_of_clients() -> None:
    scene = Scene(compass(alpha=0.8, power=0.5), 4, parameters=vec(0))
    for client in range(4):
        scene.arrive(client, 1, at=10.0)
    assert scene.weights == [pytest.approx([0.2 * (1 + late) ** -0.5], rel=1e-15) for late in range(4)]


def test_fedcompass_forgets_slowly_how_fast_a_client_was() -> None:
    scene = Scene(compass(momentum=0.5), 1)
    scene.arrive(0, at=10.0)  # one second per step
    scene.arrive(0, at=50.0)  # four, so 2.5
    scene.arrive(0, at=60.0)  # one, so 1.75: it should be back at 77.5
    scene.join(1, at=60.0)
    scene.arrive(1, at=70.0)  # one second per step: ⌊7.5⌋ until then
    assert scene.tasks[1].steps == 7


@pytest.mark.parametrize("pace", [0.7, 1.1])  # 100 · 1.1 / 1.1 is less than 100 after a subtraction
def test_clients_of_equal_speed_are_rounds_of_everybody_under_fedcompass(pace: float) -> None:
    records: list[Row] = []
    fleet = Fleet([Group("all", 5, parse(f"constant({pace})"), per="step")], seed=0)
    server = Server(zoo.fedcompass(), clients=5, aggregations=25, record=records.append)
    virtual.run(server, fleet)
    first, later = [row for row in records if isinstance(row, Aggregation)][:5], records[-20:]
    assert [[task.client for task in row.tasks] for row in first] == [[0], [1], [2], [3], [4]]
    for place, row in enumerate(later, 2):
        assert isinstance(row, Aggregation) and {task.client for task in row.tasks} == {0, 1, 2, 3, 4}
        assert [task.steps for task in row.tasks] == [100] * 5 and row.time == pytest.approx(100 * pace * place)
    rounds = [row.staleness.tolist() for row in later if isinstance(row, Aggregation)]
    assert rounds[1:] == [[0] * 5] * 19


def test_a_round_of_everybody_under_fedcompass_with_alpha_1_is_fedavg_with_equal_weights_bit_for_bit() -> None:
    ours = Scene(compass(alpha=1.0, power=0.0), 4, parameters=vec(0))
    plain = Scene(zoo.fedavg(cohort=4), 4, parameters=vec(0))
    for client in range(4):  # on their own, and nothing to be learnt
        ours.arrive(client, 0, at=10.0)
    for number in range(2, 12):
        for client in range(4):
            delta = 4 * ((7 * number + 3 * client) % 11)
            ours.arrive(client, delta, at=10.0 * number)
            plain.arrive(client, delta)
        assert ours.server.versions.newest.tobytes() == plain.server.versions.newest.tobytes()
    assert ours.weights[5:] == plain.weights[1:] == [[0.25] * 4] * 9


def test_steps_are_planned_by_one_rule_alone() -> None:
    with pytest.raises(StrategyError, match=r"both compass\(.*\) and toward_drift\(.*\) set the local steps"):
        replace(zoo.fedcompass(), local=zoo.asyncfeded().local)


# q-FedAvg


def test_qfedavg_weighs_by_a_power_of_the_loss_and_slows_down_for_long_updates() -> None:
    """L = 2: (1 · 2 · 2 + 3 · 2 · 4) / (16 + 2 · 1 + 64 + 2 · 3)."""
    scene = Scene(zoo.qfedavg(q=1.0, local_lr=0.5, cohort=2), 2, parameters=vec(0))
    scene.arrive(0, 2, loss=1.0, examples=50)
    scene.arrive(1, 4, loss=3.0)
    assert scene.weights == [pytest.approx([1 / 44, 3 / 44], rel=1e-15)]
    assert scene.parameters == pytest.approx([28 / 88], rel=1e-6)


@pytest.mark.parametrize("q", [0.001, 0.5, 2.0, 5.0])
def test_qfedavg_is_the_papers_formula(q: float) -> None:
    random, rate = np.random.default_rng(2), 0.1
    losses, deltas = random.uniform(0.1, 4, 5), random.normal(size=(5, 3))
    scene = Scene(zoo.qfedavg(q=q, local_lr=rate, cohort=5, lr=0.7), 5, parameters=vec(0, 0, 0))
    steps, bends = np.zeros(3), 0.0
    for client, (loss, delta) in enumerate(zip(losses.tolist(), deltas, strict=True)):
        scene.arrive(client, *delta.tolist(), loss=loss)
        steps += loss**q * delta / rate
        bends += q * loss ** (q - 1) * np.sum((delta / rate) ** 2) + loss**q / rate
    assert scene.parameters == pytest.approx((0.7 * steps / bends).tolist(), rel=1e-5)


@pytest.mark.parametrize("losses", [(0.0, 0.0, 0.0), (0.3, 7.0, 1e-12)])
def test_qfedavg_with_q_0_is_fedavg_with_equal_weights_bit_for_bit(losses: tuple[float, ...]) -> None:
    scenes = []
    for strategy in (zoo.qfedavg(q=0.0, cohort=3), replace(zoo.fedavg(cohort=3), weigh=weigh.uniform)):
        scene = Scene(strategy, 3, parameters=vec(1, -2))
        for client, (x, loss) in enumerate(zip((0.3, -0.7, 0.1), losses, strict=True)):
            scene.arrive(client, x, x / 3, loss=loss, examples=1 + client)
        scenes.append(scene)
    assert same_bytes(*scenes)


@pytest.mark.parametrize("q", [0.001, 1.0, 40.0])
@pytest.mark.parametrize("said", [0.0, 1e-300, 1e300])
def test_whatever_loss_is_said_the_weights_of_qfedavg_are_at_most_1(q: float, said: float) -> None:
    scene = Scene(zoo.qfedavg(q=q, cohort=3), 3, parameters=vec(0))
    for client, loss in ((0, 1.0), (1, 2.0), (2, said)):
        scene.arrive(client, 1, loss=loss)
    assert 0 < sum(scene.weights[0]) <= 1 + 1e-9 and min(scene.weights[0]) >= 0


def test_qfedavg_asks_for_the_loss_before_training() -> None:
    assert zoo.qfedavg().local == Local(start_loss=True)


# FedFa


def test_fedfa_is_the_mean_of_the_last_models() -> None:
    scene = Scene(zoo.fedfa(models=2), 2, parameters=vec(0))
    scene.arrive(0, 4)
    assert scene.parameters == [4]
    scene.arrive(0, 4)  # 4 and 8
    assert scene.parameters == [6]
    scene.arrive(1, 2)  # from version 0: 8 and 2
    assert scene.parameters == [5]
    scene.arrive(1, 5)  # 2 and 10
    assert scene.parameters == [6]
    # of the versions, client 0 is all, all, half, nothing
    assert scene.server.view.weight_sums.tolist() == [2.5, 1.5]


def test_fedfa_of_one_model_is_fedasync_with_alpha_1_bit_for_bit() -> None:
    whole = [(client, 3.0 * round(10 * x)) for client, x in SENT]  # so that no sum is rounded
    fedasync = zoo.fedasync(alpha=1.0, staleness="constant", prox=0.0)
    assert same_bytes(after(zoo.fedfa(models=1), whole), after(fedasync, whole))
    close = after(zoo.fedfa(models=1), SENT).parameters
    assert close == pytest.approx(after(fedasync, SENT).parameters, rel=1e-6)


# What is refused


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"trigger": trigger.count(2)}, r"phases\(\) says itself when and what to merge: use as_planned\(\)"),
        ({"select": select.all_idle()}, r"as_planned\(\) needs a selection that says when to merge"),
    ],
)
def test_a_selection_that_holds_updates_back_needs_its_trigger(parts: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StrategyError, match=sentence):
        replace(zoo.ringleader(), **parts)


def test_everyone_is_awaited_only_by_rules_that_declare_it() -> None:
    undeclared = trigger.Trigger("mine()", lambda view: view.awaited == 0)
    scene = Scene(Strategy(select.all_idle(), undeclared, weigh.uniform), 2)
    with pytest.raises(StrategyError, match="awaits=True"):
        scene.arrive(0)


def test_everyone_goes_with_any_weighting_and_with_clients_that_wait() -> None:
    scene = Scene(Strategy(select.all_idle(fresh=True), trigger.everyone(), weigh.by_examples), 3)
    assert scene.arrive(0, examples=2) == [] and scene.arrive(2, examples=1) == []
    commands = scene.arrive(1, examples=1)
    assert handed(commands) == [(0, 1), (2, 1), (1, 1)] and scene.weights == [[0.5, 0.25, 0.25]]
    assert all(isinstance(each, Dispatch) for each in commands)
