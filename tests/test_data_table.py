"""Data sets from files of columns: every format gives the same data, and every mistake one sentence."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import save_file

from fairlag.data.columns import Columns
from fairlag.data.load import Dataset, load
from fairlag.errors import InputError

CSV = """age,weight,ward,day,outcome
31,70.5,west,2024-05-02,stay
44,81,east,2024-05-01,home
27,60,west,2024-05-03,home
"""


def saved(columns: Columns, file: Path) -> Path:
    """The columns in a file of the kind that its extension says."""
    if file.suffix == ".npz":
        np.savez(file, **columns)  # type: ignore[arg-type]  # the stubs take a column for allow_pickle
    elif file.suffix == ".safetensors":
        save_file(columns, file)
    elif file.suffix == ".csv":
        pd.DataFrame(columns).to_csv(file, index=False)
    else:
        pd.DataFrame(columns).to_parquet(file)
    return file


def csv(folder: Path, text: str = CSV, name: str = "train.csv") -> Path:
    (folder / name).write_text(text)
    return folder


def read(folder: Path, **parameters: Any) -> Dataset:
    return load("file", {"path": "train.csv", "target": "outcome", **parameters}, folder)


def test_a_csv_file_with_every_role(tmp_path: Path) -> None:
    data = read(csv(tmp_path), client="ward", time="day")
    assert data.inputs.tolist() == [[31, 70.5], [44, 81], [27, 60]] and data.inputs.dtype == np.float32
    assert (data.labels.tolist(), data.class_names, data.classes) == ([1, 0, 0], ("home", "stay"), 2)
    assert data.owners is not None and data.times is not None
    assert (data.clients, data.owners.tolist()) == (("east", "west"), [1, 0, 1])
    assert data.times.tolist() == [86_400, 0, 2 * 86_400]
    assert (data.name, data.official, data.scale, data.offset) == ("train.csv", 3, 1, 0)


def test_features_may_be_chosen_and_text_is_left_out_by_default(tmp_path: Path) -> None:
    csv(tmp_path)
    assert read(tmp_path, features=["weight", "age"]).inputs[0].tolist() == [70.5, 31]
    assert read(tmp_path).shape == (2,)


def test_a_test_file_is_the_official_test_part_and_needs_no_client(tmp_path: Path) -> None:
    csv(tmp_path)
    csv(tmp_path, "outcome,weight,age\nother,1,2\nhome,3,4\n", "test.csv")
    data = read(tmp_path, test="test.csv", client="ward")
    assert data.inputs[3:].tolist() == [[2, 1], [4, 3]]
    assert (data.official, data.class_names, data.labels.tolist()) == (3, ("home", "other", "stay"), [2, 0, 0, 1, 0])
    assert data.owners is not None and data.owners.tolist() == [1, 0, 1, -1, -1]


def test_clients_of_the_test_file_that_do_not_train_are_nobody(tmp_path: Path) -> None:
    csv(tmp_path)
    csv(tmp_path, CSV.replace("east", "north"), "test.csv")
    data = read(tmp_path, test="test.csv", client="ward", features=["age"])
    assert data.owners is not None
    assert (data.clients, data.owners.tolist()) == (("east", "west"), [1, 0, 1, 1, -1, 1])


@pytest.mark.parametrize(
    ("cells", "labels", "names"),
    [
        ("0 1 2", [0, 1, 2], ()),
        ("1 3 3", [0, 1, 1], ("1", "3")),
        ("10 9 -1", [2, 1, 0], ("-1", "9", "10")),
        ("1.0 0.0 1.0", [1, 0, 1], ()),
        ("True False True", [1, 0, 1], ("False", "True")),
        ("NA None x", [0, 1, 2], ("NA", "None", "x")),
    ],
)
def test_classes_are_the_distinct_values_in_order(
    cells: str, labels: list[int], names: tuple[str, ...], tmp_path: Path
) -> None:
    csv(tmp_path, "a,outcome\n" + "".join(f"1,{cell}\n" for cell in cells.split()))
    data = read(tmp_path)
    assert (data.labels.tolist(), data.class_names) == (labels, names)


def test_pixels_of_an_array_stay_bytes_and_keep_their_shape(tmp_path: Path) -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 1, 3, 4)
    for kind in (".npz", ".safetensors"):
        saved({"x": pixels, "y": np.array([1, 0])}, tmp_path / f"images{kind}")
        data = load("file", {"path": f"images{kind}", "target": "y"}, tmp_path)
        assert np.array_equal(data.inputs, pixels) and (data.scale, data.offset) == (1 / 127.5, -1)


@pytest.mark.parametrize(("shape", "made"), [([2], (2,)), ([1, 2], (1, 1, 2)), ([2, 1, 1], (2, 1, 1))])
def test_the_shape_of_an_example(shape: list[int], made: tuple[int, ...], tmp_path: Path) -> None:
    assert read(csv(tmp_path), shape=shape).shape == made


@settings(max_examples=15, deadline=None)
@given(
    features=arrays.arrays(
        np.float32, st.tuples(st.integers(1, 12), st.integers(1, 4)), elements=st.floats(-(2.0**99), 2.0**99, width=32)
    ),
    rest=st.data(),
)
def test_the_same_columns_have_the_same_fingerprint_in_every_format(features: Any, rest: st.DataObject) -> None:
    whole = arrays.arrays(np.int64, len(features), elements=st.integers(-(2**40), 2**40))
    columns = {f"x{place}": np.ascontiguousarray(column) for place, column in enumerate(features.T)}
    columns |= {"y": rest.draw(whole), "who": rest.draw(whole), "when": rest.draw(whole).astype(np.float64)}
    with TemporaryDirectory() as place:
        found = []
        for kind in (".csv", ".parquet", ".npz", ".safetensors"):
            file = saved(columns, Path(place, f"data{kind}"))
            found.append(load("file", {"path": file.name, "target": "y", "client": "who", "time": "when"}, file.parent))
    assert np.array_equal(found[0].inputs, features)
    assert len({data.fingerprint for data in found}) == 1


@pytest.mark.parametrize("change", [("70.5", "70.25"), ("west", "vest"), ("stay", "stand"), ("05-01", "04-01")])
def test_every_column_that_is_used_counts_for_the_fingerprint(change: tuple[str, str], tmp_path: Path) -> None:
    before = read(csv(tmp_path), client="ward", time="day").fingerprint
    assert read(csv(tmp_path, CSV.replace(*change)), client="ward", time="day").fingerprint != before


@pytest.mark.parametrize(
    ("text", "parameters", "words"),
    [
        (CSV, {"target": "outcom"}, "train.csv has no column 'outcom': did you mean 'outcome'?"),
        (CSV, {"client": "wards"}, "train.csv has no column 'wards': did you mean 'ward'?"),
        (CSV, {"features": ["agee"]}, "train.csv has no column 'agee': did you mean 'age'?"),
        (CSV, {"features": ["age", "ward"]}, "column 'ward' of train.csv holds 'west', but inputs must be numbers"),
        (CSV, {"features": "age"}, "features is 'age', but must be a list of columns such as ['age', 'height']"),
        (CSV, {"features": ["age", "age"]}, "the column 'age' is given as features and as features"),
        (CSV, {"client": "outcome"}, "the column 'outcome' is given as target and as client: each column has one role"),
        (CSV, {"time": 3}, "time is 3, but must be the name of a column"),
        (CSV, {"time": "ward"}, "the time column 'ward' of train.csv must hold seconds, or dates such as '2024-05-31"),
        (CSV, {"client": "weight"}, "the client column 'weight' of train.csv holds 70.5, but must hold whole numbers"),
        (CSV, {"shape": [2, 2]}, "shape of train.csv is [2, 2], which is 4 numbers, but each example has 2"),
        (CSV, {"shape": "2"}, "shape of train.csv is '2', but must be a list of whole numbers such as [28, 28]"),
        (CSV, {"pth": "x"}, "the data set file has no parameter 'pth': did you mean 'path'?"),
        (CSV, {"path": "train.xlsx"}, "ends in '.xlsx', but must end in .csv, .parquet, .npz, .safetensors"),
        (CSV, {"path": "trian.csv"}, "trian.csv' does not exist"),
        (CSV, {"path": 5}, "the path of the data is 5, but must be the name of a file, such as 'train.csv'"),
        (
            CSV.replace("81", ""),
            {},
            "column 'weight' of train.csv has no value in row 2: fill it in, or remove the row",
        ),
        (CSV.replace("81", "NA"), {}, "column 'weight' of train.csv has no value in row 2"),
        (CSV.replace("81", "?"), {}, "column 'weight' of train.csv holds both numbers and text, such as '?'"),
        (CSV.replace("81", "inf"), {}, "must be finite, but example 1 holds a value that is not"),
        (CSV.replace(",stay", ","), {}, "column 'outcome' of train.csv has no value in row 1"),
        (CSV.replace(",east", ","), {"client": "ward"}, "column 'ward' of train.csv has no value in row 2"),
        (
            CSV + "1,2,3,4,5,6\n",
            {},
            "cannot be read as .csv (Error tokenizing data. C error: Expected 5 fields in line",
        ),
        ("a,outcome\n1,2,3\n", {}, "cannot be read as .csv (Length of header"),
        ("a,outcome\n", {}, "train.csv has no examples: it needs at least one row"),
        ("", {}, "is empty: its first line must name the columns"),
        (",outcome\n1,2\n", {}, "column 1 of the data file"),
        ("a,a,outcome\n1,2,3\n", {}, "has two columns named 'a': rename one"),
        ("ward,outcome\nx,1\n", {}, "train.csv has no column of numbers to learn from beside outcome"),
    ],
)
def test_a_mistake_in_a_csv_file(text: str, parameters: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(csv(tmp_path, text), **parameters)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"y": np.array([0, 1]), "x": np.array([{}, {}], object)},
            "holds pickled Python objects, which are never read",
        ),
        ({"y": np.array([0, 1]), "x": np.ones((3, 2))}, "column 'x' of data.npz has 3 rows, the target has 2"),
        ({"y": np.array([0, 1]), "x": np.ones((2, 2)), "z": np.ones(2)}, "write features = ['x']"),
        ({"y": np.array([0, 1]), "x": np.float64(3)}, "the array 'x' of the data file"),
        ({"y": np.array([0, 1]), "x": np.array([[1, np.nan], [0, 0]])}, "column 'x' of data.npz has no value in row 1"),
        ({"y": np.array(["2024"], "M8[Y]"), "x": np.ones(1)}, "holds datetime.date(2024, 1, 1), but must hold whole"),
    ],
)
def test_a_mistake_in_arrays(columns: Columns, words: str, tmp_path: Path) -> None:
    saved(columns, tmp_path / "data.npz")
    with pytest.raises(InputError) as caught:
        load("file", {"path": "data.npz", "target": "y"}, tmp_path)
    assert words in str(caught.value)


@pytest.mark.parametrize("kind", [".csv", ".parquet", ".npz", ".safetensors"])
def test_a_file_that_is_not_what_its_name_says(kind: str, tmp_path: Path) -> None:
    (tmp_path / f"data{kind}").write_bytes(b"\x80\x05\x95\xff\x00,\x80\n" * 9)
    with pytest.raises(InputError, match=r"data\.[a-z]+' (cannot be read as|holds pickled)"):
        load("file", {"path": f"data{kind}", "target": "y"}, tmp_path)


def test_parquet_without_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved({"x": np.ones(2), "y": np.array([0, 1])}, tmp_path / "data.parquet")
    monkeypatch.delitem(sys.modules, "pyarrow.parquet", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"needs the extra `parquet`: pip install 'fairlag\[parquet\]'"):
        load("file", {"path": "data.parquet", "target": "y"}, tmp_path)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (["1", "2"], "column 'x' of data.parquet holds numbers as text, such as '1': correct it"),
        ([[1.0, 2.0], [3.0, 4.0]], "has no column of numbers to learn from beside y"),
        (["a", None], "has no column of numbers to learn from beside y"),
    ],
)
def test_a_column_of_parquet_that_is_not_numbers(column: list[Any], words: str, tmp_path: Path) -> None:
    pd.DataFrame({"x": column, "y": [0, 1]}).to_parquet(tmp_path / "data.parquet")
    with pytest.raises(InputError) as caught:
        load("file", {"path": "data.parquet", "target": "y"}, tmp_path)
    assert words in str(caught.value)


def test_a_lone_array_has_no_name(tmp_path: Path) -> None:
    with (tmp_path / "data.npz").open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(InputError, match="holds one array without a name"):
        load("file", {"path": "data.npz", "target": "y"}, tmp_path)
