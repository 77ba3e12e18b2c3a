"""The serial executor: what it remembers, what it forgets, and how failures are named; the twin of all others."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fairlag.core.types import Dispatch, Update
from fairlag.core.vector import Vector
from fairlag.errors import InputError, ProtocolError
from fairlag.execute.serial import Serial
from fairlag.learn.learner import Learner, task_key
from fairlag.learn.local import Recipe
from fairlag.learn.task import total
from tests.support.learning import PLACEMENT, Fragile, blueprint, data, first, fragile, learner, plain, unscaled, update

PLAN = blueprint(recipe=Recipe(steps=2, batch=8))
START = first(PLAN, seed=4)


def made(seed: int = 4) -> Serial:
    executor = Serial(PLAN, data(), PLACEMENT)
    executor.begin(seed, PLACEMENT)
    return executor


def task(number: int, client: int = 1, *, version: int = 0, ordinal: int | None = None) -> Dispatch:
    return Dispatch(number, client, version, number if ordinal is None else ordinal, 0.0)


def test_a_task_is_computed_from_what_it_was_submitted_with() -> None:
    executor, by = made(), learner(PLAN, seed=4)
    later = START + np.float32(0.5)
    executor.submit(task(0, client=2), START, 3.0)
    executor.submit(task(1, version=7), later, 1.0)
    for number, client, parameters, examples in ((1, 1, later, 33), (0, 2, START, 40)):
        found = executor.result(task(number, client, version=7 * number))
        expected = update(by, parameters, key=task_key(4, client, number), client=client, version=7 * number)
        assert found.delta.tobytes() == expected.tobytes()
        assert found.report.examples == examples
        assert not found.delta.flags.writeable


@pytest.mark.parametrize("how", ["never submitted", "read before", "discarded", "of another run"])
def test_a_result_that_will_never_come(how: str) -> None:
    executor = made()
    if how != "never submitted":
        executor.submit(task(5), START, 1.0)
    if how == "read before":
        executor.result(task(5))
    elif how == "discarded":
        executor.discard(5)
    elif how == "of another run":
        executor.begin(4, PLACEMENT)
    with pytest.raises(
        ProtocolError, match="task 5 of client 1 was never submitted, or its result was already read or"
    ):
        executor.result(task(5))


def test_evaluations_come_in_order_and_once() -> None:
    executor, by = made(), learner(PLAN, seed=4)
    other = START + np.float32(0.1)
    executor.evaluate(0, START, 0.0, 40)
    executor.evaluate(3, other, 0.0, 10)
    (one, first_score), (two, second_score) = executor.evaluated()
    assert (one, two) == (0, 3)
    assert plain(first_score) == plain(total([by.evaluate(START, 0, 40)]))
    assert plain(second_score) == plain(by.evaluate(other, 0, 10))
    assert executor.evaluated() == []
    executor.evaluate(4, START, 0.0, 40)
    executor.begin(4, PLACEMENT)
    assert executor.evaluated() == []
    executor.close()


def test_a_failure_names_task_and_client_or_version() -> None:
    executor = Serial(unscaled(fragile), data(marks={0: Fragile.RAISES, 80: Fragile.RAISES}), PLACEMENT)
    start = first(unscaled(fragile))
    executor.submit(task(9, client=0), start, 1.0)
    with pytest.raises(
        InputError, match=r"^task 9 of client 0 failed: ValueError: no such layer \(learning\.py, line \d+\)$"
    ):
        executor.result(task(9, client=0))
    with pytest.raises(
        InputError, match=r"^evaluating version 6 failed: ValueError: no such layer \(learning\.py, line \d+\)$"
    ):
        executor.evaluate(6, start, 0.0, 40)
    executor.submit(task(10, client=1), start, 1.0)
    assert executor.result(task(10, client=1)).report.examples == 33


@pytest.mark.parametrize("read", ["as due", "backwards", "half of them"])
def test_small_models_are_trained_together_and_every_task_is_what_it_would_be_alone(read: str) -> None:
    plan = blueprint("mlp", Recipe(steps=2, batch=8))
    executor, by = Serial(plan, data(), PLACEMENT), learner(plan, seed=4)
    executor.begin(4, PLACEMENT)
    versions = [first(plan, seed) for seed in range(3)]
    tasks = [task(number, client=number % 3, version=number % 3) for number in range(150)]
    for each in tasks:
        executor.submit(each, versions[each.version], float(each.task))
    if read == "half of them":
        for each in tasks[::2]:
            executor.discard(each.task)
        tasks = tasks[1::2]
    for each in tasks[:: -1 if read == "backwards" else 1]:
        found = executor.result(each)
        expected = update(
            by, versions[each.version], key=task_key(4, each.client, each.ordinal), client=each.client, version=0
        )
        assert found.delta.tobytes() == expected.tobytes()
        assert not found.delta.flags.writeable
    with pytest.raises(ProtocolError, match="already read"):
        executor.result(tasks[0])
    executor.close()


def test_no_more_small_models_are_trained_ahead_than_will_soon_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, sizes, train_all = blueprint("logistic"), list[int](), Learner.train_all

    def noted(by: Learner, tasks: list[Dispatch], starts: list[Vector]) -> list[Update]:
        sizes.append(len(tasks))
        return train_all(by, tasks, starts)

    monkeypatch.setattr(Learner, "train_all", noted)
    executor = Serial(plan, data(), PLACEMENT)
    tasks, start = [task(number) for number in range(150)], first(plan)
    for each in tasks:
        executor.submit(each, start, -float(each.task))
    for each in tasks[:-71:-1]:
        executor.result(each)
    assert sizes == [64, 64]
    executor.result(tasks[0])
    assert sizes == [64, 64, 22]
    executor.close()


def test_threads_that_ask_at_once_get_what_one_gets() -> None:
    executor, by = made(), learner(PLAN, seed=4)
    tasks = [task(number, client=number % 3) for number in range(40)]
    for each in tasks:
        executor.submit(each, START, 1.0)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(executor.result, tasks))
    for each, result in zip(tasks, found, strict=True):
        expected = update(by, START, key=task_key(4, each.client, each.ordinal), client=each.client)
        assert result.delta.tobytes() == expected.tobytes()
