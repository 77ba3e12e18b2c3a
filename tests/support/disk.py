"""A disk that forgets what was not synced: records every write below a folder, and says what a power loss leaves.

The model. A file is a list of writes and truncations since its last sync, over the content of that sync. A power loss
applies any of them and drops any others, in any combination, and tears writes at any byte. A name (a file is made,
renamed or removed) is a list of changes since the last sync of its folder; a power loss goes back to any of them, for
each name alone: a rename may survive although the content of the file does not. What was synced stays. The process
may also be killed alone: then the system still writes everything. A full disk takes a part of a write and refuses the
rest; after some refused writes, somebody makes room. A sync may fail: then the power is lost.

Limits. A sync that returns is believed; files do not rot; a folder has no names but its own; the shared memory of
SQLite's WAL is not on the disk (SQLite makes it anew). All names of the folder become durable together.
"""

import errno
import io
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from tests.support import sqlite_io

KILL, POWER, FULL, NO_SYNC = "process killed", "power lost", "disk full", "sync failed"
FAULTS = KILL, POWER, FULL, NO_SYNC
_SECTOR = 512


class Gone(BaseException):
    """The process is no more: nothing that happens after this reaches the disk."""


class _File:
    """The content of a file when it was last synced, and what was written since."""

    def __init__(self) -> None:
        self.synced = b""
        self.later: list[tuple[int, bytes | None]] = []
        """Writes and truncations: the offset or the size, and the bytes of a write."""

    def content(self, changes: list[tuple[int, bytes | None]]) -> bytes:
        found = bytearray(self.synced)
        for place, written in changes:
            if written is None:
                del found[place:]
                found.extend(bytes(place - len(found)))
            else:
                found.extend(bytes(max(0, place - len(found))))
                found[place : place + len(written)] = written
        return bytes(found)


