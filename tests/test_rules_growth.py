"""Bounds on updates and on the model: who is refused, who is not, what is remembered, and what is left as it was."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlag import zoo
from fairlag.core.server import Server
from fairlag.core.state import pack, unpack
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Arrived, Joined, Report, Row, Update
from fairlag.core.vector import Layout, published
from fairlag.errors import StrategyError
from fairlag.rules import admit, growth
from fairlag.rules.rule import label_of
from tests.support.scenes import Scene, vec

LONG = "longer than 10 times the usual update"


def bounded(strategy: Strategy | None = None, factor: float = 10.0) -> Strategy:
    return replace(strategy or zoo.fedasync(alpha=1.0, staleness="constant"), admit=admit.max_norm(factor))


def refused(scene: Scene) -> list[tuple[int, str]]:
    return [(row.task.client, row.reason) for row in scene.ended]


# The length of an update


def test_an_update_is_bounded_by_the_usual_length_of_those_that_were_accepted() -> None:
    scene = Scene(bounded(), 5, parameters=vec(3, 4))
    for client in range(3):
        scene.arrive(client, 0, 1)
    scene.arrive(3, 0, 10)
    assert refused(scene) == []
    scene.arrive(4, 0, 10.001)
    assert refused(scene) == [(4, LONG)]


def test_whoever_is_first_is_bounded_by_the_size_of_the_model() -> None:
    scene = Scene(bounded(), 3, parameters=vec(3, 4))
    scene.arrive(0, 3e38, 0)
    scene.arrive(0, 51, 0)
    assert refused(scene) == [(0, LONG)] * 2
    scene.arrive(0, 49, 0)
    assert len(refused(scene)) == 2
    zeros = Scene(bounded(), 3, parameters=vec(*[0] * 100))  # as large as a model whose numbers are all 0.1
    zeros.arrive(0, 10.1, *[0] * 99)
    zeros.arrive(1, 9.9, *[0] * 99)
    assert refused(zeros) == [(0, LONG)]


def test_one_client_cannot_raise_the_bound_however_often_it_sends() -> None:
    scene = Scene(bounded(), 4, parameters=vec(3, 4))
    for client in (0, 1, 2, 3):
        scene.arrive(client, 0, 1)
    for _ in range(200):
        scene.arrive(3, 0, 9.9)
    scene.arrive(3, 0, 11)
    assert refused(scene) == [(3, LONG)]


def test_one_client_cannot_shut_out_the_others_by_tiny_updates() -> None:
    scene = Scene(bounded(), 4, parameters=vec(3, 4))
    scene.arrive(3, 0, 1e-30)
    for _ in range(3):
        for client in (0, 1, 2):
            scene.arrive(client, 0, 1)
        scene.arrive(3, 0, 0)
    assert refused(scene) == []


def test_who_is_heard_late_may_send_what_the_others_sent_at_first() -> None:
    """The losses of those that train all the time go down, and so do their updates: the bound does not."""
    scene = Scene(bounded(), 4, parameters=vec(3, 4))
    for size in (1, 0.1, 0.01, 1e-3, 1e-4):
        for client in (0, 1, 2):
            scene.arrive(client, 0, size)
    scene.arrive(3, 0, 5)
    assert refused(scene) == []


def test_more_effort_may_go_further_in_proportion() -> None:
    scene = Scene(bounded(), 5, parameters=vec(3, 4))
    for client in range(3):
        scene.arrive(client, 0, 1, effort=2.0)
    scene.arrive(3, 0, 30, effort=6.0)
    scene.arrive(4, 0, 30, effort=5.0)
    assert refused(scene) == [(4, LONG)]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.floats(0.5, 2.0)), min_size=20, max_size=60), st.data())
def test_a_minority_of_attackers_is_bounded_by_the_honest_and_refuses_none_of_them(
    honest: list[tuple[int, float]], data: st.DataObject
) -> None:
    """Seven honest clients, three that send whatever may pass: what passes is never over 10 times an honest length."""
    scene = Scene(bounded(), 10, parameters=vec(3, 4))
    for client in range(7):
        scene.arrive(client, 0, 1)
    sent: dict[int, float] = {}
    for client, size in honest:
        scene.arrive(client, 0, size)
        liar, sends = data.draw(st.integers(7, 9)), data.draw(st.sampled_from([1e-6, 1.0, 9.0, 19.0, 20.5, 1e9]))
        sent[scene.tasks[liar].task] = sends
        scene.arrive(liar, 0, sends)
    assert all(client >= 7 for client, _ in refused(scene))
    passed = [sent[task.task] for row in scene.merged for task in row.tasks if task.client >= 7]
    assert all(size <= 10 * 2.0 for size in passed)


def test_what_was_accepted_is_part_of_the_state() -> None:
    strategy = replace(
        zoo.fedasync(alpha=1.0, staleness="constant"),
        admit=admit.all_of(admit.max_staleness(50), admit.max_norm(10.0)),
    )
    assert label_of(strategy.admit) == "all_of(max_staleness(50), max_norm(10.0))" and "admit" in strategy.readers
    scene = Scene(strategy, 4, parameters=vec(3, 4))
    for client in range(3):
        scene.arrive(client, 0, 0.5)
    other = Server(strategy, clients=4, parameters=vec(3, 4))
    other.restore(unpack(*pack(scene.server.state())))
    for server in (scene.server, other):
        server.handle(Arrived(9.0, scene.tasks[3].task, Update(vec(0, 5.1))))
        assert server.refusals == {LONG: 1}
    # A fleet may go on with a bound that it did not have before, or without the one that it had.
    plain = Server(replace(strategy, admit=None), clients=4, parameters=vec(3, 4))
    plain.restore(scene.server.state())
    other.restore(plain.state())


def test_each_server_has_a_memory_of_its_own() -> None:
    strategy = bounded()
    one, other = Scene(strategy, 4, parameters=vec(3, 4)), Scene(strategy, 4, parameters=vec(3, 4))
    for client in range(3):
        one.arrive(client, 0, 0.1)
    one.arrive(3, 0, 5)
    other.arrive(3, 0, 5)
    assert refused(one) == [(3, LONG)] and refused(other) == []


@pytest.mark.parametrize("factor", [0.0, -1.0, math.nan, math.inf])
def test_a_factor_that_is_none_is_refused(factor: float) -> None:
    with pytest.raises(StrategyError, match=f"usual length of an update is {factor}, it must be a positive number"):
        admit.max_norm(factor)


# The growth of the model


def test_an_aggregation_that_blows_the_model_up_is_refused_as_a_whole_and_its_suspect_named() -> None:
    records: list[Row] = []
    server = Server(
        zoo.buffered_fedavg(buffer=3), clients=3, parameters=vec(3, 4), max_growth=10.0, record=records.append
    )
    server.handle(Joined(0.0, [0, 1, 2]))
    for task, update in enumerate([(1, 1), (3e38, 0), (1, 0)]):
        commands = server.handle(Arrived(1.0, task, Update(vec(*update))))
    _, row = records
    assert isinstance(row, Aggregation)
    assert (
        row.refused
        == server.refused
        == ("the step is more than 10 times as large as the model, most of it from client 1 (100 %)")
    )
    assert row.weights.tolist() == [0, 0, 0] and server.view.weight_sums.tolist() == [0, 0, 0]
    assert server.versions.newest.tolist() == [3, 4] and server.view.version == 1
    # Nobody is punished, and all go on from the version that is the one before.
    assert len(commands) == 3 and server.refusals == {}
    for task in (3, 4, 5):
        server.handle(Arrived(2.0, task, Update(vec(3, 3))))
    assert server.versions.newest.tolist() == pytest.approx([6, 7]) and server.refused == ""


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("make", [zoo.fedavgm, zoo.safa, zoo.fedadam])
def test_what_rules_remember_is_as_if_the_aggregation_had_not_been(make: object) -> None:
    """A momentum, or a client's model that is kept, would carry the attack into every later version."""
    strategy = make(share=1.0) if make is zoo.safa else make(cohort=2)  # type: ignore[operator]
    scenes = []
    for attacked in (True, False):
        server = Server(strategy, clients=2, parameters=vec(3, 4), max_growth=10.0)
        server.handle(Joined(0.0, [0, 1]))
        rounds = [((1.0, 1.0), (0.5, 0.0))] + [((3e38, 3e38), (3e38, 3e38))] * attacked
        rounds += [((0.25, 0.5), (1.0, 0.5))] * 2
        for when, updates in enumerate(rounds):
            tasks = sorted(server.running.values(), key=lambda task: task.client)
            for task, update in zip(tasks, updates, strict=True):
                server.handle(Arrived(float(when), task.task, Update(published(update), Report())))
        assert server.view.version == len(rounds)
        scenes.append(server.versions.newest.tolist())
    assert scenes[0] == scenes[1]


