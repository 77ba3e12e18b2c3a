"""Distinct values of a column, coded as whole numbers: classes and clients."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlag.core.types import Integers
from fairlag.data.roles import Part
from fairlag.errors import InputError
from fairlag.limits import shown


def coded(values: NDArray[Any]) -> tuple[tuple[str, ...], Integers]:
    """The distinct values in order, as text, and the place of each value among them.

    >>> coded(np.array([10, 9, 10]))[0], coded(np.array(["b", "a", "b"], object))[1].tolist()
    (('9', '10'), [1, 0, 1])
    """
    import pandas as pd

    # Found by hashing, and only the distinct values are sorted: np.unique sorts all, which takes long for text.
    codes, found = pd.factorize(values)
    distinct, ranks = np.unique(found, return_inverse=True)
    return tuple(str(value) for value in distinct.tolist()), ranks[codes].astype(np.int64)


def pooled(name: str, parts: Sequence[NDArray[Any]], what: str) -> tuple[Integers, tuple[str, ...]]:
    """The codes of the values of all parts, and the distinct values; `what` is their role."""
    if len({part.dtype.kind == "O" for part in parts}) > 1:
        raise InputError(f"the {what} of {name} is text in one part and numbers in the other: it must be of one kind")
    words, codes = coded(np.concatenate(parts))
    return codes, words


def distinguishable(values: NDArray[Any], part: Part, name: str, what: str) -> NDArray[Any]:
    """Values that can be classes or clients: whole numbers (also written 1.0), truth values or text."""
    if values.dtype.kind in "biu":
        return values
    if values.dtype.kind == "f":
        if (wrong := measured(values)) is None:
            return values.astype(np.int64)
    else:
        wrong = next((value for value in values.tolist() if not isinstance(value, str)), None)
        if wrong is None:
            return values
    raise InputError(
        f"the {what} column {shown(name)} of {part.name} holds {shown(wrong)}, but must hold whole numbers or text"
    )


def measured(values: NDArray[Any]) -> float | None:
    """The first number with a fraction, or one that is too large to count with; None if there is neither.

    >>> measured(np.array([1.0, 2.5])), measured(np.array([1.0, 2.0]))
    (2.5, None)
    """
    odd = (values != np.floor(values)) | (np.abs(values) >= 2.0**53)
    return float(values[odd][0]) if odd.any() else None
