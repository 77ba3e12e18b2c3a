"""The rules of local training: how many batches, which step size at which version, and what is refused."""

import math
from typing import Any

import pytest

from fairlag.errors import InputError
from fairlag.learn.local import Constant, Cosine, Recipe, Step, Warmup, schedule


@pytest.mark.parametrize(
    ("local", "examples", "batches"),
    [
        (Recipe(steps=3, batch=32), 1, 3),
        (Recipe(steps=3, batch=32), 1000, 3),
        (Recipe(epochs=1, batch=32), 32, 1),
        (Recipe(epochs=1, batch=32), 33, 2),
        (Recipe(epochs=5, batch=10), 7, 5),
        (Recipe(epochs=2, batch=1), 7, 14),
    ],
)
def test_how_many_batches_a_task_has(local: Recipe, examples: int, batches: int) -> None:
    assert local.batches(examples) == batches


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (0.5, {0: 0.5, 10**6: 0.5}),
        (1, {0: 1.0}),
        ("0.25", {7: 0.25}),
        ("constant(0.25)", {7: 0.25}),
        ("step(0.5, every=10, factor=0.5)", {0: 0.5, 9: 0.5, 10: 0.25, 19: 0.25, 20: 0.125}),
        ("step(1, 3)", {2: 1.0, 3: 0.1}),
        ("cosine(1, 100)", {0: 1.0, 25: (1 + math.sqrt(0.5)) / 2, 50: 0.5, 100: 0.0, 1000: 0.0}),
        ("warmup(2, 4)", {0: 0.5, 1: 1.0, 3: 2.0, 1000: 2.0}),
        ("cosine(1, 100, last=0.5)", {0: 1.0, 50: 0.75, 100: 0.5, 101: 0.5}),
    ],
)
def test_the_step_size_at_a_version(text: object, sizes: dict[int, float]) -> None:
    read = schedule(text)
    assert {version: read.at(version) for version in sizes} == pytest.approx(sizes, rel=1e-15, abs=1e-15)


@pytest.mark.parametrize(
    "made", [Constant(0.25), Step(0.5, 10, 0.5), Step(0.5, 10), Cosine(1.0, 100), Cosine(1.0, 100, 0.5), Warmup(1.0, 5)]
)
def test_what_is_written_is_read_back(made: Constant | Step | Cosine | Warmup) -> None:
    assert schedule(str(made)) == made


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (0, "lr is 0, but must be a finite number above 0"),
        (-0.1, "lr is -0.1, but must be"),
        (float("nan"), "lr is nan, but must be"),
        (True, "lr is True, but must be"),
        (None, "lr is None, but must be"),
        ("step(0.1, every=0)", "every of step is 0, but must be a finite number above 0"),
        ("step(0.1, every=5, factor=0)", "factor of step is 0, but must be"),
        ("step(0.1)", r"step\(0.1\) does not fit \(missing a required argument: 'every'\)"),
        ("cosine(0.1, 100, last=-1)", "last of cosine is -1, but must be a finite number of at least 0"),
        ("cosin(0.1, 100)", r"there is no schedule 'cosin': did you mean 'cosine'\?"),
        ("step(cosine(1, 2), 3)", r"cosine\(1, 2\) cannot be part of a schedule, write a number"),
        ("step 1", "the lr 'step 1' cannot be read; write for example 0.01"),
    ],
)
def test_a_step_size_that_is_refused(text: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        schedule(text)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "steps is None and epochs is None: give one of the two"),
        ({"steps": 1, "epochs": 1}, "steps is 1 and epochs is 1: give one of the two"),
        ({"steps": 0}, "steps is 0, it must be at least 1"),
        ({"epochs": -1}, "epochs is -1, it must be at least 1"),
        ({"steps": 1, "batch": 0}, "batch is 0, it must be at least 1"),
        ({"steps": 1, "momentum": 1.0}, "momentum is 1.0, but must be a number from 0 to"),
        ({"steps": 1, "weight_decay": -0.1}, "weight_decay is -0.1, but must be"),
        ({"steps": 1, "prox": math.inf}, "prox is inf, but must be"),
    ],
)
def test_local_training_that_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Recipe(**options)
