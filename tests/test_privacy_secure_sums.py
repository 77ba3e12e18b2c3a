"""Buffers of masked updates: sums in exact numbers, wrong seals left out, and every other refusal said."""

from typing import Any

import numpy as np
import pytest

from fairlag.core.types import Dispatch
from fairlag.errors import KeeperError
from fairlag.privacy.secure.client import mask
from fairlag.privacy.secure.seal import Origin
from fairlag.privacy.secure.simulated import SimulatedClients
from fairlag.privacy.secure.sums import KeeperSum, masked, row
from tests.support.secure import PUBLIC, RUN, SIGNERS, SIZE, keeper, updates

TASKS = [Dispatch(task=place, client=10 + place, version=0, ordinal=0, time=0.0) for place in range(4)]
EQUAL = np.full(4, 0.25)


def rows() -> Any:
    """The updates 0.5, 1.5, 2.5, 3.5 of four clients."""
    return np.array([row(each) for each in updates(4)])


def test_a_row_holds_a_masked_update() -> None:
    (update,) = updates(1)
    again = masked(row(update))
    assert again.sealed == update.sealed and again.vector.tolist() == update.vector.tolist()


def test_the_sum_of_a_buffer() -> None:
    sums = KeeperSum(RUN, SIZE, keeper().answer)
    found = sums.summed(TASKS, rows(), np.array([0.5, 0.25, 0.25, 1.0]))
    assert not isinstance(found, str)
    step, weights = found
    assert weights.tolist() == [0.5, 0.25, 0.25, 1.0]
    assert step == pytest.approx(np.full(SIZE, 0.25 + 0.375 + 0.625 + 3.5), abs=2 * 2.0**-22)


def test_an_update_with_a_wrong_seal_is_left_out() -> None:
    said: list[str] = []
    buffer = rows()
    buffer[1, -3] ^= np.uint64(1)  # a bit of its signature
    found = KeeperSum(RUN, SIZE, keeper().answer, warn=said.append).summed(TASKS, buffer, EQUAL)
    assert not isinstance(found, str)
    step, weights = found
    assert weights.tolist() == [0.25, 0.0, 0.25, 0.25]
    assert step == pytest.approx(np.full(SIZE, 0.25 * (0.5 + 2.5 + 3.5)), abs=2.0**-22)
    assert len(said) == 1 and said[0].startswith("the update of client 11 is left out: the keeper refused: update 1")


def test_what_the_keeper_refuses_is_a_reason() -> None:
    sums, buffer = KeeperSum(RUN, SIZE, keeper().answer), rows()
    few = sums.summed(TASKS, buffer, np.array([0.5, 0.5, 0.0, 0.0]))
    assert few == "the keeper refused: 2 clients have a positive weight, there must be at least 3"
    negative = sums.summed(TASKS, buffer, np.array([0.5, 0.5, 0.5, -0.5]))
    assert isinstance(negative, str) and negative.startswith("a weight is -0.5")


def test_a_buffer_that_was_summed_before_is_lost() -> None:
    said: list[str] = []
    sums, buffer = KeeperSum(RUN, SIZE, keeper().answer, warn=said.append), rows()
    assert not isinstance(sums.summed(TASKS, buffer, EQUAL), str)
    again = sums.summed(TASKS, buffer, EQUAL)
    assert isinstance(again, str) and "clients have a positive weight" in again
    assert "the seed of update 0 was used before" in said[0]


def test_a_keeper_that_does_not_answer_is_a_reason() -> None:
    def silent(request: bytes) -> bytes:
        raise KeeperError("the keeper at 127.0.0.1:9 does not answer")

    found = KeeperSum(RUN, SIZE, silent).summed(TASKS, rows(), EQUAL)
    assert found == "the keeper at 127.0.0.1:9 does not answer"


def test_a_seal_for_another_task_is_seen_without_the_keeper() -> None:
    sums = KeeperSum(RUN, SIZE, keeper().answer)
    sent = row(mask(np.zeros(SIZE, np.float32), Origin(RUN, 7, 3), PUBLIC, SIGNERS[0]))
    task = Dispatch(task=7, client=0, version=3, ordinal=0, time=0.0)
    assert sums.objection(sent, task) is None
    for other in (task._replace(task=8), task._replace(version=2)):
        assert sums.objection(sent, other) == "it is sealed for another task or version"


def test_a_simulated_keeper_remembers_used_seeds_through_a_restart() -> None:
    def clients() -> SimulatedClients:
        return SimulatedClients(seed=4, size=SIZE, bound=0.5)

    first, second = clients(), clients()
    buffer = np.array([first.sent(np.ones(SIZE, np.float32), task) for task in TASKS])
    assert not isinstance(first.sum.summed(TASKS, buffer, EQUAL), str)
    second.sum.restore(first.sum.state())
    assert isinstance(second.sum.summed(TASKS, buffer, EQUAL), str)


@pytest.mark.parametrize("weights", [[0.25, 0.25, 0.25, 0.25], [0.4, 0.3, 0.3, 0.0], [0.7, 1.1, 0.2, 0.9]])
def test_sums_have_the_same_bits_with_and_without_masks(weights: list[float]) -> None:
    generator, found = np.random.default_rng(0), []
    updates = generator.normal(0, 1, (4, SIZE)).astype(np.float32)
    for masks in (True, False):
        clients = SimulatedClients(seed=4, size=SIZE, bound=0.6, masks=masks)
        buffer = np.array([clients.sent(*each) for each in zip(updates, TASKS, strict=True)])
        step = clients.sum.summed(TASKS, buffer, np.array(weights))
        assert not isinstance(step, str)
        found.append(step[0].tobytes())
    assert found[0] == found[1]
    clear = np.array(weights) @ updates.astype(np.float64)
    assert np.abs(np.frombuffer(found[0], np.float32) - clear).max() < 1e-6
