"""A model as one flat float32 vector, and the layout that names its parts. Nothing here aliases mutable data."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairlag.errors import InputError

Vector = NDArray[np.float32]
Matrix = NDArray[np.float32]


def published(values: ArrayLike) -> Vector:
    """A read-only copy that owns its memory: safe to share, whatever happens to the original.

    >>> source = np.ones(2, np.float32)
    >>> copy = published(source)
    >>> source[0] = 9
    >>> copy.tolist(), copy.flags.writeable
    ([1.0, 1.0], False)
    """
    vector = np.asarray(values, dtype=np.float32).flatten()
    vector.flags.writeable = False
    return vector


def finite(vector: Vector) -> bool:
    """Are all its values finite?

    >>> finite(np.array([1, 2], np.float32)), finite(np.array([1, np.nan], np.float32))
    (True, False)
    """
    # If a value is not finite, the sum of squares is not either; it takes half the time of checking each value. It may
    # also overflow, so the values decide then. Unlike np.dot, np.vdot does not warn about overflow.
    return math.isfinite(np.vdot(vector, vector)) or bool(np.isfinite(vector).all())


def length(vector: Vector) -> float:
    """The Euclidean length, bit-identical for every linear algebra library and number of threads.

    >>> length(np.array([3, 4], np.float32))
    5.0
    """
    return math.sqrt(np.add.reduce(np.square(vector, dtype=np.float64)))


_STATISTIC = re.compile(r"(running|moving)_(mean|var|variance)\b")
_VARIANCE = re.compile(r"(running|moving)_(var|variance)\b")
"""The names that PyTorch and Keras give to running statistics, and to variances among them."""


def is_statistic(name: str) -> bool:
    """Is this the name of a running statistic of a normalisation layer, in PyTorch or Keras?

    >>> is_statistic("2.running_var"), is_statistic("norm/moving_mean:0"), is_statistic("2.weight")
    (True, True, False)
    """
    return _STATISTIC.search(name) is not None


EMPTY: Vector = published([])
"""The parameters of a model without parameters, as used by audits."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Names and shapes of the arrays that one flat vector holds, in order.

    >>> layout = Layout(("weight", "bias"), ((2, 3), (3,)))
    >>> vector = layout.flatten({"weight": np.zeros((2, 3)), "bias": np.ones(3)})
    >>> vector.tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    >>> layout.split(vector)["bias"].tolist()
    [1.0, 1.0, 1.0]
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    statistics: int = 0
    """How many arrays, at the end, are statistics: an update holds their values, but changes of all other arrays."""

    def __post_init__(self) -> None:
        if not 0 <= self.statistics <= len(self.names):
            raise InputError(
                f"statistics is {self.statistics} in a layout of {len(self.names)} arrays, "
                f"it must be a number from 0 to {len(self.names)}"
            )

    @property
    def size(self) -> int:
        """How many numbers the vector has."""
        return sum(prod(shape) for shape in self.shapes)

    @property
    def parameters(self) -> "Layout":
        """The layout without the statistics: the first part of the vector.

        >>> Layout(("weight", "running_mean"), ((2, 3), (3,)), statistics=1).parameters
        Layout(names=('weight',), shapes=((2, 3),), statistics=0)
        """
        count = len(self.names) - self.statistics
        return Layout(self.names[:count], self.shapes[:count]) if self.statistics else self

    @property
    def variances(self) -> tuple[slice, ...]:
        """The slices of the vector that hold variances, by name: statistics that cannot be negative.

        >>> Layout(("weight", "norm.running_mean", "norm.running_var"), ((9,), (3,), (3,)), statistics=2).variances
        (slice(12, 15, None),)
        """
        ends = accumulate(prod(shape) for shape in self.shapes)
        places = [slice(end - prod(shape), end) for end, shape in zip(ends, self.shapes, strict=True)]
        named = zip(self.names, places, strict=True)
        return tuple(place for name, place in list(named)[len(self.parameters.names) :] if _VARIANCE.search(name))

    def flatten(self, arrays: Mapping[str, ArrayLike]) -> Vector:
        """The arrays as one published vector; names and shapes must match the layout."""
        if set(arrays) != set(self.names):
            raise InputError(f"the arrays are named {sorted(arrays)}, the layout expects {sorted(self.names)}")
        parts = [np.asarray(arrays[name], dtype=np.float32) for name in self.names]
        for name, part, shape in zip(self.names, parts, self.shapes, strict=True):
            if part.shape != shape:
                raise InputError(f"array {name!r} has shape {part.shape}, the layout expects {shape}")
        return published(np.concatenate([part.reshape(-1) for part in parts]) if parts else [])

    def split(self, vector: Vector) -> dict[str, NDArray[np.float32]]:
        """The named arrays as views of a vector (read-only if the vector is)."""
        if vector.shape != (self.size,):
            raise InputError(f"the vector has shape {vector.shape}, the layout expects ({self.size},)")
        ends = accumulate(prod(shape) for shape in self.shapes)
        return {
            name: vector[end - prod(shape) : end].reshape(shape)
            for name, shape, end in zip(self.names, self.shapes, ends, strict=True)
        }
