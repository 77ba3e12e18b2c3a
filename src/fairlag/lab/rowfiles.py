"""Large rows in checkpoints, such as clients' last updates: each is written once, to a file that checkpoints share."""

import hashlib
import json
import mmap
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from fairlag.core.state import Stack
from fairlag.core.vector import Vector
from fairlag.errors import InputError
from fairlag.files import PARTIAL, place
from fairlag.lab import digest
from fairlag.lab.folder import words_of

BIG = 1 << 24
"""From this number of bytes on, the rows of a stack are written to files of their own."""
_MOST = 3
"""The files of a checkpoint may have this many times the bytes of its rows; then all rows are written to a new file."""
_NAME = re.compile(r"rows-\d+-([0-9a-f]{16})\.f32")
_PLACES = ":places"
"""The end of the name of an array that holds, per row, the number of its file and its first byte there."""


class RowFiles:
    """The files of one run. A row never changes, so the next checkpoint need only write the rows that are new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[int, tuple[ref[Vector], str, int]] = {}
        """By the identity of a row: itself, its file, and its first byte there."""

    def write(self, number: int, stacks: Mapping[str, Stack]) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        """Writes the new rows of checkpoint `number`; returns arrays and words to be part of the checkpoint itself."""
        rows = [row for stack in stacks.values() for row in stack]
        known = {id(row): found for row in rows if (found := self._written.get(id(row))) and found[0]() is row}
        fresh = [row for row in rows if id(row) not in known]
        files = {file for _, file, _ in known.values()}
        held = sum((self._folder / file).stat().st_size for file in files) + sum(row.nbytes for row in fresh)
        if held > _MOST * sum(row.nbytes for row in rows):
            known, fresh = {}, rows
        self._written = known | self._put(number, fresh)
        names = sorted({file for _, file, _ in self._written.values()})
        places = {
            path + _PLACES: np.array([self._place(row, names) for row in stack], np.int64).reshape(-1, 2)
            for path, stack in stacks.items()
        }
        widths = {path: stack.width for path, stack in stacks.items()}
        return places, {"rows": json.dumps({"files": names, "widths": widths})}

    def read(self, arrays: Mapping[str, NDArray[Any]], words: Mapping[str, str]) -> dict[str, NDArray[Any] | Stack]:
        """The arrays of a checkpoint, with its stacks; their rows are read from the files when they are used."""
        found: dict[str, NDArray[Any] | Stack] = dict(arrays)
        about = json.loads(words.get("rows", "{}"))
        names = [Path(name).name for name in about.get("files", [])]
        wholes = [_mapped(self._folder / name) for name in names]
        for path, width in about.get("widths", {}).items():
            rows = []
            for file, begin in arrays[path + _PLACES].tolist():
                rows.append(wholes[file][begin // 4 : begin // 4 + width])
                self._written[id(rows[-1])] = ref(rows[-1]), names[file], begin
            del found[path + _PLACES]
            found[path] = Stack(tuple(rows), width)
        return found

    def tidy(self, checkpoints: Iterable[Path]) -> None:
        """Removes the files that none of these checkpoints needs."""
        there = [file for file in self._folder.glob("rows-*.f32") if _NAME.fullmatch(file.name)]
        needed = {name for each in checkpoints for name in needed_by(each)} if there else set[str]()
        for file in there:
            if file.name not in needed:
                file.unlink(missing_ok=True)

    def _put(self, number: int, rows: list[Vector]) -> dict[int, tuple[ref[Vector], str, int]]:
        """Writes rows to a new file, one after the other; its name contains the digest of its bytes."""
        if not rows:
            return {}
        partial, hashed = self._folder / f"rows-{number}.{os.getpid()}{PARTIAL}", hashlib.sha256()
        partial.unlink(missing_ok=True)
        begins, end = [], 0
        with partial.open("xb") as stream:
            for row in rows:
                stream.write(row.data)
                hashed.update(row.data)
                begins.append(end)
                end += row.nbytes
        name = f"rows-{number}-{hashed.hexdigest()[:16]}.f32"
        place(partial, self._folder / name)
        return {id(row): (ref(row), name, begin) for row, begin in zip(rows, begins, strict=True)}

    def _place(self, row: Vector, names: list[str]) -> tuple[int, int]:
        _, file, begin = self._written[id(row)]
        return names.index(file), begin


def needed_by(checkpoint: Path) -> list[str]:
    """The names of the files with rows of a checkpoint; none if it cannot be read."""
    try:
        return [Path(name).name for name in json.loads(words_of(checkpoint).get("rows", "{}")).get("files", [])]
    except InputError:
        return []


def damage(checkpoint: Path) -> str | None:
    """What is wrong with the files with rows of a checkpoint; None if they are intact."""
    for name in needed_by(checkpoint):
        try:
            found = digest.of_file(checkpoint.with_name(name))
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
        named = _NAME.fullmatch(name)
        if named is None or not found.startswith(named[1]):
            return f"{name} is not what was written"
    return None


def _mapped(file: Path) -> Vector:
    """The numbers of a file, read when they are used; they stay when the file is removed."""
    try:
        with file.open("rb") as stream:
            return np.frombuffer(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), np.float32)
    except (OSError, ValueError) as error:
        raise InputError(f"{str(file)!r} cannot be read: {error}") from None
