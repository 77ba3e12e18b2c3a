"""Data sets of Hugging Face on disk, if the extra is installed, and a sentence if it is not."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag.data.load import Dataset, load
from fairlag.errors import InputError

ROWS: dict[str, Any] = {
    "pixels": [[0.5, 1.0], [2.0, 3.0], [4.0, 5.0]],
    "label": [1, 0, 1],
    "who": ["bob", "ann", "bob"],
    "words": ["a", "b", "c"],
}


def read(folder: Path, **parameters: Any) -> Dataset:
    return load("huggingface", {"path": "saved", "target": "label", "input": "pixels", **parameters}, folder)


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"needs the extra `huggingface`: pip install 'fairlag\[huggingface\]'"):
        read(tmp_path)


def test_splits_classes_and_clients(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    labels = datasets.ClassLabel(names=["no", "yes", "maybe"])
    saved = datasets.Dataset.from_dict(ROWS).cast_column("label", labels)
    datasets.DatasetDict({"train": saved, "test": saved.select([0])}).save_to_disk(tmp_path / "saved")
    data = read(tmp_path, split="train", test="test", client="who")
    assert data.inputs.tolist() == [[0.5, 1], [2, 3], [4, 5], [0.5, 1]]
    assert (data.labels.tolist(), data.classes, data.class_names) == ([1, 0, 1, 1], 3, ("no", "yes", "maybe"))
    assert data.owners is not None
    assert (data.official, data.clients, data.owners.tolist()) == (3, ("ann", "bob"), [1, 0, 1, 1])


def test_images_have_their_channels_first(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    grey = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    for pixels, shape in ((grey, (1, 3, 4)), (np.stack([grey] * 3, axis=-1), (3, 3, 4))):
        features = datasets.Features({"pixels": datasets.Image(), "label": datasets.Value("int64")})
        saved = datasets.Dataset.from_dict({"pixels": list(pixels), "label": [0, 1]}, features=features)
        saved.save_to_disk(tmp_path / f"saved{len(shape)}{shape[0]}")
        data = read(tmp_path, path=f"saved{len(shape)}{shape[0]}")
        assert data.shape == shape and data.inputs.dtype == np.uint8
        assert np.array_equal(data.inputs[:, 0], grey)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, "split is None, which is no split of"),
        ({"split": "trian"}, "did you mean 'train'?"),
        ({"split": "train", "target": "lable"}, "saved has no column 'lable'"),
        ({"split": "train", "input": "words"}, "column 'words' of saved holds 'a', but inputs must be numbers"),
        ({"split": "train", "path": "gone"}, "cannot be read as a data set of Hugging Face"),
    ],
)
def test_a_mistake(parameters: dict[str, Any], words: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.DatasetDict({"train": datasets.Dataset.from_dict(ROWS)}).save_to_disk(tmp_path / "saved")
    with pytest.raises(InputError) as caught:
        read(tmp_path, **parameters)
    assert words in str(caught.value)
