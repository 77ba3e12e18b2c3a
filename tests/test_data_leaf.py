"""LEAF's JSON: a file or a folder, users as clients, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fairlag.data.load import load
from fairlag.errors import InputError
from fairlag.lab.experiment import parse
from fairlag.lab.simulate import simulate
from fairlag.learn.targets import Targets

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


def test_shakespeare_is_characters_of_leafs_alphabet(tmp_path: Path) -> None:
    written(
        {"JULIET": {"x": ["O Ro", " Rom"], "y": ["m", "e"]}, "ROMEO": {"x": ["I, t"], "y": ["\n"]}}, tmp_path / "a.json"
    )
    data = load("leaf", {"path": "a.json"}, tmp_path)
    alphabet = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
    assert ["".join(alphabet[token] for token in text) for text in data.inputs] == ["O Ro", " Rom", "I, t"]
    assert [alphabet[label] for label in data.labels] == ["m", "e", "\n"]
    assert data.inputs.dtype == np.int64 and data.classes == 80 and data.clients == ("JULIET", "ROMEO")
    assert data.class_names[:3] == ("newline", "space", "!") and data.class_names[-1] == "}"
    assert Targets.CLASSES.fitted(data) is data


def test_characters_that_leaf_does_not_know_are_one_class(tmp_path: Path) -> None:
    written({"a": {"x": ["naïve", "s~#@l"], "y": ["é", "f"]}}, tmp_path / "a.json")
    data = load("leaf", {"path": "a.json"}, tmp_path)
    assert (data.inputs == 80).sum(axis=1).tolist() == [1, 3] and data.labels[0] == 80
    assert data.classes == 81 and data.class_names[80] == "other"


def test_sentiment140_is_bytes_of_the_text(tmp_path: Path) -> None:
    rows = [["1", "Mon", "NO_QUERY", "ann", "so sad é"], ["2", "Tue", "NO_QUERY", "ann", "x" * 200]]
    written({"ann": {"x": rows, "y": [0, 1]}, "bob": {"x": ["plain"], "y": [1]}}, tmp_path / "all.json")
    data = load("leaf", {"path": "all.json"}, tmp_path)
    texts = [bytes(example.tolist()).rstrip(b"\0").decode() for example in data.inputs]
    assert texts == ["so sad é", "x" * 140, "plain"]
    assert data.inputs.dtype == np.int64 and data.shape == (140,) and data.labels.tolist() == [0, 1, 1]


class LastCharacter(nn.Module):
    """The next character by the last one alone."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.table = nn.Embedding(classes, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.table(tokens[:, -1])
        return logits


def last_character(classes: int) -> nn.Module:
    return LastCharacter(classes)


def test_a_classification_of_characters_learns(tmp_path: Path) -> None:
    text = "hark! " * 10
    lines = {"x": [text[at : at + 4] for at in range(50)], "y": [text[at + 4] for at in range(50)]}
    written({"a": lines, "b": lines}, tmp_path / "all.json")
    tables = {
        "name": "hark",
        "aggregations": 20,
        "clients": [{"group": "all", "delay": 1}],
        "strategies": [{"use": "fedbuff", "buffer": 2}],
        "data": {"use": "leaf", "path": "all.json", "holdout": 0.2},
        "model": {"use": last_character},
        "local": {"steps": 10, "lr": 2.0},
    }
    run = simulate(parse(tables, tmp_path), out=tmp_path / "out", workers=1)
    assert run.curve()["accuracy"].iloc[0] < 0.2 and run.accuracy() == 1


@pytest.mark.parametrize(
    ("users", "changes", "words"),
    [
        (USERS, {"user_data": None}, "has no user_data: write for example {"),
        (USERS, {"users": "bob"}, "has no users: write for example {"),
        (USERS, {"num_samples": [1]}, "has 2 users and 1 num_samples: each user needs a name and a number"),
        (USERS, {"users": ["bob", "bob"], "num_samples": [2, 2]}, "lists the user 'bob' twice"),
        (USERS, {"num_samples": [2, 2]}, "user 'ann' in '"),
        (USERS, {"user_data": {"bob": USERS["bob"]}}, "has no lists x and y in user_data"),
        ({"a": {"x": [["to"], ["be"]], "y": [0, 1]}}, {}, "hold 'to', but must be numbers or text"),
        ({"a": {"x": ["to", "b"], "y": ["b", "e"]}}, {}, "have 1 to 2 characters, but all must have the same number"),
        ({"a": {"x": ["to be"], "y": ["or"]}}, {}, "hold 'or', but if they are text after text, each must be one char"),
        (
            {"a": {"x": ["to"], "y": ["b"]}, "b": {"x": ["be"], "y": [0]}},
            {},
            "different shapes: (140,) at user 'b', (2,) at",
        ),
        ({"a": {"x": ["1.jpg", "2.PNG"], "y": [0, 1]}}, {}, "are names of pictures such as '1.jpg', which are not op"),
        ({"a": {"x": ["to be"], "y": [{"subreddit": "b"}]}}, {}, "hold {'subreddit': 'b'}, but must be whole numbers"),
        ({"a": {"x": [[1], [1, 2]], "y": [0, 1]}}, {}, "are not one array"),
        ({"a": {"x": [[1]], "y": [0.5]}}, {}, "hold 0.5, but must be whole numbers or text"),
        ({"a": {"x": [[1]], "y": [0]}, "b": {"x": [[1, 2]], "y": [0]}}, {}, "have different shapes: "),
        ({"a": {"x": [[1]], "y": [0]}, "b": {"x": [[1]], "y": ["c"]}}, {}, "are text and numbers"),
        ({"a": {"x": [[1] * 140], "y": [0]}, "b": {"x": ["to be"], "y": [1]}}, {}, "the examples x in '"),
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
