"""The server over a Grid: who fails backs off, who restarts is known again, who is stuck holds up nobody."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from fairlag.core.types import Aggregation, Outcome
from fairlag.zoo import fedasync, fedbuff
from tests.support.flower_bench import Bench, four
from tests.support.flower_grid import Answer, FakeGrid, FakeNode, failing, replied, trained

pytestmark = pytest.mark.usefixtures("quick_grid")


def test_a_fleet_trains_to_the_end(bench: Callable[..., Bench]) -> None:
    made = bench(four(), at_least=4)
    assert made.to_the_end().reason == "10 aggregations were made"
    assert made.server.counts["aggregated"] == 20 and not made.ended
    # Each update adds a half to what its version was, and a version the mean of two of these.
    assert made.server.versions.newest.tolist() == [5.0] * 3
    assert sorted(made.roster.group_of.items()) == [(0, "fast"), (1, "fast"), (2, "slow"), (3, "slow")]
    assert made.link.examples == dict.fromkeys(range(4), 7)


def test_slow_nodes_are_heard_less_and_are_staler(bench: Callable[..., Bench]) -> None:
    grid = four(seconds=0.02)
    grid.nodes[102].seconds = grid.nodes[103].seconds = 0.3
    made = bench(grid, aggregations=60, at_least=4)
    made.to_the_end()
    late: dict[int, list[int]] = {client: [] for client in range(4)}
    for row in made.rows:
        if isinstance(row, Aggregation):
            for task, versions in zip(row.tasks, row.staleness.tolist(), strict=True):
                late[task.client].append(versions)
    # By far more on an idle machine; on a busy one, what Python takes for an event makes everybody more alike.
    assert min(len(late[0]), len(late[1])) > 1.5 * max(len(late[2]), len(late[3])) > 0
    assert np.mean(late[2] + late[3]) > 1.5 * np.mean(late[0] + late[1])


def test_a_client_that_raises_backs_off_and_training_goes_on(bench: Callable[..., Bench]) -> None:
    grid = four(seconds=0.01)
    grid.nodes[101].answer = failing
    made = bench(grid, aggregations=100, at_least=4)
    made.to_the_end()
    assert set(made.ended) == {(1, Outcome.LOST, "its ClientApp raised an exception")}
    came = [when for when, _ in grid.nodes[101].sent]
    gaps = np.diff(came)
    assert len(came) >= 3
    assert all(gap >= min(0.05 * 2**place, 0.4) - 0.005 for place, gap in enumerate(gaps))
    assert made.server.counts["lost"] == len(made.ended)


def test_a_dead_actor_is_not_asked_in_a_tight_loop(bench: Callable[..., Bench]) -> None:
    grid = FakeGrid({1: FakeNode({"partition-id": 0}, answer=failing)})
    made = bench(grid, longest_backoff=0.2)
    sent = grid.nodes[1].sent
    made.until(lambda: len(sent) >= 5)
    gaps = np.diff([when for when, _ in sent])
    assert all(gap >= least - 0.005 for gap, least in zip(gaps, (0.05, 0.1, 0.2, 0.2), strict=False))


def test_backing_off_ends_with_the_first_good_update(bench: Callable[..., Bench]) -> None:
    answers: Iterator[Answer] = iter([failing, failing, trained, failing])
    grid = FakeGrid({1: FakeNode({"partition-id": 0}, answer=lambda message: next(answers, trained)(message))})
    made = bench(grid, fedasync(), aggregations=2)
    failures = set()
    made.until(lambda: failures.add((len(grid.nodes[1].sent), made.roster.holder(0).failures)) if made.ended else None)
    # How often it was asked, and its failures in a row: the failure after the good one counts as the first.
    assert {(1, 1), (2, 2), (4, 1)} <= failures and (4, 3) not in failures


@pytest.mark.parametrize("spoilt", [np.full(3, np.nan, np.float32), np.zeros(4, np.float32), np.zeros(3)])
def test_what_is_no_update_is_refused_counted_and_its_node_backs_off(spoilt: Any, bench: Callable[..., Bench]) -> None:
    grid = four(seconds=0.01)
    grid.nodes[100].answer = lambda message: replied(message, {"weight": spoilt})
    made = bench(grid, aggregations=40, at_least=4)
    made.to_the_end()
    refused = made.server.counts["refused"]
    assert refused == sum(made.server.refusals.values()) == len(made.ended) > 0
    assert {(client, outcome) for client, outcome, _ in made.ended} == {(0, Outcome.REFUSED)}
    assert len(grid.nodes[100].sent) < 12


def test_a_node_that_vanishes_and_returns_under_another_number_goes_on(bench: Callable[..., Bench]) -> None:
    grid = FakeGrid({100 + each: FakeNode({"name": f"device {each}"}, seconds=0.01) for each in range(4)})
    made = bench(grid, aggregations=100, at_least=4)
    made.until(lambda: made.server.view.version >= 10)
    numbers = {name: place.number for name, place in made.roster.places.items()}
    grid.nodes[102].answer = lambda message: None  # killed in the middle of its task
    made.until(lambda: made.server.view.version >= 20)
    gone = grid.nodes.pop(102)
    made.until(lambda: made.ended)
    assert made.ended == [(2, Outcome.LOST, "its node went offline")]
    before = made.updates(2)
    grid.nodes[555] = FakeNode(gone.told, seconds=0.01)
    made.to_the_end()
    assert {name: place.number for name, place in made.roster.places.items()} == numbers
    assert made.updates(2) > before > 0
    assert len(made.ended) == 1


def test_a_restart_that_is_faster_than_flower_notices_takes_over(bench: Callable[..., Bench]) -> None:
    """Without authentication the old number stays online for a while, beside the new one."""
    grid = FakeGrid({100 + each: FakeNode({"partition-id": each}, seconds=0.01) for each in range(4)})
    made = bench(grid, aggregations=60, at_least=4)
    made.until(lambda: made.server.view.version >= 5)
    grid.nodes[103].answer = lambda message: None
    made.until(lambda: made.server.view.version >= 10)
    grid.nodes[777] = FakeNode({"partition-id": 3}, seconds=0.01)
    made.to_the_end()
    assert made.ended == [(3, Outcome.LOST, "its node was restarted")]
    assert len(grid.nodes[777].sent) > 3
    assert made.roster.holder(3).node == 777


def test_a_node_known_by_its_key_is_told_by_when_it_was_started(bench: Callable[..., Bench]) -> None:
    grid = FakeGrid({100 + each: FakeNode({}, seconds=0.01, key=bytes([each])) for each in range(4)})
    made = bench(grid, aggregations=60, at_least=4, by_key=True)
    made.until(lambda: made.server.view.version >= 5)
    node = grid.nodes[100]
    node.answer = lambda message: None
    made.until(lambda: made.server.view.version >= 10)
    node.answer, node.activated = trained, "again"
    made.to_the_end()
    assert [(outcome, reason) for _, outcome, reason in made.ended] == [(Outcome.LOST, "its node was restarted")]
    assert len(made.roster.places) == 4


def test_late_nodes_are_used_and_more_than_expected_too(bench: Callable[..., Bench]) -> None:
    grid = FakeGrid({1: FakeNode({"name": "a", "group": "slow"}, seconds=0.01)})
    made = bench(grid, fedbuff(buffer=2, concurrency=9), aggregations=40)
    made.until(lambda: made.server.view.version >= 5)
    grid.nodes.update({each: FakeNode({"name": each, "group": "slow"}, seconds=0.01) for each in range(2, 7)})
    made.to_the_end()
    assert [place.number for place in made.roster.places.values()] == [2, 3, 4, 5, 6, 7]
    assert set(made.roster.group_of.values()) == {"slow"}
    assert all(made.updates(client) for client in range(2, 8))


def test_who_is_stuck_uploading_holds_up_nobody(bench: Callable[..., Bench]) -> None:
    grid = four(seconds=0.01)
    made = bench(grid, aggregations=50, at_least=4, threads=3)
    made.until(lambda: made.server.view.version >= 3)
    grid.stuck.add(101)
    made.to_the_end()
    assert made.server.view.version == 50


def test_apps_that_do_not_know_the_question_are_known_by_their_number(bench: Callable[..., Bench]) -> None:
    made = bench(FakeGrid({each: FakeNode({}, introduces=failing) for each in (5, 6)}), at_least=2)
    made.to_the_end()
    assert sorted(made.roster.places) == ["node 5", "node 6"]


def test_two_tasks_a_node(bench: Callable[..., Bench]) -> None:
    grid = four(seconds=0.02)
    made = bench(grid, aggregations=40, at_least=4, queued=2)
    most = [0]

    def look() -> bool:
        running = [task.client // 2 for task in made.server.running.values()]
        most[0] = max([most[0], *(running.count(each) for each in running)])
        return False

    made.until(look)
    assert most == [2]
    assert {task.client for row in made.rows if isinstance(row, Aggregation) for task in row.tasks} == set(range(8))


def test_a_superlink_that_is_silent_for_a_moment_costs_nothing(bench: Callable[..., Bench]) -> None:
    grid = four(seconds=0.01)
    made = bench(grid, aggregations=60, at_least=4)
    made.until(lambda: made.server.view.version >= 5)
    grid.down = True
    end = time.monotonic() + 0.1
    made.until(lambda: time.monotonic() > end)
    grid.down = False
    made.to_the_end()
    assert not made.ended


def test_nothing_is_kept_of_messages_that_were_answered(bench: Callable[..., Bench]) -> None:
    made = bench(four(), aggregations=50, at_least=4)
    made.to_the_end()
    courier = made.link._courier
    assert courier is not None and len(courier._pending) <= 4


def test_a_message_that_expires_is_lost(bench: Callable[..., Bench]) -> None:
    sent: list[Message] = []

    def late(message: Message) -> Message:
        sent.append(message)
        return failing(message, 3)

    grid = four(seconds=0.01)
    grid.nodes[102].answer = late
    made = bench(grid, aggregations=20, at_least=4, ttl=9.0)
    made.to_the_end()
    assert set(made.ended) == {(2, Outcome.LOST, "the SuperLink no longer had its message")}
    assert {message.metadata.ttl for message in sent} == {9.0}


def test_a_server_goes_on_after_a_crash(bench: Callable[..., Bench]) -> None:
    grid = FakeGrid({100 + each: FakeNode({"name": f"device {each}"}, seconds=0.01) for each in range(4)})
    first = bench(grid, aggregations=40, at_least=4)
    first.until(lambda: first.server.view.version >= 20 and first.server.running)
    state, running = first.link.state(), len(first.server.running)
    first.link.close()
    updates = [first.updates(each) for each in range(4)]
    second = bench(grid, aggregations=40, at_least=4)
    second.link.restore(state)
    assert [row[1:] for row in second.ended] == [(Outcome.LOST, "the server was restarted")] * running
    assert not second.server.running and second.server.view.present == 0
    second.to_the_end()
    assert second.server.view.version == 40
    assert all(second.updates(each) >= updates[each] for each in range(4))
    assert second.roster.places.keys() == first.roster.places.keys()


def test_a_run_that_ends_at_a_time_does_so_after_a_crash_too(bench: Callable[..., Bench]) -> None:
    grid = four(seconds=0.01)
    first = bench(grid, aggregations=None, until_time=3.0, at_least=4)
    first.until(lambda: first.server.view.version >= 3)
    state = first.link.state()
    first.link.close()
    second = bench(grid, aggregations=None, until_time=3.0, at_least=4)
    second.link.restore(state)
    assert second.to_the_end().reason == "time 3.0 was reached"
