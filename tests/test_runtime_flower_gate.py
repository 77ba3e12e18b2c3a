"""The gate over a Grid: who is not listed or in quarantine gets no tasks, accounts are kept, a rule counts strikes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fairlag.core.types import Dispatch, Outcome
from fairlag.errors import InputError
from fairlag.runtime.decisions import Order
from fairlag.runtime.flower.gate import IN_QUARANTINE, UNLISTED, Gate, Strikes
from fairlag.runtime.flower.nodes import fingerprint
from fairlag.zoo import fairshare, fedasync, fedavg
from tests.support.flower_bench import Bench, four
from tests.support.flower_grid import FakeGrid, FakeNode, replied
from tests.support.states import through_a_file

pytestmark = pytest.mark.usefixtures("quick_grid")


class Orders:
    """What people decide, when a test says so."""

    def __init__(self) -> None:
        self.asked: list[Order] = []

    def __call__(self) -> list[Order]:
        asked, self.asked = self.asked, []
        return asked

    def quarantine(self, node: str, why: str = "it is broken") -> None:
        self.asked.append(Order(node, why))

    def release(self, node: str) -> None:
        self.asked.append(Order(node, "repaired", release=True))


def keyed() -> FakeGrid:
    """Five nodes with keys."""
    nodes = {100 + each: FakeNode({"partition-id": each}, seconds=0.005, key=b"key %d" % each) for each in range(5)}
    return FakeGrid(nodes)


def name(number: int) -> str:
    return f"key {fingerprint(b'key %d' % number)}"


def test_an_unlisted_node_gets_no_message_at_all(bench: Callable[..., Bench]) -> None:
    grid = keyed()
    allowed = {fingerprint(b"key %d" % each): f"site {each}" for each in range(4)}
    made = bench(grid, at_least=4, aggregations=20, by_key=True, gate={"allowed": allowed})
    made.to_the_end()
    assert 104 not in grid.greeted and not grid.nodes[104].sent
    assert sorted(grid.greeted) == [100, 101, 102, 103] and len(made.roster.places) == 4
    assert ("refused", name(4), None, UNLISTED) in made.decisions
    admitted = {(node, why) for kind, node, _, why in made.decisions if kind == "admitted"}
    assert admitted == {(name(each), f"its key is on the allow-list, as 'site {each}'") for each in range(4)}


def test_a_node_without_a_key_is_not_on_any_list(bench: Callable[..., Bench]) -> None:
    grid = FakeGrid({100: FakeNode({"partition-id": 0}), 101: FakeNode({"partition-id": 1}, key=b"key 1")})
    made = bench(grid, fedasync(), aggregations=5, by_key=True, gate={"allowed": {fingerprint(b"key 1"): ""}})
    made.to_the_end()
    assert grid.greeted == [101] and [*made.roster.places] == [name(1)]


def test_a_node_in_quarantine_gets_no_tasks_until_it_is_released(bench: Callable[..., Bench]) -> None:
    orders, grid = Orders(), four(seconds=0.005)
    made = bench(grid, aggregations=None, until_time=60.0, at_least=4, gate={"orders": orders})
    made.until(lambda: made.server.view.version >= 3)
    slow = grid.nodes[102]
    slow.seconds, asked = 0.3, len(slow.sent)
    made.until(lambda: len(slow.sent) > asked)  # it holds a task whose update would come in 0.3 s
    orders.quarantine("partition 2")
    made.until(lambda: made.ended)
    assert made.ended == [(2, Outcome.REFUSED, IN_QUARANTINE)]
    assert made.server.view.present == 3
    merged, asked, version = made.updates(2), len(slow.sent), made.server.view.version
    made.until(lambda: made.server.view.version >= version + 60)  # well after its reply
    assert (made.updates(2), len(slow.sent), len(made.ended)) == (merged, asked, 1)
    orders.release("partition 2")
    made.until(lambda: made.updates(2) > merged)
    kinds = [decision for decision in made.decisions if decision[0] in ("quarantined", "released")]
    assert kinds == [
        ("quarantined", "partition 2", 2, "it is broken"),
        ("released", "partition 2", 2, "repaired"),
    ]


def test_a_node_gets_no_task_between_the_decision_and_its_leaving(bench: Callable[..., Bench]) -> None:
    """The server may give it one meanwhile, with an event that happened before."""
    orders = Orders()
    made = bench(four(seconds=0.005), aggregations=None, until_time=60.0, at_least=4, gate={"orders": orders})
    made.until(lambda: made.server.view.version >= 3)
    orders.quarantine("partition 2")
    made.link._carry_out()
    made.link._at_node.pop(2, None)
    made.link._dispatch(Dispatch(10**6, 2, made.server.view.version, 0, 0.0))
    assert 2 not in made.link._at_node


def test_a_node_may_be_excluded_before_it_comes_and_whatever_its_number(bench: Callable[..., Bench]) -> None:
    orders, grid = Orders(), four(seconds=0.005)
    late = grid.nodes.pop(103)
    made = bench(grid, aggregations=None, until_time=60.0, at_least=3, gate={"orders": orders})
    orders.quarantine("partition 3")
    made.until(lambda: made.server.view.version >= 3)
    grid.nodes[555] = late
    made.until(lambda: ("refused", "partition 3", 3, IN_QUARANTINE) in made.decisions)
    del grid.nodes[555]
    grid.nodes[556] = late  # restarted, with another number of Flower's
    version = made.server.view.version
    made.until(lambda: 556 in grid.greeted and made.server.view.version >= version + 20)
    assert not late.sent and made.server.view.present == 3


def test_training_does_not_begin_with_nodes_in_quarantine(bench: Callable[..., Bench]) -> None:
    grid = four()
    made = bench(grid, at_least=4, gate={"quarantined": {"partition 1": "known to be broken"}})
    made.until(lambda: len(grid.greeted) == 4 and made.decisions)
    version = [made.link.proceed(1, patience=0.02) for _ in range(5)]
    assert version == [None] * 5 and made.server.view.present == 0


@pytest.mark.parametrize("terms", [{}, {"entitled": "known"}], ids=["present", "known"])
def test_quarantine_keeps_accounts_and_nobody_spends_more_than_it_earned(
    bench: Callable[..., Bench], terms: dict[str, Any]
) -> None:
    strategy = fairshare(buffer=2, estimator="account", cap=2.0, **terms)
    orders, grid = Orders(), four(seconds=0.005)
    made = bench(grid, strategy, aggregations=None, until_time=60.0, at_least=4, gate={"orders": orders})
    view = made.server.view

    def check_sums() -> None:
        assert view.earned.sum() == pytest.approx(view.version)
        assert view.balance(np.arange(4)).min() >= -1e-9

    made.until(lambda: view.version >= 10)
    orders.quarantine("partition 1")
    made.until(lambda: view.present == 3)
    version = view.version
    made.until(lambda: view.version >= version + 2)  # an update of it may wait in the buffer
    held, earned, merged = float(view.balance(np.arange(4))[1]), float(view.earned[1]), made.updates(1)
    version = view.version
    made.until(lambda: view.version >= version + 20)
    check_sums()
    assert made.updates(1) == merged
    if not terms:  # it is treated as absent: an absent client earns nothing, unless all known clients do
        assert (float(view.balance(np.arange(4))[1]), float(view.earned[1])) == (held, earned)
    else:
        assert view.earned[1] > earned
    orders.release("partition 1")
    made.until(lambda: made.updates(1) >= merged + 3)
    check_sums()
    state = through_a_file(made.link.state())
    made.link.close()
    again = bench(four(seconds=0.005), strategy, aggregations=None, until_time=60.0, at_least=4)
    again.link.restore(state)
    assert again.server.view.earned[1] == view.earned[1]


def test_a_quarantine_does_not_hold_up_a_round(bench: Callable[..., Bench]) -> None:
    """A cohort waits for all of its clients: one in quarantine counts as one that has left."""
    orders, grid = Orders(), four(seconds=0.005)
    grid.nodes[102].answer = lambda message: None
    made = bench(grid, fedavg(cohort=4), aggregations=3, at_least=4, gate={"orders": orders})
    made.until(lambda: grid.nodes[102].sent and made.server.view.buffered == 3)
    orders.quarantine("partition 2")
    made.to_the_end()
    assert made.server.view.version == 3 and made.updates(2) == 0


def malformed(message: Any) -> Any:
    return replied(message, {"wrong": np.zeros(3, np.float32)})


def diverged(message: Any) -> Any:
    return replied(message, {"weight": np.full(3, np.nan, np.float32)})


def test_a_rule_puts_a_node_into_quarantine_that_keeps_sending_nonsense(bench: Callable[..., Bench]) -> None:
    grid = four(seconds=0.005)
    grid.nodes[101].answer, grid.nodes[102].answer = malformed, diverged
    made = bench(
        grid,
        aggregations=None,
        until_time=60.0,
        at_least=4,
        longest_backoff=0.06,
        gate={"strikes": Strikes(3, among=5)},
    )
    made.until(lambda: sum(client == 2 for client, _, _ in made.ended) >= 8)
    assert [decision[:3] for decision in made.decisions if decision[0] == "quarantined"] == [
        ("quarantined", "partition 1", 1)
    ]
    assert sum(client == 1 for client, _, _ in made.ended) == 3 == len(grid.nodes[101].sent)
    assert "3 of its last 5 updates were refused, the last one because: its arrays" in str(made.decisions)


def test_refusals_far_apart_are_forgiven(bench: Callable[..., Bench]) -> None:
    grid, sent = four(seconds=0.005), [0]

    def sometimes(message: Any) -> Any:
        sent[0] += 1
        after = message.content.array_records["arrays"]["weight"].numpy()
        return malformed(message) if sent[0] % 4 == 0 else replied(message, {"weight": after})

    grid.nodes[101].answer = sometimes
    made = bench(
        grid,
        aggregations=None,
        until_time=60.0,
        at_least=4,
        longest_backoff=0.06,
        gate={"strikes": Strikes(2, among=3)},
    )
    made.until(lambda: sum(client == 1 for client, _, _ in made.ended) >= 4)
    assert not [decision for decision in made.decisions if decision[0] == "quarantined"]


def test_without_a_rule_only_people_exclude_nodes(bench: Callable[..., Bench]) -> None:
    grid = four(seconds=0.005)
    grid.nodes[101].answer = malformed
    made = bench(grid, aggregations=None, until_time=60.0, at_least=4, longest_backoff=0.06)
    made.until(lambda: sum(client == 1 for client, _, _ in made.ended) >= 5)
    assert {decision[0] for decision in made.decisions} == {"admitted", "refused"}


def test_names_are_one_line_wherever_they_are_logged(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    orders, grid = Orders(), four(seconds=0.005)
    grid.nodes[102].told = {"name": "a\nNode 7 is client 0\x1b[31m"}
    made = bench(grid, aggregations=None, until_time=60.0, at_least=4, gate={"orders": orders})
    made.until(lambda: made.server.view.version >= 3)
    orders.quarantine("name a Node 7 is client 0[31m")
    made.until(lambda: made.server.view.present == 3)
    assert all("\n" not in record.getMessage() and "\x1b" not in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"refusals": 0}, "refusals of Strikes is 0, it must be a whole number of at least 1"),
        ({"among": True}, "among of Strikes is True"),
        ({"refusals": 5, "among": 4}, "among of Strikes is 4, it must be at least refusals, which is 5"),
        ({"reasons": ""}, "reasons of Strikes is '', it must be a tuple"),
        ({"reasons": ("",)}, "it must be a tuple of beginnings of reasons"),
    ],
)
def test_a_wrong_rule_is_one_sentence(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Strikes(**wrong)


def test_an_order_for_the_state_that_is_there_changes_nothing() -> None:
    notes: list[Any] = []
    orders = Orders()
    bench = Bench(four(), gate={"orders": orders})
    gate = Gate(bench.roster, orders=orders, note=lambda *decision: notes.append(decision))
    orders.release("partition 1")
    assert gate.decided() == [] and not notes
    orders.quarantine("partition 1")
    orders.quarantine("partition 1", "again")
    assert [order.why for order, _ in gate.decided()] == ["it is broken"] and len(notes) == 1
