"""The target of data files: classes, numbers or arrays. Which of them fits, the task says when it gets the data."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlag.data.arrays import joined
from fairlag.data.distinct import distinguishable, measured, pooled
from fairlag.data.roles import Part, first_text
from fairlag.errors import InputError
from fairlag.limits import shown


class Target(NamedTuple):
    """The labels of all parts, how many classes, tokens or numbers there are, and what they are called."""

    labels: NDArray[Any]
    classes: int
    names: tuple[str, ...] = ()


def target_of(parts: Sequence[Part], column: str | Sequence[str], names: Sequence[str] = ()) -> Target:
    """The target in one column, or in several columns of numbers side by side.

    `names` are the classes if the column holds their numbers.

    >>> part = Part("tiny", {"y": np.array(["no", "yes"], object), "a": np.array([0.5, 2]), "b": np.array([1, 0])})
    >>> labels, classes, called = target_of([part], "y")
    >>> labels.tolist(), classes, called
    ([0, 1], 2, ('no', 'yes'))
    >>> target_of([part], ["a", "b"]).labels.tolist()
    [[0.5, 1.0], [2.0, 0.0]]
    """
    name = parts[0].name
    if not isinstance(column, str):
        beside = joined(f"targets of {name}", [_side_by_side(part, column) for part in parts])
        return Target(beside, len(column), tuple(column))
    values = [_present(part, column) for part in parts]
    if any(found.ndim > 1 for found in values):
        return _array(name, column, values)
    if names:
        return _numbered(name, values, names)
    if all(found.dtype.kind in "biuf" for found in values) and any(measured(found) is not None for found in values):
        return Target(_floats(np.concatenate(values)), 1, (column,))
    return _classes(
        name, [distinguishable(found, part, column, "target") for part, found in zip(parts, values, strict=True)]
    )


def _present(part: Part, name: str) -> NDArray[Any]:
    values = part.column(name)
    if not len(values):
        raise InputError(f"{part.name} has no examples: it needs at least one row")
    if values.dtype.kind == "O":
        _check_measured(values, part, name)
    return values


def _check_measured(values: NDArray[Any], part: Part, name: str) -> None:
    """Refuses text that is numbers with a fraction except for a few cells: it would make a class of every number."""
    import pandas as pd

    distinct = pd.unique(values.ravel())
    read = pd.to_numeric(pd.Series(distinct), errors="coerce").to_numpy(np.float64)
    there = ~np.isnan(read)
    if 2 * np.count_nonzero(there) > len(read) > np.count_nonzero(there) and measured(read[there]) is not None:
        odd = distinct[np.argmin(there)]
        row = int(np.argwhere(values == odd)[0, 0]) + 1
        raise InputError(
            f"the target column {shown(name)} of {part.name} holds numbers, but {shown(odd)} in row {row}: fill it in, "
            "or remove the row"
        )


def _floats(values: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # a Dataset refuses what is then infinite, with a sentence
        return np.ascontiguousarray(values, np.float32)


def _side_by_side(part: Part, names: Sequence[str]) -> NDArray[np.float32]:
    found = [_present(part, name) for name in names]
    for name, values in zip(names, found, strict=True):
        if values.dtype.kind not in "biuf":
            raise InputError(
                f"the target column {shown(name)} of {part.name} holds {shown(first_text(values))}, but several target "
                "columns must hold numbers, or true and false"
            )
        if values.shape != found[0].shape[:1]:
            raise InputError(
                f"the target column {shown(name)} of {part.name} has the shape {values.shape}, but several target "
                f"columns must have one value per example, like the {len(found[0])} of {shown(names[0])}"
            )
    return np.stack([_floats(values) for values in found], axis=1)


def _array(name: str, column: str, parts: Sequence[NDArray[Any]]) -> Target:
    """Whole numbers from 0 stay such, because they may be tokens or labels; everything else is measured."""
    values = joined(f"targets of {name}", parts)
    if values.dtype.kind not in "biuf":
        raise InputError(
            f"the target column {shown(column)} of {name} holds {shown(values.flat[0])}, but with more than one value "
            "per example it must hold numbers"
        )
    if values.dtype.kind == "f" or values.min() < 0:
        return Target(_floats(values), prod(values.shape[1:]))
    return Target(np.ascontiguousarray(values, np.int64), int(values.max()) + 1)


def _classes(name: str, parts: Sequence[NDArray[Any]]) -> Target:
    """The distinct values in order; their names are left out if they are 0, 1, 2, … already."""
    labels, words = pooled(name, parts, "target")
    return Target(labels, len(words), () if words == tuple(map(str, range(len(words)))) else words)


def _numbered(name: str, parts: Sequence[NDArray[Any]], names: Sequence[str]) -> Target:
    """The labels as they are: the numbers of classes whose names are known."""
    labels = np.concatenate(parts).astype(np.int64)
    if labels.min() < 0:
        raise InputError(f"the target of {name} holds {labels.min()}, but must hold the number of one of its classes")
    return Target(labels, len(names), tuple(names))
