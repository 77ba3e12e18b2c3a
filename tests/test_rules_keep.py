"""Reductions with a memory: numbers by hand, rooms that grow, and what is saved of them."""

import numpy as np
import pytest

from fairlag.buffer import Buffer
from fairlag.ledger import Ledger, NoRound
from fairlag.rules import keep
from fairlag.state import pack
from fairlag.types import Dispatch, Report
from fairlag.vector import Vector, published
from fairlag.versions import Versions
from fairlag.view import View
from tests.helpers import vec


class Desk:
    """A reducer with the ledger and the versions that it sees; clients have 1, 2, 3, … examples."""

    def __init__(self, rule: keep.Keeping, clients: int) -> None:
        self.ledger = Ledger(clients=clients, examples=np.arange(1, clients + 1))
        self.versions = Versions(published([1, 1]))
        self.ledger.join(0)
        for client in range(1, clients):
            self.ledger.join(client)
        self.reducer = rule.start(View(self.ledger, self.versions))

    def reduce(self, *sent: tuple[int, float, float], weight: float = 1.0, drafted: list[bool] | None = None) -> Vector:
        """The step that these (client, *update), all trained from the newest version, make."""
        tasks = tuple(Dispatch(place, client, self.ledger.version, 0, 0.0) for place, (client, *_) in enumerate(sent))
        rows = np.array([delta for _, *delta in sent], np.float32)
        buffer = Buffer(tasks, [0] * len(tasks), [Report()] * len(tasks), rows, drafted)
        return self.reducer.reduce(np.full(len(tasks), weight), rows, buffer)

    def publish(self, *values: float) -> None:
        self.ledger.renew()
        self.versions.publish(vec(*values))


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
