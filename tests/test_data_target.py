"""Targets of data files: numbers, several columns, arrays and tokens, each as a task takes it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag.data.load import Dataset, load
from fairlag.errors import InputError
from fairlag.learn.targets import Targets

CSV = """size,rooms,town,sold,garden,lift,price
50,2,ulm,1,0,true,199.5
80,3,bonn,4,1,false,310
70,3,ulm,2,1,true,-250.25
"""


def read(folder: Path, text: str = CSV, **parameters: Any) -> Dataset:
    (folder / "homes.csv").write_text(text)
    return load("file", {"path": "homes.csv", "features": ["size"], **parameters}, folder)


def arrays(folder: Path, **columns: Any) -> Dataset:
    np.savez(folder / "data.npz", **columns)
    return load("file", {"path": "data.npz", "target": "y"}, folder)


def test_a_column_with_fractions_is_the_target_of_a_regression(tmp_path: Path) -> None:
    data = read(tmp_path, target="price")
    assert data.labels.tolist() == [199.5, 310, -250.25] and data.labels.dtype == np.float32 and data.classes == 1
    assert Targets.NUMBERS.fitted(data).labels.tolist() == [[199.5], [310], [-250.25]]
    with pytest.raises(InputError) as caught:
        Targets.CLASSES.fitted(data)
    assert str(caught.value) == (
        "the target 'price' of homes.csv holds 199.5, but its task needs one class number per example: write "
        'use = "regression" in [task], or name a target of whole numbers or text'
    )


def test_a_regression_takes_whole_numbers_back_from_classes(tmp_path: Path) -> None:
    data = read(tmp_path, target="sold")
    assert (data.labels.tolist(), data.class_names) == ([0, 2, 1], ("1", "2", "4"))
    fitted = Targets.NUMBERS.fitted(data)
    assert (fitted.labels.tolist(), fitted.classes, fitted.class_names) == ([[1], [4], [2]], 1, ())
    with pytest.raises(InputError, match=r"the target of homes\.csv holds 'False', but its task needs one or more"):
        Targets.NUMBERS.fitted(read(tmp_path, target="lift"))


@pytest.mark.parametrize("fractions", ["train", "test"])
def test_fractions_in_one_part_make_numbers_of_both(fractions: str, tmp_path: Path) -> None:
    whole = CSV.replace("199.5", "199").replace("-250.25", "-250")
    train, test = (CSV, whole) if fractions == "train" else (whole, CSV)
    (tmp_path / "test.csv").write_text(test)
    data = read(tmp_path, train, target="price", test="test.csv")
    assert sorted(data.labels.tolist()) == [-250.25, -250, 199, 199.5, 310, 310]


def test_several_columns_are_numbers_side_by_side(tmp_path: Path) -> None:
    data = read(tmp_path, target=["price", "sold"], client="rooms")
    assert data.labels.tolist() == [[199.5, 1], [310, 4], [-250.25, 2]] and data.labels.dtype == np.float32
    assert (data.classes, data.class_names, data.clients) == (2, ("price", "sold"), ("2", "3"))
    assert np.array_equal(Targets.NUMBERS.fitted(data).labels, data.labels)
    assert load("file", {"path": "homes.csv", "target": ["price", "sold"]}, tmp_path).shape == (4,)


def test_columns_of_0_and_1_are_labels(tmp_path: Path) -> None:
    data = Targets.LABELS.fitted(read(tmp_path, target=["garden", "lift"]))
    assert data.labels.tolist() == [[0, 1], [1, 0], [1, 1]] and data.labels.dtype == np.int64
    assert (data.classes, data.class_names) == (2, ("garden", "lift"))
    with pytest.raises(InputError) as caught:
        Targets.LABELS.fitted(read(tmp_path, target=["garden", "sold"]))
    assert str(caught.value) == (
        "the label 'sold' of example 1 of homes.csv is 4, but its task needs a 0 or 1 per example and label: see `use` "
        "in [task]"
    )


@pytest.mark.parametrize(
    ("text", "target", "words"),
    [
        (CSV.replace("310", ""), "price", "column 'price' of homes.csv has no value in row 2: fill it in, or remove"),
        (CSV.replace("310", ""), ["sold", "price"], "column 'price' of homes.csv has no value in row 2: fill it in"),
        (CSV, ["sold", "town"], "'town' of homes.csv holds 'ulm', but several target columns must hold numbers, or"),
        (CSV.replace("310", "?"), ["sold", "price"], "'price' of homes.csv holds numbers, but '?' in row 2: fill it"),
        (CSV.replace("310", "inf"), "price", "the labels of homes.csv must be finite, but that of example 1 is not"),
        (CSV.replace("310", "1e99"), "price", "the labels of homes.csv must be finite, but that of example 1 is not"),
        (CSV.replace("310", "NA"), "price", "column 'price' of homes.csv holds numbers, but 'NA' in row 2: fill it in"),
        (CSV.replace("310", "?"), "price", "'price' of homes.csv holds numbers, but '?' in row 2: fill it in, or rem"),
        (CSV, ["price", "pric"], "homes.csv has no column 'pric': did you mean 'price'?"),
        (CSV, ["price", "price"], "the column 'price' is given as target and as target: each column has one role"),
        (CSV, ["price", "size"], "the column 'size' is given as target and as features: each column has one role"),
        (CSV, [], "target is [], but must be a list of columns such as ['age', 'height']"),
        (CSV, ["price", 3], "target is ['price', 3], but must be a list of columns such as"),
        (CSV, 3, "target is 3, but must be the name of a column"),
        ("size,price,sold\n", ["sold", "price"], "homes.csv has no examples: it needs at least one row"),
    ],
)
def test_a_mistake(text: str, target: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text, target=target)
    assert words in str(caught.value)


def test_an_array_of_several_axes_is_the_target_as_it_is(tmp_path: Path) -> None:
    x = np.ones((2, 3), np.float32)
    measured = Targets.NUMBERS.fitted(arrays(tmp_path, x=x, y=np.array([[0.5, 1], [2, 3]])))
    assert measured.labels.tolist() == [[0.5, 1], [2, 3]] and measured.classes == 2
    below = Targets.NUMBERS.fitted(arrays(tmp_path, x=x, y=np.array([[-1, 1], [2, 3]])))
    assert below.labels.tolist() == [[-1, 1], [2, 3]]
    marked = Targets.LABELS.fitted(arrays(tmp_path, x=x, y=np.array([[True, False], [True, True]])))
    assert marked.labels.tolist() == [[1, 0], [1, 1]] and marked.classes == 2
    with pytest.raises(InputError, match=r"the target column 'y' of data.npz holds 'a', but with more than one value"):
        arrays(tmp_path, x=x, y=np.array([["a"], ["b"]]))


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint16])
def test_arrays_of_whole_numbers_are_token_ids(kind: Any, tmp_path: Path) -> None:
    tokens = np.array([[0, 1, 2], [8, 2, 1]], kind)
    data = Targets.TOKENS.fitted(arrays(tmp_path, x=tokens[:, :-1], y=tokens[:, 1:]))
    assert (data.inputs.tolist(), data.labels.tolist()) == ([[0, 1], [8, 2]], [[1, 2], [2, 1]])
    assert data.inputs.dtype == data.labels.dtype == np.int64 and data.classes == 9
    classes = Targets.CLASSES.fitted(arrays(tmp_path, x=tokens, y=np.array(["spam", "ham"])))
    assert classes.inputs.dtype == np.int64 and classes.classes == 2
    with pytest.raises(InputError, match=r"'x' of data.npz holds -1, but arrays of whole numbers are token ids, which"):
        arrays(tmp_path, x=-tokens.astype(np.int64).clip(0, 1), y=tokens)
