"""Data sets that need no files, the user's own, and the full published ones where this machine has them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag.data.load import Dataset, known, load
from fairlag.data.partition import Holding, parse
from fairlag.data.sources import SOURCES
from fairlag.data.split import split
from fairlag.errors import InputError


def test_synthetic_classes_are_separated_so_that_a_linear_model_gets_nine_of_ten() -> None:
    data = load("synthetic")
    assert data.inputs.shape == (10_000, 20) and data.inputs.dtype == np.float32
    assert np.bincount(data.labels).tolist() == [1000] * 10
    centres = np.array([data.inputs[:8000][data.labels[:8000] == label].mean(axis=0) for label in range(10)])
    nearest = np.linalg.norm(data.inputs[8000:, np.newaxis] - centres, axis=2).argmin(axis=1)
    assert np.mean(nearest == data.labels[8000:]) == pytest.approx(0.9, abs=0.04)


def test_synthetic_data_is_decided_by_its_parameters() -> None:
    small = {"examples": 50, "features": 3, "classes": 4}
    assert load("synthetic", small).fingerprint == load("synthetic", small).fingerprint
    assert load("synthetic", small).fingerprint != load("synthetic", small | {"seed": 1}).fingerprint
    assert load("synthetic", small).shape == (3,)


@pytest.mark.parametrize(
    ("use", "parameters", "words"),
    [
        ("digit", {}, "unknown data set 'digit': did you mean 'digits'?"),
        (
            "imagenet",
            {},
            "unknown data set 'imagenet': choose from breast_cancer, cifar10, diabetes, digits, ",
        ),
        ("digits", {"seed": 3}, "the data set digits has no parameter 'seed': there are none"),
        ("synthetic", {"exampels": 3}, "has no parameter 'exampels': did you mean 'examples'?"),
        ("synthetic", {"examples": 0}, "examples of synthetic is 0, but must be a whole number of at least 1"),
        ("synthetic", {"features": 2.5}, "features of synthetic is 2.5"),
        ("synthetic", {"classes": "ten"}, "classes of synthetic is 'ten'"),
        ("synthetic", {"separation": -1}, "separation of synthetic is -1"),
        ("synthetic", {"seed": -1}, "seed of synthetic is -1"),
        ("no_such_module:rows", {}, "cannot import 'no_such_module' for 'no_such_module:rows'"),
        ("math:rows", {}, "module 'math' has no function 'rows'"),
    ],
)
def test_a_name_or_parameter_that_is_not_there(use: str, parameters: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as caught:
        load(use, parameters)
    assert words in str(caught.value)


# The user's own.

OWN = """
import numpy as np

def rows(count=4):
    return np.ones((count, 3)), np.arange(count) % 2
"""


def test_a_users_own_function_is_imported_from_the_folder_of_the_experiment(tmp_path: Path) -> None:
    (tmp_path / "own_rows_of_a_user.py").write_text(OWN)
    data = load("own_rows_of_a_user:rows", {"count": 6}, tmp_path)
    assert (data.name, len(data), data.classes, data.official) == ("own_rows_of_a_user:rows", 6, 2, 6)
    assert data.inputs.dtype == np.float32 and (data.scale, data.offset) == (1, 0)


def test_own_data_with_a_test_part_and_own_pictures() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(3, 1, 2, 4)
    data = load(lambda: (pixels[:2], [0, 2], pixels[2:], [1]))
    assert (data.official, data.classes, data.labels.tolist(), data.shape) == (2, 3, [0, 2, 1], (1, 2, 4))
    assert np.array_equal(data.inputs, pixels) and (data.scale, data.offset) == (1 / 127.5, -1)


def test_own_data_may_be_a_dataset_and_its_arrays_stay_the_users() -> None:
    inputs = np.zeros((2, 1), np.float32)
    data = Dataset("mine", inputs, np.array([0, 1]), classes=2, official=2)
    assert load(lambda: data) is data
    inputs[0] = 1
    assert data.inputs[0] == 1 and np.shares_memory(data.inputs, inputs)
    with pytest.raises(ValueError, match="read-only"):
        data.inputs[0] = 2


def fails() -> None:
    """A user's mistake."""
    raise KeyError("rows")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (3, "returned int, but must return (inputs, labels)"),
        (([[1.0]], [0], [[1.0]]), "returned 3 values"),
        (([[1.0], [2.0, 3.0]], [0, 1]), "the inputs of <lambda> are not one array"),
        (([["a"]], [0]), "the inputs of <lambda> are <U1, but must be numbers"),
        (([[1.0]], ["a"]), "the labels of <lambda> are <U1, but must be numbers"),
        (([[1.0]], [float("inf")]), "the labels of <lambda> must be finite, but that of example 0 is not"),
        (([[1.0]], [0, 1]), "are int64 of the shape (2,), but must be int64 or float32 of the shape (1, …)"),
        (([[1.0]], [[0]], [[1.0]], [0]), "the training and test labels of <lambda> cannot be joined"),
        (([[1.0]], [-1]), "the labels of <lambda> range from -1 to -1, but must lie between 0 and"),
        (([[1.0], [float("nan")]], [0, 1]), "must be finite, but example 1 holds a value that is not"),
        (([[1.0], [1e300]], [0, 1]), "must be finite, but example 1 holds a value that is not"),
        ((np.zeros((0, 3)), np.zeros(0, int)), "have the shape (0, 3)"),
        (([1.0, 2.0], [0, 1]), "have the shape (2,), but must have the shape (examples, features, …)"),
        (([[1.0]], [0], [[1.0, 2.0]], [0]), "the training and test inputs of <lambda> cannot be joined"),
    ],
)
def test_own_data_that_cannot_be_used(made: object, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load(lambda: made)
    assert words in str(caught.value)


def test_own_data_that_fails_says_where() -> None:
    with pytest.raises(
        InputError, match=r"the data set fails raised KeyError: 'rows' \(test_data_load\.py, line \d+\)"
    ):
        load(fails)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inputs": np.zeros((2, 1))}, "the inputs of mine are float64, but must be uint8 or float32"),
        ({"inputs": np.zeros((4, 2), np.uint8).T}, "contiguous in C order"),
        ({"labels": np.array([0, 5])}, "the labels of mine range from 0 to 5, but must lie between 0 and 1"),
        ({"labels": np.array([0, 1], np.int32)}, "the labels of mine are int32"),
        ({"official": 0}, "mine has 0 official training examples, it must be a number from 1 to 2"),
        ({"official": 3}, "mine has 3 official training examples, it must be a number from 1 to 2"),
    ],
)
def test_a_dataset_is_checked_when_it_is_made(changes: dict[str, Any], words: str) -> None:
    whole = {"name": "mine", "inputs": np.zeros((2, 1), np.uint8), "labels": np.array([0, 1]), "classes": 2}
    with pytest.raises(InputError) as caught:
        Dataset(**{**whole, "official": 2, **changes})
    assert words in str(caught.value)