def test_suspects_are_named_until_they_make_up_half() -> None:
    updates = np.array([[0, 1], [3, 0], [0, 3], [0, 3]], np.float32)
    assert growth.suspects(np.array([0, 1, 2, 3]), np.ones(4), updates) == "client 1 (30 %), client 2 (30 %)"


def test_a_statistic_that_one_client_blows_up_is_refused_and_one_that_all_have_is_not() -> None:
    layout = Layout(("weight", "running_var"), ((2,), (1,)), statistics=1)
    server = Server(zoo.buffered_fedavg(buffer=3), clients=3, parameters=vec(3, 4, 1), layout=layout, max_growth=10.0)
    server.handle(Joined(0.0, [0, 1, 2]))
    for task, statistic in enumerate((500.0, 600.0, 550.0)):
        server.handle(Arrived(1.0, task, Update(vec(0, 0, statistic))))
    assert server.refused == "" and server.versions.newest.tolist() == pytest.approx([3, 4, 550])
    for task, statistic in enumerate((500.0, 3e38, 550.0), start=3):
        server.handle(Arrived(2.0, task, Update(vec(0, 0, statistic))))
    assert server.refused.startswith("a statistic is more than 10 times as large as usual, most of it from client 1")
    assert server.versions.newest.tolist() == pytest.approx([3, 4, 550])


def test_a_first_update_that_was_refused_is_not_a_clients_part_of_the_model() -> None:
    server = Server(zoo.asofed(), clients=2, parameters=vec(3, 4), max_growth=10.0)
    server.handle(Joined(0.0, [0, 1]))
    for task, update in enumerate([(1, 1), (3e38, 0), (1, 0), (0, 1)]):
        server.handle(Arrived(1.0 + task, task, Update(vec(*update))))
    # Client 0 has had its half of the model since the first version, client 1 only since its second update.
    assert server.view.weight_sums.tolist() == pytest.approx([2.0, 0.5])
