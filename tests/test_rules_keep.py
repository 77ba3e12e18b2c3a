"""Reductions with a memory: numbers by hand, rooms that grow, and what is saved of them."""

import numpy as np
import pytest

from fairlag.core.buffer import Buffer
from fairlag.core.ledger import Ledger
from fairlag.core.rounds import NoRound
from fairlag.core.state import pack
from fairlag.core.types import Dispatch, Report
from fairlag.core.vector import Vector, published
from fairlag.core.versions import Versions
from fairlag.core.view import View
from fairlag.rules import keep
from tests.support.scenes import vec


class Desk:
    """A reducer with the ledger and the versions that it sees; clients have 1, 2, 3, … examples."""

    def __init__(self, rule: keep.Keeping, clients: int) -> None:
        self.ledger = Ledger(clients=clients, examples=np.arange(1, clients + 1))
        self.versions = Versions(published([1, 1]))
        self.ledger.join(0)
        for client in range(1, clients):
            self.ledger.join(client)
        self.view = View(self.ledger, self.versions)
        self.reducer = rule.start(self.view)

    def reduce(self, *sent: tuple[int, float, float], weight: float = 1.0, drafted: list[bool] | None = None) -> Vector:
        """The step that these (client, *update), all trained from the newest version, make."""
        tasks = tuple(Dispatch(place, client, self.ledger.version, 0, 0.0) for place, (client, *_) in enumerate(sent))
        rows = np.array([delta for _, *delta in sent], np.float32)
        buffer = Buffer(tasks, [0] * len(tasks), [Report()] * len(tasks), rows, drafted)
        return self.reducer.reduce(np.full(len(tasks), weight), rows, buffer)

    def publish(self, *values: float) -> None:
        self.ledger.renew()
        self.versions.publish(vec(*values))

    def parts(
        self, *senders: int, weight: float = 1.0, drafted: list[bool] | None = None
    ) -> tuple[dict[int, float], float]:
        """How these clients' updates change parts, and the unit; the ledger is told as by the server."""
        tasks = tuple(Dispatch(place, client, self.ledger.version, 0, 0.0) for place, client in enumerate(senders))
        for task in tasks:
            self.ledger.admit(task, Report(examples=task.client + 1))
        self.ledger.merge()
        buffer = Buffer(tasks, [0] * len(tasks), [Report()] * len(tasks), None, drafted)
        parts = self.reducer.parts(np.full(len(tasks), weight), buffer)
        self.ledger.stand(parts)
        self.ledger.renew()
        return dict(zip(parts.clients.tolist(), parts.changes.tolist(), strict=True)), parts.unit


def test_replacing_gives_a_client_its_part_with_its_first_update() -> None:
    desk = Desk(keep.replacing(), 3)
    assert desk.parts(1, weight=0.5) == ({1: 0.5}, 1.0)
    assert desk.parts(1, weight=0.25) == ({}, 1.0), "what it adds, it also takes away"
    assert desk.parts(2, 2, 1, weight=0.125) == ({2: 0.125}, 1.0)
    assert desk.view.weight_sums.tolist() == [0, 1.5, 0.125]


def test_averaging_gives_a_client_the_part_that_its_examples_have_of_all() -> None:
    desk = Desk(keep.averaging(), 3)
    assert desk.parts(1, 2, drafted=[True, False]) == ({1: 2.0}, 1 / 6)
    assert desk.parts(0) == ({2: 3.0, 0: 1.0}, 1 / 6), "client 2 was kept for this version"
    assert desk.parts(1, drafted=[False]) == ({}, 1 / 6), "what counted before counts once more"
    desk.ledger.round = NoRound()
    desk.ledger.round.restarted = [0, 1]
    assert desk.parts(1) == ({0: -1.0}, 1 / 6), "the newest version in its place is nobody's own"
    assert desk.view.weight_sums.tolist() == pytest.approx([2 / 6, 8 / 6, 9 / 6])


def test_averaging_counts_new_examples_at_once_and_new_clients_with_the_version_that_they_come_for() -> None:
    desk = Desk(keep.averaging(), 2)
    desk.parts(0, 1)
    desk.ledger.join(2)  # with one example
    assert desk.parts() == ({}, 1 / 4)
    desk.ledger.admit(Dispatch(9, 0, 1, 1, 0.0), Report(examples=5))
    tasks, *_ = desk.ledger.merge()
    parts = desk.reducer.parts(np.ones(1), Buffer(tasks, [0], [Report()], None, [False]))
    assert (parts.clients.tolist(), parts.changes.tolist(), parts.unit) == ([0], [4.0], 1 / 8)


