"""The server with secure aggregation: masked updates are added up, and rules that read single ones are refused."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fairlag import zoo
from fairlag.core.mechanism import Mechanism
from fairlag.core.secure import Words, check_hidden, masked_update
from fairlag.core.server import Server
from fairlag.core.state import State, take
from fairlag.core.types import Aggregation, Arrived, CheckedUpdate, Dispatch, Floats, Joined, Report, Row, Update
from fairlag.core.vector import Layout, Vector
from fairlag.errors import StrategyError
from fairlag.rules.admit import max_norm, max_staleness
from fairlag.rules.edit import clip
from fairlag.rules.reduce import trimmed_mean
from fairlag.zoo.private import hidden
from tests.support.scenes import Scene, vec

USELESS = np.uint64(77)
PLAIN = Layout(("weight",), ((2,),))


class Sum:
    """Adds up two numbers per update, whose mask is the third word; it may refuse, and counts what it was asked."""

    words = 3

    def __init__(self, refusal: str = "") -> None:
        self.refusal, self.asked = refusal, 0

    def objection(self, row: Words, task: Dispatch) -> str | None:
        return "sealed for another task" if row[2] == task.task else None

    def summed(self, tasks: Sequence[Dispatch], rows: Words, weights: Floats) -> tuple[Vector, Floats] | str:
        self.asked += 1
        numbers, used = (rows[:, :2] - rows[:, 2:]).astype(np.int64), np.where(rows[:, 1] == USELESS, 0.0, weights)
        return self.refusal or ((used @ numbers).astype(np.float32), used)

    def state(self) -> State:
        return {"asked": self.asked}

    def restore(self, state: State) -> None:
        self.asked = take(state, "asked", int)


def row(first: int, second: int) -> Update:
    """An update with a mask of 2^63 + 5, so that the masked numbers wrap around."""
    mask = np.uint64(2**63 + 5)
    return masked_update(np.append(np.array([first, second], np.int64).astype(np.uint64) + mask, mask))


def started(secure: Sum, rows: list[Row]) -> Server:
    server = Server(
        zoo.buffered_fedavg(buffer=2), clients=2, parameters=vec(1, 1), secure=secure, record=rows.append, max_growth=10
    )
    server.handle(Joined(0.0, [0, 1]))
    return server


def test_a_version_is_the_sum_of_masked_updates() -> None:
    rows: list[Row] = []
    server = started(Sum(), rows)
    server.handle(Arrived(1.0, 0, row(-4, 2)))
    server.handle(Arrived(2.0, 1, row(2, 2)))
    assert server.versions.newest.tolist() == [0.0, 3.0] and not server.refused


def test_an_update_that_is_left_out_weighs_nothing() -> None:
    rows: list[Row] = []
    server = started(Sum(), rows)
    server.handle(Arrived(1.0, 0, masked_update(np.array([1, USELESS, 9], np.uint64))))
    server.handle(Arrived(2.0, 1, row(2, 2)))
    (merged,) = (each for each in rows if isinstance(each, Aggregation))
    assert merged.weights.tolist() == [0.0, 0.5] and server.versions.newest.tolist() == [2.0, 2.0]
    assert server.view.weight_sums.tolist() == [0.0, 0.5]


def test_a_refused_sum_loses_the_buffer_and_nothing_else() -> None:
    rows: list[Row] = []
    server = started(secure := Sum("the keeper does not answer"), rows)
    server.handle(Arrived(1.0, 0, row(-4, 2)))
    server.handle(Arrived(2.0, 1, row(2, 2)))
    (merged,) = (each for each in rows if isinstance(each, Aggregation))
    assert merged.refused == "the keeper does not answer" and merged.weights.tolist() == [0.0, 0.0]
    assert server.versions.newest.tolist() == [1.0, 1.0] and server.view.version == 1
    secure.refusal = ""
    server.handle(Arrived(3.0, 2, row(2, 0)))
    server.handle(Arrived(4.0, 3, row(4, 0)))
    assert server.versions.newest.tolist() == [4.0, 1.0] and not server.refused


def test_a_step_that_is_too_large_is_refused_without_suspects() -> None:
    server = started(Sum(), [])
    server.handle(Arrived(1.0, 0, row(10**6, 2)))
    server.handle(Arrived(2.0, 1, row(2, 2)))
    assert server.refused == "the step is more than 10 times as large as the model"


def test_a_client_that_does_not_clip_moves_the_model_no_further_than_a_version_could() -> None:
    strategy, guard = zoo.buffered_fedavg(buffer=2), Mechanism(clip=5.0)
    server = Server(strategy, clients=2, parameters=vec(1, 1), secure=Sum(), privacy=guard)
    server.handle(Joined(0.0, [0, 1]))
    server.handle(Arrived(1.0, 0, row(3 * 10**6, 4 * 10**6)))
    server.handle(Arrived(2.0, 1, row(0, 0)))
    assert server.versions.newest.tolist() == pytest.approx([4.0, 5.0], rel=1e-5)
    before = server.versions.newest
    server.handle(Arrived(3.0, 2, row(3, 4)))
    server.handle(Arrived(4.0, 3, row(3, 4)))  # as long as they may be
    assert (server.versions.newest == before + vec(3, 4)).all()


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (Update(vec(1, 2)), "the dtype is not uint64"),
        (masked_update(np.zeros(2, np.uint64)), "the shape is not (3,)"),
        (masked_update(np.zeros(0, np.uint64)), "not finite"),
        (masked_update(np.zeros(3, np.uint64)), "sealed for another task"),
        (CheckedUpdate(vec(1, 2)), "not an update"),
        (masked_update(np.zeros(3, np.uint64), Report(examples=0)), "the number of examples is not an int between"),
    ],
)
def test_an_update_in_the_clear_never_enters_the_buffer(update: Update, reason: str) -> None:
    server = started(Sum(), [])
    server.handle(Arrived(1.0, 0, update))
    assert next(iter(server.refusals)).startswith(reason) and server.view.buffered == 0


def test_masked_updates_and_the_state_of_the_sum_survive_a_restart() -> None:
    first = started(Sum(), [])
    first.handle(Arrived(1.0, 0, row(-4, 2)))
    second, secure = Server(zoo.buffered_fedavg(buffer=2), clients=2, parameters=vec(1, 1), secure=(sums := Sum())), 7
    first_state = first.state()
    take(first_state, "secure", dict)["asked"] = secure
    second.restore(first_state)
    second.handle(Arrived(2.0, 1, row(2, 2)))
    assert second.versions.newest.tolist() == [0.0, 3.0] and sums.asked == secure + 1


ACCEPTED = {
    *("buffered_fedavg", "fedstaleweight", "fairshare", "exponential", "rate_tracking", "fedbuff", "fadas"),
    *("fedavg", "fedprox", "fednova", "fedavgm", "fedadagrad", "fedadam", "fedyogi", "fedau"),
    *("fedfix", "rennala", "malenia"),
}


@pytest.mark.parametrize("name", sorted(zoo.ALGORITHMS))
def test_every_algorithm_is_accepted_or_refused_by_name(name: str) -> None:
    strategy = zoo.ALGORITHMS[name].make()
    if name in ACCEPTED:
        check_hidden(strategy, PLAIN)
    else:
        with pytest.raises(StrategyError, match="such as fedbuff") as said:
            check_hidden(strategy, PLAIN)
        words = ("in edit", "in reduce", "in local", "in trigger", "second vector")
        assert any(word in str(said.value) for word in words)


def test_rules_that_read_single_updates_are_refused() -> None:
    strategy = zoo.buffered_fedavg(buffer=2)
    check_hidden(replace(strategy, admit=max_staleness(3)), PLAIN)
    readers = {
        "admit": replace(strategy, admit=max_norm(2.0)),
        "edit": replace(strategy, edit=clip(1.0)),
        "reduce": replace(strategy, reduce=trimmed_mean(0.1)),
    }
    for slot, reader in readers.items():
        with pytest.raises(StrategyError, match=rf"\w+\(.*\) in {slot} reads single updates, which \[privacy\] hides"):
            check_hidden(reader, PLAIN)
    mine = replace(strategy, reduce=lambda weights, updates: updates[0])
    with pytest.raises(StrategyError, match="<lambda> in reduce reads single updates"):
        check_hidden(mine, PLAIN)


def test_models_with_statistics_are_refused() -> None:
    layout = Layout(("weight", "norm.running_mean"), ((2,), (1,)), statistics=1)
    with pytest.raises(StrategyError, match=r"has statistics \('norm.running_mean', …\).* GroupNorm instead of"):
        check_hidden(zoo.buffered_fedavg(buffer=2), layout)


def test_a_buffer_of_too_few_clients_for_the_bound_is_refused() -> None:
    scene = Scene(hidden(zoo.fadas(buffer=2), bound=0.6, clients=3), 3, parameters=vec(0, 0, 0))
    scene.arrive(0)
    scene.arrive(0)
    assert scene.weights == [[0.0, 0.0]] and scene.parameters == [0.0, 0.0, 0.0]
    assert scene.merged[0].refused == "no weights are within the bound of 0.6 per client; clients in the buffer: 1"
    scene.arrive(0)
    scene.arrive(1)
    assert scene.weights[1] == [0.5, 0.5] and not scene.merged[1].refused