@pytest.mark.parametrize("kind", ["int64", "int32", "uint16", "int8"])
def test_token_ids_are_refused_and_not_made_into_numbers_with_a_point(kind: str) -> None:
    tokens = np.array([[5, 17, 2], [9, 0, 1]], kind)
    with pytest.raises(InputError, match=f"^the inputs of tokens are {kind}: models get float32, so token ids"):
        load(named(lambda: (tokens, [0, 1])))


@pytest.mark.parametrize(("kind", "made"), [("float64", "float32"), ("bool", "float32"), ("uint8", "uint8")])
def test_measurements_truth_values_and_bytes_are_taken(kind: str, made: str) -> None:
    data = load(named(lambda: (np.array([[1, 0], [0, 1]], kind), [0, 1])))
    assert data.inputs.dtype == made
    assert data.inputs.tolist() == [[1, 0], [0, 1]]


def named(make: Callable[[], Any]) -> Callable[[], Any]:
    make.__name__ = "tokens"
    return make


def test_a_fingerprint_is_that_of_the_data() -> None:
    inputs, labels = np.zeros((2, 4), np.uint8), np.array([0, 1])
    first = Dataset("one", inputs, labels, classes=2, official=2)
    assert first.fingerprint == Dataset("two", inputs.copy(), labels.copy(), classes=2, official=2).fingerprint
    assert first.fingerprint != Dataset("one", inputs.reshape(2, 2, 2), labels, classes=2, official=2).fingerprint
    assert first.fingerprint != Dataset("one", inputs, labels[::-1].copy(), classes=2, official=2).fingerprint


@pytest.mark.parametrize("change", [{"classes": 3}, {"official": 1}, {"scale": 0.5}, {"offset": -1.0}])
def test_a_fingerprint_is_also_that_of_how_the_data_is_used(change: dict[str, Any]) -> None:
    usual: dict[str, Any] = {
        "name": "one",
        "inputs": np.zeros((2, 4), np.uint8),
        "labels": np.array([0, 1]),
        "classes": 2,
        "official": 2,
    }
    assert Dataset(**usual).fingerprint != Dataset(**{**usual, **change}).fingerprint


# The full data sets, where this machine has them.


@pytest.mark.parametrize("name", list(SOURCES))
def test_a_full_data_set_and_the_papers_split_of_it(name: str) -> None:
    row = {row.name: row for row in known()}[name]
    if row.found is None:
        pytest.skip(f"{name} is not on this machine: get it by {', or by '.join(row.ways)}")
    data = load(name)
    assert (len(data), data.shape, data.inputs.dtype) == (row.examples, row.shape, np.dtype(np.uint8))
    assert data.official == len(data) - 10_000
    if name == "mnist":
        assert np.bincount(data.labels)[:2].tolist() == [6903, 7877]
        return
    each = len(data) // 10
    assert np.bincount(data.labels).tolist() == [each] * 10
    train, _ = split(data, 0.2, seed=0)
    groups = [Holding("fast", 10, (4, 5, 6, 7, 8, 9)), Holding("slow", 5, (0, 1, 2, 3))]
    fast, slow = (3360, 4480) if name == "fashion_mnist" else (2880, 3840)
    assert parse("labels").share(data.labels[train], groups, seed=0).sizes.tolist() == [fast] * 10 + [slow] * 5
