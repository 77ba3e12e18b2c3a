"""LEAF's JSON: a file or a folder, users as clients, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag.data.load import load
from fairlag.errors import InputError

USERS: dict[str, Any] = {"bob": {"x": [[0.5, 1], [2, 3]], "y": [4, 7]}, "ann": {"x": [[4, 5]], "y": [7]}}


def written(held_by: dict[str, Any], file: Path, **changes: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    counts = [len(held["y"]) for held in held_by.values()]
    tables = {"users": [*held_by], "num_samples": counts, "user_data": held_by, **changes}
    file.write_text(json.dumps({key: value for key, value in tables.items() if value is not None}))
    return file


def test_a_file(tmp_path: Path) -> None:
    written(USERS, tmp_path / "all.json")
    data = load("leaf", {"path": "all.json"}, tmp_path)
    assert data.inputs.tolist() == [[0.5, 1], [2, 3], [4, 5]] and data.inputs.dtype == np.float32
    assert (data.labels.tolist(), data.class_names, data.official) == ([0, 1, 1], ("4", "7"), 3)
    assert data.owners is not None
    assert (data.clients, data.owners.tolist()) == (("ann", "bob"), [1, 1, 0])


def test_folders_for_training_and_testing_with_several_files(tmp_path: Path) -> None:
    written({"bob": USERS["bob"]}, tmp_path / "train" / "0.json")
    written({"ann": USERS["ann"], "idle": {"x": [], "y": []}}, tmp_path / "train" / "1.json")
    written({"ann": {"x": [[8, 9]], "y": [4]}, "new": {"x": [[0, 0]], "y": [4]}}, tmp_path / "test" / "0.json")
    data = load("leaf", {"path": ".", "shape": [2, 1]}, tmp_path)
    assert data.inputs.reshape(-1, 2).tolist() == [[0.5, 1], [2, 3], [4, 5], [8, 9], [0, 0]]
    assert (data.shape, data.official, data.labels.tolist()) == ((1, 2, 1), 3, [0, 1, 1, 0, 0])
    assert data.owners is not None
    assert (data.clients, data.owners.tolist()) == (("ann", "bob"), [1, 1, 0, 0, -1])
    apart = load("leaf", {"path": "train", "test": "test", "shape": [2, 1]}, tmp_path)
    assert apart.fingerprint == data.fingerprint


@pytest.mark.parametrize(
    ("users", "changes", "words"),
    [
        (USERS, {"user_data": None}, "has no user_data: write for example {"),
        (USERS, {"users": "bob"}, "has no users: write for example {"),
        (USERS, {"num_samples": [1]}, "has 2 users and 1 num_samples: each user needs a name and a number"),
        (USERS, {"users": ["bob", "bob"], "num_samples": [2, 2]}, "lists the user 'bob' twice"),
        (USERS, {"num_samples": [2, 2]}, "user 'ann' in '"),
        (USERS, {"user_data": {"bob": USERS["bob"]}}, "has no lists x and y in user_data"),
        ({"a": {"x": ["to be"], "y": ["t"]}}, {}, "hold 'to be', but must be numbers: text and names of pictures"),
        ({"a": {"x": [[1], [1, 2]], "y": [0, 1]}}, {}, "are not one array"),
        ({"a": {"x": [[1]], "y": [0.5]}}, {}, "hold 0.5, but must be whole numbers or text"),
        ({"a": {"x": [[1]], "y": [0]}, "b": {"x": [[1, 2]], "y": [0]}}, {}, "have different shapes: "),
        ({"a": {"x": [[1]], "y": [0]}, "b": {"x": [[1]], "y": ["c"]}}, {}, "are text and numbers"),
        ({"a": {"x": [], "y": []}}, {}, "has no user with examples"),
    ],
)
def test_a_mistake(users: dict[str, Any], changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    written(users, tmp_path / "all.json", **changes)
    with pytest.raises(InputError) as caught:
        load("leaf", {"path": "all.json"}, tmp_path)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("all.txt", "{}", "ends in '.txt', but must end in .json, or be a folder"),
        ("gone.json", None, "cannot be opened (No such file or directory)"),
        ("folder", None, "has no .json file"),
        ("all.json", "{", "cannot be read (Expecting property name"),
        ("all.json", "[" * 200_000, "is nested too deep"),
        ("all.json", "[]", "has no users"),
    ],
)
def test_a_file_that_is_not_leafs(path: str, text: str | None, words: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    if text is not None:
        (tmp_path / path).write_text(text)
    with pytest.raises(InputError) as caught:
        load("leaf", {"path": path}, tmp_path)
    assert words in str(caught.value)
