"""The methods with a memory: timelines computed by hand, and the limits in which they must coincide with others."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fairlag import zoo
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Arrived, Floats, Joined, Row, Update
from fairlag.core.vector import published
from fairlag.errors import StrategyError
from fairlag.execute.nothing import Nothing
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.rules import replay, select, trigger, weigh
from fairlag.runtime import virtual
from tests.support.scenes import Scene, handed, one_late, vec


def in_buffers(strategy: Strategy, size: int) -> Strategy:
    """The same method, but every `size` updates make a version."""
    return replace(strategy, select=select.all_idle(), trigger=trigger.count(size))


# Timelines computed by hand

# The parts of the versions of `one_late`, whose buffers are 01, 01, 20, 21, 20: c, and β/3 for each that was heard.
PARTS: dict[str, tuple[Strategy, list[list[float]]]] = {
    "mifa": (
        in_buffers(zoo.mifa(), 2),
        [[1 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3]],
    ),
    "ca2fl": (
        zoo.ca2fl(buffer=2),
        [[1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 2], [1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3]],
    ),
    # 1/2 · (1 − 1/2) + 1/6 for who is heard again, 1/6 for who is only remembered
    "fedstale": (
        in_buffers(zoo.fedstale(beta=0.5), 2),
        [
            [1 / 2, 1 / 2, 0],
            [5 / 12, 5 / 12, 0],
            [5 / 12, 1 / 6, 1 / 2],
            [1 / 6, 5 / 12, 5 / 12],
            [5 / 12, 1 / 6, 5 / 12],
        ],
    ),
    "area": (
        zoo.area(buffer=2),
        [[1 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3]],
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_remembered_update_counts_in_every_version_in_which_it_acts(name: str) -> None:
    strategy, parts = PARTS[name]
    scene = one_late(strategy)
    told = np.sum(parts, axis=0)
    assert scene.server.view.weight_sums.tolist() == pytest.approx(told.tolist(), rel=1e-12)
    if name != "area":  # there a client's new model contains the others' updates, which its part does not count
        assert scene.parameters == pytest.approx(told.tolist(), rel=1e-6), "everyone always adds one to its own number"


# Four clients, so that all numbers are exact. Buffers of two: (0, 8), (1, 16); (0, 4), (2, 24); (3, 12), (0, 20).
@pytest.mark.parametrize(
    ("strategy", "ends"),
    [
        # 1/4 of the sum of 8, 16; of 4, 16, 24; of 20, 16, 24, 12
        (zoo.mifa(), [6.0, 17.0, 35.0]),
        # 12; 1/2 (4 − 8 + 24) + 1/4 · 24 = 16; 1/2 (12 + 20 − 4) + 1/4 · 44 = 25
        (zoo.fedvarp(), [12.0, 28.0, 53.0]),
        # 12; 1/2 (4 − 4 + 24) + 1/8 · 24 = 15; 1/2 (12 + 20 − 2) + 1/8 · 44 = 20.5
        (zoo.fedstale(beta=0.5), [12.0, 27.0, 47.5]),
    ],
    ids=["mifa", "fedvarp", "fedstale"],
)
def test_steps_of_new_and_remembered_updates(strategy: Strategy, ends: list[float]) -> None:
    scene, found = Scene(in_buffers(strategy, 2), 4, parameters=vec(0)), []
    for buffer in (((0, 8), (1, 16)), ((0, 4), (2, 24)), ((3, 12), (0, 20))):
        for client, x in buffer:
            scene.arrive(client, x)
        found += scene.parameters
    assert found == ends


def test_of_two_updates_in_one_buffer_the_last_is_remembered_and_both_are_compared_with_what_was_before() -> None:
    scene = Scene(zoo.ca2fl(buffer=2, fresh=False), 4, parameters=vec(0))
    scene.arrive(0, 2)
    scene.arrive(1, 4)
    assert scene.parameters == [3]
    scene.arrive(0, 8)
    scene.arrive(0, 6)  # 1/2 (8 − 2 + 6 − 2) + 1/4 (2 + 4)
    assert scene.parameters == [9.5]
    scene.arrive(1, 4)
    scene.arrive(2, 8)  # 1/2 (4 − 4 + 8) + 1/4 (6 + 4)
    assert scene.parameters == [16]
    assert scene.server.view.weight_sums.tolist() == [1.0, 1.0, 0.5, 0]


def test_ace_waits_for_everyone_and_then_for_nobody() -> None:
    scene = Scene(zoo.ace(lr=0.5), 4, parameters=vec(0))
    assert [handed(scene.arrive(client, x)) for client, x in ((2, 8), (0, 16), (3, 4))] == [[], [], []]
    assert handed(scene.arrive(1, 4)) == [(2, 1), (0, 1), (3, 1), (1, 1)] and scene.parameters == [4]  # half of 32/4
    assert handed(scene.arrive(0, 0)) == [(0, 2)] and scene.parameters == [6]  # half of 16/4
    assert handed(scene.arrive(0, 32)) == [(0, 3)] and scene.parameters == [12]  # half of 48/4
    assert scene.weights == [[0.25] * 4, [0.25], [0.25]]
    assert scene.server.view.weight_sums.tolist() == [0.75] * 4


def test_the_first_version_of_ace_does_not_wait_for_who_has_left() -> None:
    scene = Scene(zoo.ace(), 4, parameters=vec(0))
    scene.leave(3)
    scene.arrive(0, 8)
    scene.fail(1)
    scene.arrive(1, 4)
    assert scene.server.view.version == 0
    scene.arrive(2, 4)
    assert scene.server.view.version == 1 and scene.parameters == [4]  # 16/4
    scene.join(3)
    scene.arrive(3, 16)
    assert scene.parameters == [12]  # 32/4


def test_waiting_for_everyone_needs_clients_that_wait() -> None:
    with pytest.raises(StrategyError, match=r"everyone_first\(1\) waits until no task is running, but with all_idle"):
        replace(zoo.ace(), select=select.all_idle(fresh=False))


def test_area_replaces_a_clients_last_model() -> None:
    scene = Scene(zoo.area(buffer=1), 4, parameters=vec(4))
    scene.arrive(0, 8)  # a model of 12 instead of 4
    assert scene.parameters == [6]
    scene.arrive(1, 4)  # a model of 8, from version 0
    assert scene.parameters == [7]
    scene.arrive(0, 2)  # trained from 6: a model of 8 instead of 12
    assert scene.parameters == [6]
    assert scene.weights == [[0.25]] * 3 and scene.server.view.weight_sums.tolist() == [0.75, 0.5, 0, 0]


def test_fedau_weighs_by_the_intervals_before_this_round() -> None:
    strategy = in_buffers(zoo.fedau(cutoff=3), 1)
    scene = Scene(strategy, 4, parameters=vec(0))
    weights = {}
    for version, client in enumerate((0, 0, 1, 0, 1, 0, 0, 0, 0, 2, 1)):
        scene.arrive(client, 4)
        weights[version, client] = 4 * scene.weights[-1][0]
    # The mean of client 0's intervals: of none, 1, 1 1, 1 1 2, 1 1 2 2. Of client 1's: of none, 3, 3 2 3, where its
    # last 5 rounds away are one interval of 3 that was cut off, and another that still lasts.
    assert [weights[version, 0] for version in (0, 1, 3, 5, 6)] == [1, 1, 1, 4 / 3, 1.5]
    assert weights[2, 1] == 1 and weights[4, 1] == 3 and weights[10, 1] == pytest.approx(8 / 3)
    assert weights[9, 2] == 3, "it was away for 9 rounds: three intervals of 3"


# Limits


def rounds_of(strategy: Strategy, clients: int, *, seed: int = 0, length: int = 12) -> tuple[list[bytes], Scene]:
    """The versions of rounds in which everyone sends one random update, in a random order."""
    random = np.random.default_rng(seed)
    scene, versions = Scene(strategy, clients, parameters=vec(0.1, -2, 0)), []
    for _ in range(length):
        for client in random.permutation(clients).tolist():
            scene.arrive(client, *random.normal(size=2).tolist(), -0.0)
        versions.append(scene.server.versions.newest[:3].tobytes())
    assert scene.server.view.version == length
    return versions, scene


ROUNDS: dict[str, Callable[[int], Strategy]] = {
    "mifa": lambda n: zoo.mifa(cohort=n, lr=0.3),
    "fedvarp": lambda n: zoo.fedvarp(cohort=n, lr=0.3),
    "fedstale": lambda n: zoo.fedstale(beta=0.7, cohort=n, lr=0.3),
    "ca2fl": lambda n: zoo.ca2fl(buffer=n, lr=0.3),
    "fedau": lambda n: zoo.fedau(cohort=n, lr=0.3),
    "scaffold": lambda n: zoo.scaffold(cohort=n, lr=0.3),
    "buffered_scaffold": lambda n: zoo.buffered_scaffold(buffer=n, lr=0.3),
}


def uniform(n: int, lr: float = 0.3) -> Strategy:
    return replace(zoo.fedavg(cohort=n, lr=lr), weigh=weigh.uniform)


@pytest.mark.parametrize("clients", [1, 3, 7])
@pytest.mark.parametrize("name", ROUNDS)
def test_everyone_once_in_every_buffer_is_uniform_fedavg_bit_for_bit(name: str, clients: int) -> None:
    versions, scene = rounds_of(ROUNDS[name](clients), clients)
    assert versions == rounds_of(uniform(clients), clients)[0]
    assert scene.server.view.weight_sums.tolist() == pytest.approx([12 / clients] * clients)


@pytest.mark.parametrize("clients", [2, 5])
def test_the_first_version_of_ace_is_that_of_uniform_fedavg_bit_for_bit(clients: int) -> None:
    (ours,), _ = rounds_of(zoo.ace(lr=0.3), clients, length=1)
    assert ours == rounds_of(uniform(clients), clients, length=1)[0][0]


@pytest.mark.parametrize("clients", [4, 5])
def test_area_in_rounds_of_everyone_is_uniform_fedavg(clients: int) -> None:
    area, plain = (
        Scene(strategy, clients, parameters=vec(4, -8))
        for strategy in (zoo.area(buffer=clients), uniform(clients, 1.0))
    )
    random = np.random.default_rng(clients)
    for _ in range(20):
        for client in random.permutation(clients).tolist():
            delta = (clients * random.integers(-9, 9, size=2)).tolist()
            for scene in (area, plain):
                scene.arrive(client, *delta)
        if clients == 4:  # then quarters are exact
            assert area.parameters == plain.parameters
        assert area.parameters == pytest.approx(plain.parameters, rel=1e-5, abs=1e-4)


def lived(strategy: Strategy, *, clients: int = 5, seed: int = 0, length: int = 120) -> Scene:
    """A life in which low-numbered clients send more often."""
    random = np.random.default_rng(seed)
    scene = Scene(strategy, clients, parameters=vec(0.1, 1))
    for _ in range(length):
        running = sorted(task.client for task in scene.server.running.values())
        scene.arrive(running[int(len(running) * random.random() ** 2)], *random.normal(size=2).tolist())
    assert max(record.staleness.max() for record in scene.merged) > 2
    return scene


def test_nothing_remembered_is_buffered_fedavg_bit_for_bit() -> None:
    ours = lived(replace(zoo.ca2fl(buffer=3, lr=0.9), reduce=replay.replaying(0.0)))
    plain = lived(zoo.buffered_fedavg(buffer=3, lr=0.9))
    assert ours.server.versions.newest.tobytes() == plain.server.versions.newest.tobytes()
    assert ours.weights == plain.weights
    assert ours.server.view.weight_sums.tolist() == pytest.approx(plain.server.view.weight_sums.tolist(), rel=1e-12)


@pytest.mark.parametrize(
    ("beta", "like"), [(0.0, replace(zoo.fedavg(cohort=2), weigh=weigh.uniform)), (1.0, zoo.fedvarp(cohort=2))]
)
def test_fedstale_is_between_fedavg_and_fedvarp_bit_for_bit(beta: float, like: Strategy) -> None:
    ends = []
    for strategy in (zoo.fedstale(beta=beta, cohort=2), like):
        random, scene = np.random.default_rng(1), Scene(strategy, 5, parameters=vec(0.1, 1))
        for _ in range(60):
            task = min(scene.server.running.values())
            scene.arrive(task.client, *random.normal(size=2).tolist())
        ends.append((scene.server.versions.newest.tobytes(), scene.weights))
    assert ends[0] == ends[1]


def test_with_everything_remembered_who_sends_more_often_is_not_heard_more() -> None:
    scene = lived(zoo.ca2fl(buffer=3), length=3000)
    counts, shares = scene.server.view.update_counts, scene.server.view.weight_sums
    assert counts.max() > 2.5 * counts.min()
    assert shares / shares.sum() == pytest.approx(np.full(5, 0.2), abs=0.01)


def test_fedau_gives_everyone_the_same_influence_whoever_takes_part_how_often() -> None:
    """By intervals: 1/n each, although client 0 is in every round and client 3 in every eighth."""
    scene = Scene(in_buffers(zoo.fedau(), 1), 4)
    every = {0: 2, 1: 4, 2: 8, 3: 8}
    for version in range(4000):
        client = next(client for client in every if (version + (0, 1, 3, 7)[client] + 1) % every[client] == 0)
        scene.arrive(client)
    shares = scene.server.view.weight_sums
    assert shares / shares.sum() == pytest.approx(np.full(4, 0.25), abs=0.003)


# FedAU in rounds of a fleet, beside the intervals counted round by round


def by_rounds(records: list[Row], clients: int, cutoff: int) -> list[list[float]]:
    """As the authors count: how long a client is away, and a list of its intervals."""
    away, intervals, weights = [0] * clients, [list[int]() for _ in range(clients)], []
    for row in records:
        if isinstance(row, Aggregation):
            here = [task.client for task in row.tasks]
            weights.append([float(np.mean(intervals[client] or [1])) / clients for client in here])
            for client in range(clients):
                away[client] += client not in here
                if client in here:
                    intervals[client].append(away[client] + 1)
                    away[client] = 0
                elif away[client] == cutoff:
                    intervals[client].append(cutoff)
                    away[client] = 0
    return weights


@pytest.mark.parametrize("cutoff", [2, 5, 50])
def test_fedau_counts_as_its_authors_do(cutoff: int) -> None:
    records: list[Row] = []
    fleet = Fleet([Group("fast", 6, parse("uniform(1, 2)")), Group("slow", 3, parse("uniform(8, 12)"))], seed=0)
    server = Server(zoo.fedau(cohort=2, cutoff=cutoff), clients=9, aggregations=300, record=records.append)
    virtual.run(server, fleet, Nothing())
    found = [row.weights.tolist() for row in records if isinstance(row, Aggregation)]
    assert found == [pytest.approx(each, rel=1e-12) for each in by_rounds(records, 9, cutoff)]
    assert max(max(each) for each in found) > 1.9 / 9


def test_a_client_that_joins_late_counts_its_rounds_from_then_on() -> None:
    scene = Scene(in_buffers(zoo.fedau(cutoff=4), 1), 3, join=False)
    scene.join(0, 1)
    for _ in range(20):
        scene.arrive(0)
    scene.join(2)
    scene.arrive(2)
    assert scene.weights[-1] == [1 / 3], "it was not away, it was not there"
    scene.arrive(1)
    assert scene.weights[-1] == [4 / 3]


# Bounds on the model


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("name", PARTS)
def test_a_refused_step_leaves_no_trace_in_what_is_remembered_and_nobody_has_a_part_of_it(name: str) -> None:
    """Client 0 attacks and is silent from then on, so what is remembered of it acts in every later version."""
    ends: list[tuple[bytes, Floats]] = []
    attacks: tuple[dict[int, tuple[float, float]], ...] = {}, {0: (3e38, 3e38), 1: (0, 1)}
    for attack in attacks:
        server = Server(PARTS[name][0], clients=3, parameters=vec(3, 4), max_growth=10.0)
        server.handle(Joined(0.0, [0, 1, 2]))
        calm: list[dict[int, tuple[float, float]]] = [{1: (0, 2), 2: (1, 1)}, {1: (1, 0), 2: (2, 2)}]
        buffers = [{0: (1.0, 1.0), 1: (2.0, 0.0)}, *([attack] if attack else []), *calm]
        for when, buffer in enumerate(buffers):
            tasks = {task.client: task.task for task in server.running.values()}
            for client, update in buffer.items():
                server.handle(Arrived(float(when), tasks[client], Update(published(update))))
            assert bool(server.refused) == (buffer is attack)
        ends.append((server.versions.newest.tobytes(), server.view.weight_sums))
    (model, sums), (attacked, more) = ends
    assert model == attacked
    # Parts of a model count in every version, and the refused one is the version before it again.
    again = PARTS[name][1][0] if name == "area" else [0, 0, 0]
    assert (more - sums).tolist() == pytest.approx(again)
