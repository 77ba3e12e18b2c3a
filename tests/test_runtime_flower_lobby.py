"""Nodes say who they are, sooner or later: who cannot yet is asked again, and nobody waits for it."""

from collections.abc import Callable

import pytest
from flwr.app import Message

from tests.support.flower_bench import Bench, four
from tests.support.flower_grid import FakeGrid, FakeNode, failing

pytestmark = pytest.mark.usefixtures("quick_grid")


@pytest.mark.parametrize("code", [1, 3, 5, 8])
def test_who_cannot_answer_is_asked_again_and_keeps_its_name(code: int, bench: Callable[..., Bench]) -> None:
    """An app that crashes once, or a question that expires, must not make a client of its own."""
    grid = four(seconds=0.01)
    node = grid.nodes[102]

    def crashing(message: Message) -> Message:
        return failing(message, code) if grid.greeted.count(102) < 3 else node.introduce(message)

    node.introduces = crashing
    made = bench(grid, aggregations=60)
    made.until(lambda: made.updates(2) > 0)
    assert sorted(made.roster.places) == [f"partition {each}" for each in range(4)]
    assert grid.greeted.count(102) == 3


def test_asking_again_is_ever_slower(bench: Callable[..., Bench]) -> None:
    grid = four(seconds=0.01)
    grid.nodes[102].introduces = lambda message: failing(message, 8)
    made = bench(grid, aggregations=40)
    made.to_the_end()
    assert grid.greeted.count(102) <= 2 + made.server.view.time / 0.1  # 0.05 s, 0.1 s, 0.2 s, 0.4 s, 0.4 s, …


def test_nobody_waits_for_a_node_that_never_answers(bench: Callable[..., Bench]) -> None:
    grid = four(seconds=0.01)
    asked: list[Message] = []
    grid.nodes[102].introduces = lambda message: asked.append(message)
    made = bench(grid, aggregations=20, at_least=3)
    made.until(lambda: made.server.view.version >= 10)
    del grid.nodes[102]  # it vanishes while it is being asked
    made.to_the_end()
    assert len(asked) == 1 and asked[0].metadata.ttl == 600  # Flower itself gives the question up then
    assert made.updates(2) == 0 and not made.ended
    courier = made.link._courier
    assert courier is not None and 102 not in courier._pending


def test_of_two_nodes_of_one_name_the_first_goes_on_when_the_second_leaves(bench: Callable[..., Bench]) -> None:
    grid = four(seconds=0.01)
    made = bench(grid, aggregations=200, at_least=4)
    made.until(lambda: made.server.view.version >= 3)
    grid.nodes[999] = FakeNode({"partition-id": 0}, seconds=0.01)
    made.until(lambda: made.roster.holder(0).node == 999 and grid.nodes[999].sent)
    del grid.nodes[999]
    before = len(grid.nodes[100].sent)
    made.until(lambda: len(grid.nodes[100].sent) > before)
    assert made.roster.holder(0).node == 100


def test_two_keys_are_two_clients_whatever_they_say(bench: Callable[..., Bench]) -> None:
    grid = FakeGrid({each: FakeNode({"name": "a", "partition-id": 1}, key=bytes([each])) for each in (5, 6)})
    made = bench(grid, at_least=2, by_key=True)
    made.to_the_end()
    assert sorted(place.number for place in made.roster.places.values()) == [0, 1]


def test_a_name_of_megabytes_is_neither_kept_nor_logged(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    grid = four(seconds=0.01)
    grid.nodes[102].told = {"name": "a" * 10**7}
    made = bench(grid, aggregations=10)
    made.to_the_end()
    assert sorted(made.roster.places) == ["node 102", "partition 0", "partition 1", "partition 3"]
    assert len(caplog.text) < 10_000 and len(str(made.link.state()["roster"])) < 1000


def test_there_are_at_most_so_many_clients_under_whatever_names(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    """A node that has been seen is known again, however many others come; only new names are one too many."""
    grid = FakeGrid({each: FakeNode({"name": f"client {each}"}, seconds=0.01) for each in range(5)})
    made = bench(grid, aggregations=200)
    made.roster.most = 3
    made.until(lambda: len(grid.greeted) >= 5 and made.server.view.version > 5)
    assert len(made.roster.places) == 3 == made.server.view.n
    (known,) = (name for name, place in made.roster.places.items() if place.number == 0)
    number = int(known.removeprefix("name client "))
    grid.nodes[7] = FakeNode({"name": f"client {number}"}, seconds=0.01)
    del grid.nodes[number]
    made.until(lambda: made.roster.places[known].node == 7)
    assert "gets no tasks: there are already 3 clients (max_clients)" in caplog.text
