"""Validation examples: who gets which, and that the test examples play no part where they are used."""

from typing import Any

import numpy as np
import pytest

from fairlag.errors import InputError
from fairlag.lab.experiment import parse
from fairlag.lab.resources import Resources
from tests.support.experiments import three_on_digits


def resources(**data: Any) -> Resources:
    tables = three_on_digits("validated", slow="uniform(4, 6)", model="logistic", lr=0.05)
    tables["data"] = {**tables["data"], **data}
    return Resources(parse({**tables, "aggregations": 5, "strategies": [{"use": "fedbuff"}]}))


def parts(made: Resources, seed: int) -> tuple[set[int], set[int]]:
    """The examples that clients train on, and those that models are judged on."""
    placement = made.setting(seed).placement
    assert placement is not None
    return set(placement.holdings.tolist()), set(placement.tests.tolist())


def test_models_are_judged_on_training_examples_that_no_client_holds() -> None:
    train, test = parts(resources(), 3)
    held, judged = parts(resources(validation=0.25), 3)
    assert judged | held == train and not judged & held and not (judged | held) & test
    assert len(judged) == round(0.25 * len(train))
    labels = resources().data.labels
    before, after = (np.bincount(labels[list(each)], minlength=10) / len(each) for each in (train, judged))
    assert np.abs(before - after).max() < 0.01


def test_other_seeds_validate_on_other_examples() -> None:
    made = resources(validation=0.25, holdout_seed=7)
    assert parts(made, 3)[1] != parts(made, 4)[1]


def test_with_a_holdout_seed_all_seeds_have_the_same_test_examples() -> None:
    fixed = resources(holdout_seed=7)
    assert parts(fixed, 0)[1] == parts(fixed, 1)[1] == parts(resources(), 7)[1] != parts(resources(), 0)[1]
    tuned = resources(holdout_seed=7, validation=0.25)
    for seed in (0, 1):
        held, judged = parts(tuned, seed)
        assert not (held | judged) & parts(fixed, 5)[1]


def test_trusted_examples_are_neither_held_nor_validated_on() -> None:
    made = resources(validation=0.25, trusted=50)
    held, judged = parts(made, 0)
    assert len(held) + len(judged) == len(parts(resources(), 0)[0]) and not held & judged


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5])
def test_a_share_must_leave_something(share: float) -> None:
    with pytest.raises(InputError, match=r"data.validation: it is .*, but must be a number between 0 and 1"):
        resources(validation=share)
