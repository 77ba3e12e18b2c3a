"""A data set as two arrays, checked when it is made; load.py reads data sets from files."""

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlag.core.types import Floats, Integers
from fairlag.errors import InputError


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples and their labels. The first ``official`` examples are the official training part.

    Labels are what is to be predicted. For classification, the default task, they are int64, one class number per
    example; other tasks take int64 or float32 of any shape with one row per example. ``classes`` is the number of
    classes or tokens, or of numbers per example. A batch becomes ``inputs.astype(float32) * scale + offset``; only
    token ids, which are int64, stay as they are. The arrays of a data set are read-only.

    >>> data = Dataset("tiny", np.zeros((3, 1, 8, 8), np.uint8), np.array([0, 1, 1]), classes=2, official=3)
    >>> data.shape, len(data), data.fingerprint[:8]
    ((1, 8, 8), 3, '192dade3')
    """

    name: str
    inputs: NDArray[Any]
    labels: NDArray[Any]
    classes: int
    official: int
    scale: float = 1.0
    offset: float = 0.0
    class_names: tuple[str, ...] = ()
    """What the classes are called, if not by their numbers."""
    clients: tuple[str, ...] = ()
    """The names of the clients that hold the examples, if the data says so."""
    owners: Integers | None = None
    """Per example: the place of its client in `clients`. In the official test part it may be −1, for none of them."""
    times: Floats | None = None
    """Per example: when it arrives, in seconds. In the official test part it may be NaN."""

    def __post_init__(self) -> None:
        """Refuses arrays that cannot be used for training; keeps read-only views of the others."""
        self._check_inputs()
        self._check_labels()
        if not 0 < self.official <= len(self):
            raise InputError(
                f"{self.name} has {self.official} official training examples, it must be a number from 1 to {len(self)}"
            )
        self._check_origins()
        for field in ("inputs", "labels", "owners", "times"):
            if (array := getattr(self, field)) is not None:
                view = array.view()
                view.flags.writeable = False
                object.__setattr__(self, field, view)

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.inputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example; images are channels first."""
        return self.inputs.shape[1:]

    @property
    def strata(self) -> Integers:
        """The class of each example, which samples and partitions look at; 0 for all if labels are something else."""
        return self.labels if self.has_classes else np.zeros(len(self), np.int64)

    @property
    def has_classes(self) -> bool:
        """Is each label a class number?"""
        return self.labels.dtype == np.int64 and self.labels.ndim == 1

    @property
    def called(self) -> tuple[str, ...]:
        """The name of each class, which is its number by default; one name for all if there are no classes."""
        if not self.has_classes:
            return ("all",)
        return self.class_names or tuple(map(str, range(self.classes)))

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of everything but the name: equal data has the same fingerprint, wherever it came from."""
        numbers = (float(self.scale), float(self.offset), int(self.classes), int(self.official))
        content = sha256(f"{self.inputs.dtype} {self.inputs.shape} {numbers}".encode())
        if not self.has_classes:  # what has classes keeps the fingerprint that it had before there was anything else
            content.update(f"{self.labels.dtype} {self.labels.shape}".encode())
        content.update(self.inputs.data)
        content.update(self.labels.data)
        # What most data sets do not have is left out, so that their fingerprints stay what they were.
        for field in ("class_names", "clients"):
            content.update(f"{field} {names}".encode() if (names := getattr(self, field)) else b"")
        for field in ("owners", "times"):
            if (array := getattr(self, field)) is not None:
                content.update(field.encode())
                content.update(array.data)
        return content.hexdigest()

    def _check_inputs(self) -> None:
        inputs = self.inputs
        if inputs.dtype not in (np.uint8, np.float32, np.int64) or not inputs.flags.c_contiguous:
            raise InputError(
                f"the inputs of {self.name} are {inputs.dtype}, but must be uint8 or float32, or int64 for token ids, "
                "and contiguous in C order"
            )
        if inputs.ndim < 2 or not inputs.size:
            raise InputError(
                f"the inputs of {self.name} have the shape {inputs.shape}, but must have the shape "
                "(examples, features, …), with at least one example"
            )
        # The minimum and the maximum are NaN if any value is; unlike isfinite, they allocate no array.
        if inputs.dtype == np.float32 and not np.isfinite([inputs.min(), inputs.max()]).all():
            example = int(np.argwhere(~np.isfinite(inputs))[0, 0])
            raise InputError(
                f"the inputs of {self.name} must be finite, but example {example} holds a value that is not"
            )

    def _check_labels(self) -> None:
        labels = self.labels
        if labels.dtype not in (np.int64, np.float32) or labels.shape[:1] != self.inputs.shape[:1] or not labels.size:
            raise InputError(
                f"the labels of {self.name} are {labels.dtype} of the shape {labels.shape}, "
                f"but must be int64 or float32 of the shape ({len(self.inputs)}, …), one row per example"
            )
        if labels.dtype == np.float32:
            if not np.isfinite(labels).all():
                example = int(np.argwhere(~np.isfinite(labels))[0, 0])
                raise InputError(f"the labels of {self.name} must be finite, but that of example {example} is not")
            return
        least, most = int(labels.min()), int(labels.max())
        if least < 0 or most >= self.classes:
            raise InputError(
                f"the labels of {self.name} range from {least} to {most}, but must lie between 0 and {self.classes - 1}"
            )

    def _check_origins(self) -> None:
        """Refuses class names, clients and times that do not fit the examples."""
        if self.class_names and len(self.class_names) != self.classes:
            raise InputError(f"{self.name} has {len(self.class_names)} class names, but {self.classes} classes")
        for what, array, kind in (("owners", self.owners, np.int64), ("times", self.times, np.float64)):
            if array is not None and (array.dtype != kind or array.shape != (len(self),)):
                raise InputError(
                    f"the {what} of {self.name} are {array.dtype} of the shape {array.shape}, "
                    f"but must be {np.dtype(kind)} of the shape ({len(self)},), one per example"
                )
        if self.owners is not None and not -1 <= self.owners.min() <= self.owners.max() < len(self.clients):
            raise InputError(
                f"the owners of {self.name} range from {self.owners.min()} to {self.owners.max()}, "
                f"but must lie between 0 and {len(self.clients) - 1}"
            )
        if self.times is not None and not np.isfinite(self.times[: self.official]).all():
            example = int(np.argmin(np.isfinite(self.times)))
            raise InputError(f"the times of {self.name} must be finite, but that of example {example} is not")
