"""What travels: tasks as Flower messages, and replies that are updates, or refused in words of ours."""

import ast
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from fairlag.core.types import Dispatch, Report, Update
from fairlag.core.vector import Layout, published
from fairlag.runtime.flower.wire import Told, Wire, failure, introduction, reason
from tests.support.flower_grid import failing, replied, trained

LAYOUT = Layout(("weight", "bias"), ((2, 3), (3,)))
START = published(np.arange(9))
TASK = Dispatch(task=5, client=1, version=4, ordinal=2, time=0.5)


def believed(told: Told) -> Report:
    return Report(told.examples, told.steps or 5, 1.5, told.loss)


def wire() -> Wire:
    return Wire(LAYOUT, {"batches": np.array(3, np.int64)})


def message(of: Wire | None = None) -> Message:
    return (of or wire()).task(TASK, START, {"lr": 0.1}, 77, None)


def good() -> dict[str, Any]:
    return {"weight": np.ones((2, 3), np.float32), "bias": np.ones(3, np.float32), "batches": np.array(4)}


def test_a_task_is_what_flowers_own_strategies_send() -> None:
    sent = message()
    assert sent.metadata.message_type == "train" and sent.metadata.dst_node_id == 77
    arrays = sent.content.array_records["arrays"]
    assert {name: each.numpy().tolist() for name, each in arrays.items()} == {
        "weight": [[0, 1, 2], [3, 4, 5]],
        "bias": [6, 7, 8],
        "batches": 3,
    }
    assert dict(sent.content.config_records["config"]) == {"server-round": 5, "version": 4, "lr": 0.1}


def test_tasks_of_one_version_share_their_arrays() -> None:
    link = wire()
    assert message(link).content["arrays"] is message(link).content["arrays"]


def test_a_reply_is_an_update_and_integers_keep_the_servers_value() -> None:
    link = wire()
    update = link.update(trained(message(link), 0.25, examples=11), START, believed)
    assert isinstance(update, Update)
    assert update.delta.tolist() == [0.25] * 9
    assert update.report == Report(11, 5, 1.5, 0.0)


def test_statistics_in_a_reply_stay_values() -> None:
    layout = Layout(("weight", "running_mean"), ((2, 3), (3,)), statistics=1)
    link = Wire(layout)
    sent = link.task(TASK, START, {}, 77, None)
    update = link.update(trained(sent, 0.25, examples=11), START, believed)
    assert isinstance(update, Update)
    assert update.delta.tolist() == [0.25] * 6 + [6.25, 7.25, 8.25]


def test_a_client_may_say_how_many_steps_it_made_and_its_loss() -> None:
    update = wire().update(replied(message(), good(), 3, **{"num-steps": 10, "train_loss": 0.5}), START, believed)
    assert isinstance(update, Update) and update.report == Report(3, 10, 1.5, 0.5)


@pytest.mark.parametrize(("said", "read"), [({"start-loss": 2.5}, 2.5), ({}, None), ({"start-loss": [2.5]}, None)])
def test_a_client_may_say_its_loss_before_training(said: dict[str, Any], read: float | None) -> None:
    told = list[Told]()

    def refuse(each: Told) -> str:
        told.append(each)
        return "not today"

    assert wire().update(replied(message(), good(), 3, **said), START, refuse) == "not today"
    assert told == [Told(3, None, 0.0, read)]


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        ({"weight": np.ones((3, 2), np.float32)}, "an array has a different shape than the one that was sent"),
        ({"weight": np.ones((2, 3), np.float64)}, "an array is not float32"),
        ({"bias": np.array([1, np.nan, 0], np.float32)}, "not finite"),
        ({"bias": np.array([1, np.inf, 0], np.float32)}, "not finite"),
        ({"other": np.ones(1, np.float32)}, "its arrays are not named as those that were sent"),
    ],
)
def test_what_is_no_update_is_refused(spoilt: dict[str, Any], reason: str) -> None:
    assert wire().update(replied(message(), {**good(), **spoilt}), START, believed) == reason


