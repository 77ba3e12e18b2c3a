"""The data sets of scikit-learn: the same from its files as from its functions, in standard units."""

import numpy as np
import pytest

from fairlag.data.load import load
from fairlag.data.partition import Holding, parse

DIGITS = "ccf94edbe2ce134ccac10a56203ae815901b24b42235899835f144bb34a2c2dd"


def test_digits_come_with_scikit_learn() -> None:
    data = load("digits")
    assert data.inputs.shape == (1797, 1, 8, 8) and data.inputs.dtype == np.uint8
    assert (data.inputs.min() * data.scale + data.offset, data.inputs.max() * data.scale + data.offset) == (-1, 1)
    assert data.fingerprint == DIGITS


@pytest.mark.slow  # importing scikit-learn takes seconds
@pytest.mark.parametrize("name", ["digits", "diabetes", "breast_cancer"])
def test_files_hold_what_scikit_learn_loads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = load(name)
    monkeypatch.setattr("fairlag.data.bundled.find_spec", lambda name: None)
    assert load(name).fingerprint == read.fingerprint


def test_patients_of_diabetes_are_held_by_sex_and_age() -> None:
    data = load("diabetes")
    assert (data.shape, data.labels.shape, len(data), data.classes) == ((10,), (442, 1), 442, 1)
    columns = np.hstack([data.inputs, data.labels])
    assert columns.mean(axis=0) == pytest.approx(0, abs=1e-5) and columns.std(axis=0) == pytest.approx(1, abs=1e-5)
    assert data.clients == tuple(sorted(data.clients)) and len(data.clients) == 10
    assert data.owners is not None and np.bincount(data.owners).tolist() == [30, 14, 41, 32, 60, 37, 61, 64, 43, 60]
    age, sex = data.inputs[:, 0], data.inputs[:, 1]
    oldest = [data.owners == data.clients.index(f"60-79, sex {each}") for each in (1, 2)]
    assert age[oldest[0] | oldest[1]].min() > age[~(oldest[0] | oldest[1])].max()
    assert sex[oldest[0]].max() < sex[oldest[1]].min()
    shares = parse("natural").bound(data, np.arange(442)).share(data.strata, [Holding("all", 10)], seed=0)
    assert shares.sizes.tolist() == np.bincount(data.owners).tolist()


def test_tumours_are_malignant_or_benign() -> None:
    data = load("breast_cancer")
    assert (data.shape, len(data), data.class_names) == ((30,), 569, ("benign", "malignant"))
    assert np.bincount(data.labels).tolist() == [357, 212]
    assert data.inputs.mean(axis=0) == pytest.approx(0, abs=1e-5) and data.inputs.std(axis=0) == pytest.approx(
        1, abs=1e-5
    )
    radius = data.inputs[:, 0]
    assert radius[data.labels == 1].mean() > 0.9 > -0.5 > radius[data.labels == 0].mean()  # malignant ones are larger