def test_replacing_takes_the_difference_to_the_last_model_of_the_same_client() -> None:
    desk = Desk(keep.replacing(), 3)
    assert desk.reduce((1, 4, 0), weight=0.5).tolist() == [2, 0]
    assert desk.reduce((1, 4, 6), (2, 2, 2), weight=0.5).tolist() == [1, 4]
    assert desk.reduce((1, 0, 0), (1, 8, 8)).tolist() == [4, 2]  # by way of (1, 1), to (9, 9) from (5, 7)


def test_averaging_counts_those_that_were_never_heard_of_with_the_first_version() -> None:
    desk = Desk(keep.averaging(), 3)
    assert desk.reduce((2, 4, 0)).tolist() == [2, 0]  # 3/6 of it
    desk.publish(3, 1)
    # (5, 1), (2, 4), and (1, 1) of client 0: the mean is (5 · 3 + 2 · 2 + 1)/6, (3 + 4 · 2 + 1)/6
    assert desk.reduce((1, -1, 3)).tolist() == pytest.approx([20 / 6 - 3, 1])


def test_averaging_keeps_what_was_not_drafted_for_the_next_version() -> None:
    desk = Desk(keep.averaging(), 2)
    assert desk.reduce((0, 3, 3), (1, 6, 6), drafted=[True, False]).tolist() == [1, 1]
    desk.publish(2, 2)
    assert desk.reduce((0, 2, 2)).tolist() == pytest.approx([4, 4])  # 4/3 + 7 · 2/3 − 2


def test_averaging_counts_those_that_begin_anew_with_the_newest_version_unless_they_are_drafted() -> None:
    desk = Desk(keep.averaging(), 2)
    desk.reduce((0, 3, 3), (1, 6, 6))
    desk.publish(10, 10)
    desk.ledger.round = NoRound()
    desk.ledger.round.restarted = [0, 1]
    assert desk.reduce((0, 3, 3)).tolist() == pytest.approx([1, 1])  # 13 and twice 10


def test_the_mean_of_equal_models_is_that_model_for_any_number_of_clients() -> None:
    for clients in (1, 2, 3, 17, 100):
        desk = Desk(keep.averaging(), clients)
        for client in range(clients):
            step = desk.reduce((client, 2, -1))
        assert np.allclose(step, [2, -1], atol=1e-5)


def test_what_was_kept_for_the_next_version_is_saved() -> None:
    one, other = Desk(keep.averaging(), 3), Desk(keep.averaging(), 3)
    one.parts(0, 2, drafted=[True, False])
    other.reducer.restore(one.reducer.state())
    other.ledger.restore(one.ledger.state())
    assert other.parts(1) == one.parts(1) == ({2: 3.0, 1: 2.0}, 1 / 6)
    assert other.view.weight_sums.tolist() == one.view.weight_sums.tolist() == pytest.approx([2 / 6, 2 / 6, 3 / 6])


@pytest.mark.parametrize("rule", [keep.replacing(), keep.averaging()], ids=lambda rule: rule.label)
@pytest.mark.parametrize("heard", [0, 1, 3, 6])
def test_a_restored_reducer_goes_on_alike(rule: keep.Keeping, heard: int) -> None:
    random = np.random.default_rng(heard)
    one, other = Desk(rule, 6), Desk(rule, 6)
    for client in random.permutation(6)[:heard].tolist():
        one.reduce((client, *random.normal(size=2).tolist()))
    state = one.reducer.state()
    before = {path: array.tobytes() for path, array in pack(state)[0].items()}
    other.reducer.restore(state)
    for _ in range(20):
        sent = (int(random.integers(6)), *random.normal(size=2).tolist())
        assert one.reduce(sent).tobytes() == other.reduce(sent).tobytes()
    assert {path: array.tobytes() for path, array in pack(state)[0].items()} == before, "a state does not change"
    ends = [{path: array.tobytes() for path, array in pack(desk.reducer.state())[0].items()} for desk in (one, other)]
    assert ends[0] == ends[1]
