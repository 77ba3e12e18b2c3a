"""What a model is to predict: which data fits, what the model returns, and which classes or labels there are."""

from dataclasses import replace
from enum import Enum
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlag.core.types import Floats, Integers
from fairlag.data.dataset import Dataset
from fairlag.errors import InputError

Shape = tuple[int, ...]


class Targets(Enum):
    """What a model is to predict, in words.

    >>> Targets.LABELS.value
    'a 0 or 1 per example and label'
    """

    CLASSES = "one class number per example"
    NUMBERS = "one or more numbers per example"
    LABELS = "a 0 or 1 per example and label"
    TOKENS = "whole numbers from 0, such as the next token at every position"

    def fitted(self, data: Dataset) -> Dataset:
        """The data as the task takes it; refuses targets of a different kind.

        >>> data = Dataset("tiny", np.zeros((2, 1), np.float32), np.array([3, 5]), classes=6, official=2)
        >>> Targets.NUMBERS.fitted(data).labels
        array([[3.],
               [5.]], dtype=float32)
        >>> Targets.LABELS.fitted(data)
        Traceback (most recent call last):
        ...
        fairlag.errors.InputError: the labels of tiny are int64 of the shape (2,), but its task needs a 0 or 1 per \
example and label: see `use` in [task]
        """
        labels = data.labels
        whole, axes = labels.dtype == np.int64, labels.ndim
        if self is Targets.NUMBERS and axes <= 2:
            return _with_numbers(data)
        if self is Targets.LABELS and axes == 2:
            return _with_marks(data)
        if whole and (self is Targets.TOKENS or (self is Targets.CLASSES and axes == 1)):
            return data
        if self is Targets.CLASSES and axes == 1 and data.class_names:
            raise InputError(
                f"the target {data.class_names[0]!r} of {data.name} holds {_first_fraction(labels):g}, but its task "
                f'needs {self.value}: write use = "regression" in [task], or name a target of whole numbers or text'
            )
        raise InputError(
            f"the labels of {data.name} are {labels.dtype} of the shape {labels.shape}, but its task needs "
            f"{self.value}: see `use` in [task]"
        )

    def output(self, target: Shape, classes: int) -> Shape:
        """The shape of a model's output for one example, whose target has this shape.

        >>> Targets.CLASSES.output((), 10), Targets.TOKENS.output((32,), 96)
        ((10,), (32, 96))
        """
        return (*target, classes) if self is Targets.TOKENS else (classes,)

    def summed(self, values: NDArray[Any], targets: NDArray[Any], classes: int) -> Floats:
        """The sum per class, per label, or of all; `values` has a row per example."""
        if self is Targets.CLASSES:
            return np.bincount(targets, values, minlength=classes).astype(np.float64)
        return np.atleast_1d(values.sum(axis=0, dtype=np.float64))

    def held(self, labels: NDArray[Any], bounds: Integers, classes: int) -> list[Integers]:
        """The classes or labels among the examples between neighbouring bounds; nothing if there are neither.

        >>> [each.tolist() for each in Targets.CLASSES.held(np.array([0, 0, 1, 2]), np.array([0, 2, 4]), 3)]
        [[0], [1, 2]]
        """
        parts = [labels[begin:end] for begin, end in pairwise(bounds.tolist())]
        if self is Targets.CLASSES:
            return [np.flatnonzero(np.bincount(part, minlength=classes)) for part in parts]
        return [np.flatnonzero(part.any(axis=0)) for part in parts] if self is Targets.LABELS else []


def _with_numbers(data: Dataset) -> Dataset:
    """The data with one row of float32 numbers per example: if classes have names, these are the numbers."""
    labels, names = data.labels, data.class_names
    if data.has_classes and names:
        labels, names = np.array([_number(name, data) for name in names])[labels], ()
    numbers = labels.astype(np.float32).reshape(len(labels), -1)
    return replace(data, labels=numbers, classes=numbers.shape[1], class_names=names)


def _number(name: str, data: Dataset) -> float:
    try:
        return float(name)
    except ValueError:
        raise InputError(
            f"the target of {data.name} holds {name!r}, but its task needs {Targets.NUMBERS.value}: see `use` in [task]"
        ) from None


def _with_marks(data: Dataset) -> Dataset:
    """The data with a 0 or 1 per example and label, as int64."""
    odd = (data.labels != 0) & (data.labels != 1)
    if odd.any():
        example, label = (int(place) for place in np.argwhere(odd)[0])
        name = repr(data.class_names[label]) if data.class_names else label
        raise InputError(
            f"the label {name} of example {example} of {data.name} is {data.labels[example, label]:g}, but its task "
            f"needs {Targets.LABELS.value}: see `use` in [task]"
        )
    return replace(data, labels=data.labels.astype(np.int64), classes=data.labels.shape[1])


def _first_fraction(labels: Floats) -> float:
    odd = labels != np.floor(labels)
    return float(labels[odd][0] if odd.any() else labels.max())