class Disk:
    """One folder. At a chosen step, counted from `arm`, a fault happens."""

    def __init__(self, folder: Path, chance: Random, faults: Counter[str], places: set[str]) -> None:
        """Counts in `faults` what it did, and notes in `places` where; the folder must not exist yet."""
        self.folder = folder
        folder.mkdir(parents=True)
        self._root = f"{folder}{os.sep}"
        self._chance, self._faults, self._places = chance, faults, places
        self.names: dict[str, _File] = {}
        self._before: dict[str, list[_File | None]] = {}
        """By name, since the folder was last synced: what it meant before each change."""
        self.steps = 0
        self._fault, self._at = "", 0
        self.dead = ""
        """The fault that ended the process."""
        self.ran_full = False
        """Has the disk been full?"""
        self._refuses, self._for_good = 0, False
        """How many more writes it refuses until somebody makes room, and whether nobody does."""
        self._streams: dict[int, str] = {}

    def arm(self, fault: str, at: int, *, for_good: bool = False) -> None:
        """The fault happens at this step; none if it is empty. A full disk may be full for good."""
        self._fault, self._at, self.steps, self.dead, self.ran_full = fault, at, 0, "", False
        self._refuses, self._for_good = 0, for_good

    def hasten(self) -> None:
        """A fault that is still to come happens within the next steps."""
        if self._at > self.steps:
            self._at = self.steps + self._chance.randint(1, 12)

    # What is left

    def left(self, folder: Path) -> "Disk":
        """The disk that the next process finds, in a new folder; what is lost depends on the fault."""
        made = Disk(folder, self._chance, self._faults, self._places)
        for name in sorted(self.names.keys() | self._before.keys()):
            file = self.names.get(name)
            if self.dead in (POWER, NO_SYNC) and name in self._before:
                there = [*self._before[name], file]
                file = self._chance.choice(there)
                if file is not there[-1]:
                    self._count("name lost" if file is None else "older file under a name", name)
            if file is not None:
                made.names[name] = kept = _File()
                kept.synced = self._survivor(file, name)
                (folder / name).write_bytes(kept.synced)
        return made

    def _survivor(self, file: _File, name: str) -> bytes:
        if self.dead not in (POWER, NO_SYNC) or not file.later:
            return file.content(file.later)
        how = self._chance.choice(["all lost", "in order", "any", "any"])
        if how == "all lost":
            self._count("unsynced writes lost", name, len(file.later))
            return file.synced
        changes = list(file.later)
        if how == "in order":
            last = self._chance.randint(1, len(changes))
            self._count("unsynced writes lost", name, len(changes) - last)
            return file.content([*changes[: last - 1], *self._torn(changes[last - 1], name)])
        kept: list[tuple[int, bytes | None]] = []
        lost = False
        for change in changes:
            if self._chance.random() < 0.4:
                lost = True
                self._count("unsynced writes lost", name)
            else:
                if lost:
                    self._count("write kept after one that was lost", name)
                kept += self._torn(change, name) if self._chance.random() < 0.3 else [change]
        return file.content(kept)

    def _torn(self, change: tuple[int, bytes | None], name: str) -> list[tuple[int, bytes | None]]:
        """The write cut at any byte, or only some of its sectors."""
        place, written = change
        if not written:
            return [change]
        self._count("write torn", name)
        if self._chance.random() < 0.5:
            return [(place, written[: self._chance.randrange(len(written))])]
        starts = range(0, len(written), _SECTOR)
        return [(place + at, written[at : at + _SECTOR]) for at in starts if self._chance.random() < 0.5]

    def _count(self, what: str, name: str, times: int = 1) -> None:
        if times:
            self._faults[what] += times
            self._places.add(f"{what}: {kind_of(name)}")

    # What happens, also to SQLite's files

    def covers(self, path: str) -> bool:
        return path.startswith(self._root)

    def created(self, path: str) -> None:
        self._step(path, "create", written=0)
        self._name(path, _File())

    def wrote(self, path: str, offset: int, content: bytes) -> None:
        self._step(path, "write", written=len(content))
        self._of(path).later.append((offset, content))

    def truncated(self, path: str, size: int) -> None:
        self._step(path, "truncate")
        self._of(path).later.append((size, None))

    def synced(self, path: str) -> None:
        self._step(path, "sync")
        file = self._of(path)
        file.synced, file.later = file.content(file.later), []

    def names_synced(self, folder: str) -> None:
        self._step(folder, "sync of names")
        self._before.clear()

    def removed(self, path: str) -> None:
        self._step(path, "remove")
        self._name(path, None)

    def _of(self, path: str) -> _File:
        return self.names[path.removeprefix(self._root)]

    def _name(self, path: str, file: _File | None) -> None:
        name = path.removeprefix(self._root)
        self._before.setdefault(name, []).append(self.names.get(name))
        if file is None:
            del self.names[name]
        else:
            self.names[name] = file

    def _step(self, path: str, what: str, written: int | None = None) -> None:
        if self.dead:
            raise Gone
        self.steps += 1
        if self._refuses and written is not None:
            self._refuses -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.steps < self._at or not self._fault:
            return
        if self._fault == FULL:
            if written is not None:
                self.ran_full, self._refuses = True, self._refusals()
                self._hit(path, what)
                if not self._for_good:  # the process may still be hit later
                    self._fault = self._chance.choice(["", KILL, POWER])
                    self._at = self.steps + self._chance.randint(1, 60)
                raise OSError(errno.ENOSPC, "No space left on device")
        elif self._fault == NO_SYNC:
            if "sync" in what:
                self._hit(path, what)
                self.dead = NO_SYNC
                raise OSError(errno.EIO, "Input/output error")
        else:
            self._hit(path, what)
            self.dead = self._fault
            raise Gone

    def _refusals(self) -> int:
        return 10**9 if self._for_good else self._chance.choice([0, 0, 1, 3, 20])

    def _hit(self, path: str, what: str) -> None:
        fault, self._fault = self._fault, self._fault if self._fault in (KILL, POWER) else ""
        self._faults[fault] += 1
        self._places.add(f"{fault} at {what}: {kind_of(path.removeprefix(self._root))}")

    # Python's own files

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Inside, everything that is written below the folder is recorded, by Python and by SQLite."""
        with ExitStack() as held:
            held.enter_context(sqlite_io.shown_to(self))
            for module, name, made in (
                (io, "open", self._opening(io.open)),
                (os, "open", self._numbering(os.open)),
                (os, "fsync", self._syncing(os.fsync)),
                (os, "replace", self._renaming(os.replace)),
                (os, "unlink", self._unlinking(os.unlink)),
            ):
                held.enter_context(patch.object(module, name, made))
            yield

    def _opening(self, act: Any) -> Any:
        def opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            path = os.fspath(file) if isinstance(file, str | os.PathLike) else ""
            if not (isinstance(path, str) and self.covers(path)) or not set("wxa+") & set(mode):
                return act(file, mode, *arguments, **options)
            assert mode in ("xb", "ab"), f"{path} is opened with {mode!r}, which this disk does not know"
            if mode == "xb" or not os.path.exists(path):
                self.created(path)
            return _Stream(self, path, act(file, mode, *arguments, **options))

        return opened

    def _numbering(self, act: Any) -> Any:
        def opened(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            number: int = act(path, flags, *arguments, **options)
            self.opened(number, os.fspath(path))
            return number

        return opened

    def opened(self, number: int, path: str) -> None:
        """From now on, this number of an open file means this path."""
        self._streams[number] = path

    def _syncing(self, act: Any) -> Any:
        def synced(number: int) -> None:
            path = self._streams.get(number, "")
            if path == str(self.folder):
                self.names_synced(path)
            elif self.covers(path):
                self.synced(path)

        return synced

    def _renaming(self, act: Any) -> Any:
        def renamed(source: Any, target: Any, **options: Any) -> None:
            one, other = os.fspath(source), os.fspath(target)
            if self.covers(one):
                self._step(other, "rename")
                file = self._of(one)
                self._name(other, file)
                self._name(one, None)
            act(source, target, **options)

        return renamed

    def _unlinking(self, act: Any) -> Any:
        def unlinked(path: Any, **options: Any) -> None:
            if self.covers(os.fspath(path)) and os.path.exists(path):
                self.removed(os.fspath(path))
            act(path, **options)

        return unlinked


class _Stream:
    """A file that is written at its end; each write reaches the system at once."""

    def __init__(self, disk: Disk, path: str, stream: Any) -> None:
        self._disk, self._path, self._stream = disk, path, stream
        self._end = os.path.getsize(path)

    def write(self, content: Any) -> int:
        written = bytes(content)
        try:
            self._disk.wrote(self._path, self._end, written)
        except OSError:  # a full disk takes what still fits
            written = written[: len(written) // 2]
            self._disk.names[self._path.removeprefix(f"{self._disk.folder}{os.sep}")].later.append((self._end, written))
            self._put(written)
            raise
        return self._put(written)

    def _put(self, written: bytes) -> int:
        self._stream.write(written)
        self._stream.flush()
        self._end += len(written)
        return len(written)

    def truncate(self, size: int) -> None:
        if size != self._end:
            self._disk.truncated(self._path, size)
            self._end = self._stream.truncate(size)

    def flush(self) -> None: ...

    def fileno(self) -> int:
        number = int(self._stream.fileno())
        self._disk.opened(number, self._path)
        return number

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def kind_of(name: str) -> str:
    """What a file is for: "checkpoint-3-4-ab.safetensors" is a checkpoint."""
    if name.endswith(("-wal", "-journal")):
        return name.rpartition("-")[2]
    kind = name.partition("-")[0].partition(".")[0] or "folder"
    return f"partial {kind}" if ".partial" in name else kind
