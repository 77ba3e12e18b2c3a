"""Data sets by name: embedded, generated, published (from verified files) or the user's own.

sources.py says where the files are, formats.py how they are read, and places.py how they are verified.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fairlag import imported
from fairlag.core import seeds
from fairlag.data.arrays import inputs_of, joined, labels_of, scaling
from fairlag.data.bundled import breast_cancer, diabetes, digits
from fairlag.data.dataset import Dataset
from fairlag.data.docstrings import docstrings
from fairlag.data.download import get
from fairlag.data.huggingface import from_disk
from fairlag.data.leaf import from_json
from fairlag.data.places import contents, find
from fairlag.data.sources import SOURCES
from fairlag.data.table import from_file
from fairlag.data.whole import whole
from fairlag.errors import InputError
from fairlag.text.calls import number

__all__ = ["Dataset", "Known", "get", "known", "load"]


def load(
    use: str | Callable[..., Any],
    parameters: Mapping[str, object] = MappingProxyType({}),
    folder: Path | None = None,
) -> Dataset:
    """The data set with this name and these parameters.

    ``use`` is a name that :func:`known` lists, a function, or "module:function", which is imported from the folder of
    the experiment or from Python's path. Your own function returns (inputs, labels), (inputs, labels, test inputs, test
    labels), or a :class:`Dataset`. Inputs are floats or booleans, which become float32, or uint8 for pixels: 0 to 255
    becomes −1 to 1. Other integer types are refused.

    >>> load("digits").shape
    (1, 8, 8)
    >>> load("synthetic", {"examples": 100, "classes": 3}).classes
    3
    """
    name = imported.name_of(use)
    makers: dict[str, imported.Maker] = {
        **DATASETS,
        **{each: partial(read, folder or Path()) for each, read in FILES.items()},
    }
    made = imported.called(imported.found(use, makers, "data set", folder), name, parameters, "data set")
    return made if isinstance(made, Dataset) else _own(name, made)


class Known(NamedTuple):
    """A data set with a name; ``found`` is where it is on this machine, or None."""

    name: str
    what: str
    examples: int | None
    """None: it depends on this machine."""
    shape: tuple[int, ...]
    found: str | None
    ways: tuple[str, ...]


def known() -> list[Known]:
    """Every data set with a name, and how to get it.

    >>> [row.name for row in known()]
    ['digits', 'diabetes', 'breast_cancer', 'docstrings', 'synthetic', 'fashion_mnist', 'mnist', 'cifar10']
    """
    rows = [
        Known("digits", "handwritten digits, small", 1797, (1, 8, 8), "scikit-learn", ()),
        Known("diabetes", "patients; for regression", 442, (10,), "scikit-learn", ()),
        Known("breast_cancer", "tumours in 2 classes", 569, (30,), "scikit-learn", ()),
        Known("docstrings", "text of Python's own documentation", None, (64,), "Python", ()),
        Known("synthetic", "Gaussian classes of any size", 10_000, (20,), "generated", ()),
    ]
    for source in SOURCES.values():
        found = find(source)
        place = str(found.folder) if found else None
        rows.append(Known(source.name, source.what, source.examples, source.shape, place, source.ways))
    return rows


def _published(name: str) -> Dataset:
    inputs, labels, official = SOURCES[name].decode(contents(SOURCES[name]))
    return Dataset(name, inputs, labels, 10, official, *scaling(inputs))


def _synthetic(
    examples: int = 10_000, features: int = 20, classes: int = 10, separation: float = 3.0, seed: int = 0
) -> Dataset:
    """Classes of equal size: standard normal around centres at distance ``separation`` from the origin."""
    examples = whole(examples, "examples of synthetic", 1)
    classes = whole(classes, "classes of synthetic", 1)
    rng = np.random.default_rng(seeds.key(whole(seed, "seed of synthetic", 0), "synthetic"))
    centres = rng.standard_normal((classes, whole(features, "features of synthetic", 1)), np.float32)
    centres *= np.float32(number(separation, "separation of synthetic")) / np.linalg.norm(
        centres, axis=1, keepdims=True
    )
    labels = rng.permutation(np.arange(examples) % classes)
    inputs = rng.standard_normal((examples, features), np.float32)
    inputs += centres[labels]
    return Dataset("synthetic", inputs, labels, classes=classes, official=examples)


DATASETS: Mapping[str, imported.Maker] = {
    **{make.__name__: make for make in (digits, diabetes, breast_cancer, docstrings)},
    "synthetic": _synthetic,
    **{each: partial(_published, each) for each in SOURCES},
}
"""The function that makes each data set, by name."""

FILES: Mapping[str, imported.Maker] = {"file": from_file, "leaf": from_json, "huggingface": from_disk}
"""What reads a user's own files, by name: functions of the folder that paths are relative to, and of parameters."""

PARAMETERS: Mapping[str, str] = {
    "path": "The file, or for `leaf` and `huggingface` also the folder, relative to the experiment file.",
    "target": "The column to predict, or a list of columns of numbers. The [task](#task) says what it must hold. For a "
    "classification, the classes are its distinct values in order.",
    "features": "The columns to learn from, as a list. By default all columns of numbers that have no other role.",
    "input": "The column to learn from, or a list of columns.",
    "client": "The column that says which client holds an example, for the [partition](#partitions) `natural`.",
    "time": "The column that says when an example arrives: seconds or dates, counted from the earliest. By default "
    "the [stream](#streams) is then `recorded`.",
    "test": "The official test part: a second file, or for `huggingface` a split. `holdout` is then `official` by "
    "default.",
    "split": "The split to train on, if the folder holds several.",
    "shape": "The shape of one example, such as `[28, 28]` for an image with one channel, or `[3, 32, 32]`.",
}
"""What the parameters of `FILES` mean."""


def _own(name: str, made: object) -> Dataset:
    if not isinstance(made, tuple | list) or len(made) not in (2, 4):
        shown = f"{len(made)} values" if isinstance(made, tuple | list) else type(made).__name__
        raise InputError(
            f"the data set {name} returned {shown}, but must return (inputs, labels), "
            "(inputs, labels, test inputs, test labels), or a fairlag Dataset"
        )
    pooled = joined(f"inputs of {name}", [inputs_of(name, values) for values in made[::2]])
    labels = [labels_of(name, values) for values in made[1::2]]
    every = joined(f"labels of {name}", labels)
    classes = int(every.max(initial=0)) + 1 if every.dtype == np.int64 else math.prod(every.shape[1:])
    return Dataset(name, pooled, every, classes, len(labels[0]), *scaling(pooled))
