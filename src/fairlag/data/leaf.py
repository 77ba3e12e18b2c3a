"""Data sets in the JSON format of the LEAF benchmark: `users`, `num_samples`, and `user_data` with x and y per user."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlag.core.types import Integers
from fairlag.data.arrays import is_tokens
from fairlag.data.characters import NAMES, OTHER, letters, utf8
from fairlag.data.columns import located
from fairlag.data.dataset import Dataset
from fairlag.data.roles import Part, Roles
from fairlag.data.table import dataset
from fairlag.errors import InputError
from fairlag.limits import shown, text_of

_BYTES = 2_000_000_000
"""The most bytes of one file; LEAF itself writes a hundred users per file."""

_COLUMNS = 5
"""Of an example in Sentiment140: id, date, query, user and text."""

_PICTURES = (".jpg", ".jpeg", ".png")

_EXAMPLE = '{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[0.5]], "y": [0]}}}'


def from_json(folder: Path, path: str, test: str | None = None, shape: list[int] | None = None) -> Dataset:
    """The data set in a file or in a folder of files; each user is a client.

    A folder with the folders `train` and `test` has an official test part.
    """
    place = located(folder, path)
    places = [place] if test is None else [place, located(folder, test)]
    if test is None and (place / "train").is_dir() and (place / "test").is_dir():
        places = [place / "train", place / "test"]
    parts = [_part(each) for each in places]
    roles = Roles("y", ["x"], client="user")
    if not all(_continues(part) for part in parts):
        return dataset(parts, roles, shape)
    parts = [
        part._replace(columns={**part.columns, "y": letters(part.columns["y"].tolist()).ravel()}) for part in parts
    ]
    strange = any((part.columns[name] == OTHER).any() for part in parts for name in "xy")
    return dataset(parts, roles, shape, names=NAMES if strange else NAMES[:OTHER])


def _continues(part: Part) -> bool:
    """Is each label the character after a text?"""
    return is_tokens(part.columns["x"]) and part.columns["y"].dtype.kind == "O"


def _part(place: Path) -> Part:
    files = sorted(place.glob("*.json")) if place.is_dir() else [place]
    if not files:
        raise InputError(f"the folder {str(place)!r} has no .json file")
    found = [each for file in files for each in _users(file)]
    inputs, labels = [x for _, x, _ in found], [y for _, _, y in found]
    if not found:
        raise InputError(f"{str(place)!r} has no user with examples")
    shapes = {x.shape[1:]: user for user, x, _ in reversed(found)}
    if len(shapes) > 1:
        (one, first), (other, second) = [*shapes.items()][:2]
        raise InputError(
            f"the examples in {str(place)!r} have different shapes: {one} at user {first!r}, {other} at user {second!r}"
        )
    names = np.repeat(np.array([user for user, _, _ in found], object), [len(y) for y in labels])
    for what, arrays in (("examples x", inputs), ("labels y", labels)):
        if len({each.dtype.kind for each in arrays}) > 1:
            raise InputError(f"the {what} in {str(place)!r} are text and numbers: they must be of one kind")
    return Part(str(place), {"x": np.concatenate(inputs), "y": np.concatenate(labels), "user": names})


def _users(file: Path) -> Iterator[tuple[str, NDArray[Any], NDArray[Any]]]:
    """The users of a file that have examples, with their inputs and labels."""
    tables = _read(file)
    for user, count in zip(tables["users"], tables["num_samples"], strict=True):
        held = tables["user_data"].get(user)
        where = f"user {shown(user)} in {str(file)!r}"
        if not isinstance(held, dict) or not all(isinstance(held.get(key), list) for key in ("x", "y")):
            raise InputError(f"{where} has no lists x and y in user_data")
        x, y = held["x"], held["y"]
        if not len(x) == len(y) == count:
            raise InputError(f"{where} has num_samples {shown(count)}, but {len(x)} examples x and {len(y)} labels y")
        if count:
            labels = _labels(y, where)
            texts = _texts(x, where)
            yield user, _numbers(x, where) if texts is None else _tokens(texts, labels, where), labels


def _read(file: Path) -> dict[str, Any]:
    if file.suffix.lower() != ".json":
        raise InputError(f"the LEAF file {str(file)!r} ends in {file.suffix!r}, but must end in .json, or be a folder")
    try:
        tables: dict[str, Any] = json.loads(text_of(file, most=min(_BYTES, file.stat().st_size)))
    except RecursionError:
        raise InputError(f"the LEAF file {str(file)!r} is nested too deep: write for example {_EXAMPLE}") from None
    except OSError as error:
        raise InputError(f"the LEAF file {str(file)!r} cannot be opened ({error.strerror})") from None
    except ValueError as error:
        raise InputError(f"the LEAF file {str(file)!r} cannot be read ({error})") from None
    kinds = {"users": list, "num_samples": list, "user_data": dict}
    for key, kind in kinds.items():
        if not isinstance(tables, dict) or not isinstance(tables.get(key), kind):
            raise InputError(f"the LEAF file {str(file)!r} has no {key}: write for example {_EXAMPLE}")
    users, counts = tables["users"], tables["num_samples"]
    if len(users) != len(counts) or not all(isinstance(user, str) for user in users):
        raise InputError(
            f"the LEAF file {str(file)!r} has {len(users)} users and {len(counts)} num_samples: each user needs a name "
            "and a number"
        )
    if twice := [user for user, count in Counter(users).items() if count > 1]:
        raise InputError(f"the LEAF file {str(file)!r} lists the user {twice[0]!r} twice")
    return tables


def _texts(values: list[Any], where: str) -> list[str] | None:
    """The examples if they are text, or rows of Sentiment140 with the text at the end; None if they are not."""
    rows = [each[-1] if isinstance(each, list) and len(each) == _COLUMNS else each for each in values]
    if not all(isinstance(each, str) for each in rows):
        return None
    if all(each.lower().endswith(_PICTURES) for each in rows):
        raise InputError(
            f"the examples x of {where} are names of pictures such as {shown(rows[0])}, which are not opened: save the "
            "pixels as an array in a .npz file"
        )
    return rows


def _tokens(texts: list[str], labels: NDArray[Any], where: str) -> Integers:
    """The ids of characters if the labels are the characters that follow, otherwise bytes."""
    if labels.dtype.kind != "O":
        return utf8(texts)
    if longer := [label for label in labels.tolist() if len(label) != 1]:
        raise InputError(
            f"the labels y of {where} hold {shown(longer[0])}, but if they are text after text, each must be one "
            "character: number the classes"
        )
    if len({len(text) for text in texts}) > 1:
        raise InputError(
            f"the examples x of {where} have {min(map(len, texts))} to {max(map(len, texts))} characters, but all must "
            "have the same number"
        )
    return letters(texts)


def _numbers(values: list[Any], where: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise InputError(f"the examples x of {where} are not one array ({error})") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"the examples x of {where} hold {shown(np.ravel(array)[0])}, but must be numbers or text")
    # A list of single numbers is a list of examples with one feature.
    return array.reshape(len(array), -1).astype(np.float32) if array.ndim == 1 else array.astype(np.float32)


def _labels(values: list[Any], where: str) -> NDArray[Any]:
    if all(isinstance(value, str) for value in values):
        return np.array(values, object)
    if not all(isinstance(value, int) for value in values):
        raise InputError(f"the labels y of {where} hold {shown(values[0])}, but must be whole numbers or text")
    return np.array(values, np.int64)
