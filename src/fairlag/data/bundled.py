"""Data sets that scikit-learn brings along: digits, diabetes and breast cancer."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlag.data.dataset import Dataset

Array = NDArray[Any]


def digits() -> Dataset:
    """1,797 handwritten digits of 8×8 pixels."""
    if file := _file("digits.csv.gz"):  # 64 pixels and a label per line
        rows = np.loadtxt(file, np.uint8, delimiter=",")
        pixels, labels = rows[:, :-1], rows[:, -1]
    else:
        pixels, labels = _loaded("load_digits")
    inputs = np.ascontiguousarray(pixels, np.uint8).reshape(-1, 1, 8, 8)
    return Dataset(
        "digits", inputs, labels.astype(np.int64), classes=10, official=len(labels), scale=1 / 8, offset=-1.0
    )


def diabetes() -> Dataset:
    """442 patients with ten measurements each, and how far their diabetes went within a year, all in standard units.

    A client holds the patients of one sex and decade of age.
    """
    if (inputs := _file("diabetes_data_raw.csv.gz")) and (targets := _file("diabetes_target.csv.gz")):
        rows, progress = np.loadtxt(inputs), np.loadtxt(targets)
    else:
        rows, progress = _loaded("load_diabetes", scaled=False)
    decades = np.clip(rows[:, 0] // 10, 2, 6).astype(np.int64)
    codes, owners = np.unique(10 * decades + rows[:, 1].astype(np.int64), return_inverse=True)
    aged = {2: "19-29", 3: "30-39", 4: "40-49", 5: "50-59", 6: "60-79"}
    clients = tuple(f"{aged[code // 10]}, sex {code % 10}" for code in codes.tolist())
    return Dataset(
        "diabetes",
        _standardised(rows),
        _standardised(progress[:, np.newaxis]),
        classes=1,
        official=len(rows),
        clients=clients,
        owners=owners.astype(np.int64),
    )


def breast_cancer() -> Dataset:
    """569 tumours with thirty measurements each, in standard units, malignant or benign."""
    if file := _file("breast_cancer.csv"):  # below a header: 30 measurements and a label per line
        table = np.loadtxt(file, delimiter=",", skiprows=1)
        rows, labels = table[:, :-1], table[:, -1]
    else:
        rows, labels = _loaded("load_breast_cancer")
    return Dataset(
        "breast_cancer",
        _standardised(rows),
        # scikit-learn's class 0 is malignant. Here it is 1, so that the AUROC is that of finding malignant tumours.
        1 - labels.astype(np.int64),
        classes=2,
        official=len(rows),
        class_names=("benign", "malignant"),
    )


def _standardised(columns: Array) -> Array:
    """(x − mean) / standard deviation, per column and over all examples, as scikit-learn's diabetes set has it."""
    return np.ascontiguousarray((columns - columns.mean(axis=0)) / columns.std(axis=0), np.float32)


def _file(name: str) -> Path | None:
    """One of scikit-learn's own files, which are read directly because importing scikit-learn takes seconds."""
    package = find_spec("sklearn")
    folders = package.submodule_search_locations if package else None
    files = (Path(folder, "datasets", "data", name) for folder in folders or ())
    return next((file for file in files if file.is_file()), None)


def _loaded(name: str, **parameters: object) -> tuple[Array, Array]:
    """What scikit-learn's own function returns: inputs and labels."""
    from sklearn import datasets  # type: ignore[import-untyped]

    load: Callable[..., tuple[Array, Array]] = getattr(datasets, name)
    return load(return_X_y=True, **parameters)
