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
    """What a model is to predict, in words."""

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
        if self is Targets.NUMBERS and axes <= 2 and (not whole or axes == 1):
            numbers = labels.astype(np.float32).reshape(len(labels), -1)
            return replace(data, labels=numbers, classes=numbers.shape[1])
        if self is Targets.LABELS and whole and axes == 2 and labels.max() <= 1:
            return replace(data, classes=labels.shape[1])
        if whole and (self is Targets.TOKENS or (self is Targets.CLASSES and axes == 1)):
            return data
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