def test_missing_arrays_and_records_are_refused() -> None:
    arrays = good()
    del arrays["bias"]
    assert (
        wire().update(replied(message(), arrays), START, believed) == "its arrays are not named as those that were sent"
    )
    empty = Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message())
    assert wire().update(empty, START, believed) == "it does not hold exactly one record of arrays"


@pytest.mark.parametrize("examples", [None, 0.5, [1, 2], float("nan"), float("inf")])
def test_the_number_of_examples_must_be_said(examples: Any) -> None:
    reply = replied(message(), good(), examples)
    assert wire().update(reply, START, believed) == "its metrics have no whole number num-examples"


@pytest.mark.parametrize("examples", [0, -1])
def test_the_number_of_examples_must_be_possible(examples: int) -> None:
    found = wire().update(replied(message(), good(), examples), START, believed)
    assert isinstance(found, str) and found.startswith("the number of examples is not an int between 1 and")


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (Array("float32", (3,), "numpy.ndarray", b"made up"), "an array cannot be read"),
        (
            Array("float32", (3,), "numpy.ndarray", bytes(10_000)),
            "an array has a different shape than the one that was sent",
        ),
        (
            Array("float32", (3,), "numpy.ndarray", Array(np.ones(4, np.float32)).data),
            "an array is not what it says it is",
        ),
        (Array("float32", (3,), "numpy.ndarray", Array(np.ones(3)).data), "an array is not what it says it is"),
        (Array("float32", (3,), "pickle", b"cos\nsystem\n"), "an array cannot be read"),
    ],
)
def test_bytes_that_are_made_up_are_refused(array: Array, reason: str) -> None:
    arrays = {name: Array(np.asarray(each)) for name, each in good().items()}
    content = RecordDict(
        {"arrays": ArrayRecord({**arrays, "bias": array}), "metrics": MetricRecord({"num-examples": 1})}
    )
    assert wire().update(Message(content, reply_to=message()), START, believed) == reason


@pytest.mark.parametrize(("failures", "reads"), [(1, True), (9, True), (10, False)])
def test_no_client_pays_for_threads_that_parse_at_once(
    failures: int, reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply, parse = replied(message(), good()), ast.literal_eval
    left = iter(range(failures))

    def disturbed(header: str) -> Any:
        if next(left, None) is None:
            return parse(header)
        raise SystemError("AST constructor recursion depth mismatch (before=30, after=27)")

    monkeypatch.setattr(ast, "literal_eval", disturbed)
    found = wire().update(reply, START, believed)
    assert next(left, None) is None
    assert isinstance(found, Update) if reads else found == "an array cannot be read"


def test_hidden_parts_are_not_sent_and_stay_as_they_are() -> None:
    link = Wire(LAYOUT, hidden=frozenset({"bias"}))
    assert set(message(link).content.array_records["arrays"]) == {"weight"}
    update = link.update(trained(message(link), 1.0), START, believed)
    assert isinstance(update, Update) and update.delta.tolist() == [1] * 6 + [0] * 3


def test_errors_are_said_in_words_of_ours() -> None:
    assert failure(failing(message(), 2)) == "its ClientApp raised an exception"
    assert failure(failing(message(), 5)) == "its node went offline"
    assert failure(failing(message(), 99)) == "its node reported an error"
    assert introduction(failing(message())) == {}


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (
            {"name": "a" * 200, "partition-id": 3, "group": "fast"},
            {"name": "a" * 200, "partition-id": 3, "group": "fast"},
        ),
        ({"name": "a" * 201, "partition-id": 3}, {"partition-id": 3}),
        ({"name": "€" * 67}, {}),  # 201 bytes
        ({"name": b"a" * 10**6, "group": ["a"] * 10**5, "more": "words"}, {}),
    ],
)
def test_what_a_node_says_of_itself_is_bounded_before_it_is_kept(said: dict[str, Any], kept: dict[str, Any]) -> None:
    reply = Message(RecordDict({"config": ConfigRecord(said)}), reply_to=message())
    assert introduction(reply) == kept


def test_what_a_node_says_of_its_failure_is_bounded_before_it_is_logged() -> None:
    said = reason(Message(Error(2, "\x1b[31m" + "a" * 10**6), reply_to=message()))
    assert said == " [31m" + "a" * 195
