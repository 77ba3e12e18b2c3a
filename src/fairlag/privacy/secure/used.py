"""Which seeds the keeper has used: in memory for a simulation, on disk for a process. It keeps hashes, not seeds."""

import sqlite3
from collections.abc import Collection
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import numpy as np

from fairlag.core.state import State, take
from fairlag.errors import InputError, RefusedError

_APPLICATION = 0x6661_6972
"""Marks the database as one of used seeds."""


def mark(seed: bytes) -> bytes:
    """What is kept of a used seed: a hash, from which nobody can compute the seed."""
    return sha256(b"fairlag used 1" + seed).digest()


class Used(Protocol):
    """The marks of the seeds that were used."""

    def known(self, marks: Collection[bytes]) -> set[bytes]:
        """Those of the marks that were added before."""

    def add(self, marks: Collection[bytes]) -> None:
        """Adds new marks. When this returns, they are safe."""


class UsedInMemory:
    """The marks of used seeds in memory, savable with a simulation.

    >>> used = UsedInMemory()
    >>> used.add([mark(b"seed")])
    >>> again = UsedInMemory()
    >>> again.restore(used.state())
    >>> again.known([mark(b"seed"), mark(b"other")]) == {mark(b"seed")}
    True
    """

    def __init__(self) -> None:
        self._marks: set[bytes] = set()

    def known(self, marks: Collection[bytes]) -> set[bytes]:
        """Those of the marks that were added before."""
        return self._marks.intersection(marks)

    def add(self, marks: Collection[bytes]) -> None:
        """Adds new marks."""
        self._marks.update(marks)

    def state(self) -> State:
        """All marks as one array, sorted."""
        return {"marks": np.frombuffer(b"".join(sorted(self._marks)), np.uint8).reshape(-1, 32)}

    def restore(self, state: State) -> None:
        """Replaces the marks by saved ones."""
        self._marks = {row.tobytes() for row in take(state, "marks", np.ndarray)}


class UsedOnDisk:
    """The marks of used seeds in a SQLite database, which one process may open at a time.

    `add` returns when the disk has the marks, so a crash or a power cut after it cannot undo them. One before it leaves
    the database as it was. A missing or damaged database is refused: without it, a seed could be used twice.
    """

    def __init__(self, file: Path) -> None:
        if not file.is_file():
            raise InputError(
                f"{str(file)!r} is missing: it says which seeds were used, and comes with a new key of the keeper; "
                "without it, make new keys"
            )
        self._database = sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            self._open()
        except sqlite3.Error as error:
            self._database.close()
            if "locked" in str(error):
                raise InputError(f"another keeper uses {str(file)!r}") from None
            raise InputError(
                f"{str(file)!r} does not hold the used seeds of a keeper, or is damaged: {error}"
            ) from None

    def _open(self) -> None:
        run = self._database.execute
        run("PRAGMA locking_mode = EXCLUSIVE")  # until closed, or until the process ends in any way
        run("PRAGMA synchronous = EXTRA")  # FULL may lose the last commit in a power cut
        run("BEGIN EXCLUSIVE")
        (known,), (state,) = run("PRAGMA application_id").fetchone(), run("PRAGMA quick_check(1)").fetchone()
        run("COMMIT")
        if known != _APPLICATION or state != "ok":
            raise sqlite3.DatabaseError(state if known == _APPLICATION else "it was made by something else")

    @staticmethod
    def create(file: Path) -> None:
        """Makes an empty database."""
        with closing(sqlite3.connect(file)) as database:
            database.execute(f"PRAGMA application_id = {_APPLICATION}")
            database.execute("CREATE TABLE used (mark BLOB PRIMARY KEY) WITHOUT ROWID")

    def __len__(self) -> int:
        (count,) = self._database.execute("SELECT count(*) FROM used").fetchone()
        return int(count)

    def known(self, marks: Collection[bytes]) -> set[bytes]:
        """Those of the marks that were added before."""
        find = "SELECT 1 FROM used WHERE mark = ?"
        return {each for each in marks if self._database.execute(find, (each,)).fetchone()}

    def add(self, marks: Collection[bytes]) -> None:
        """Adds new marks; refuses if they cannot be written."""
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                self._database.executemany("INSERT INTO used VALUES (?)", [(each,) for each in marks])
        except sqlite3.Error as error:
            raise RefusedError(f"the keeper cannot write its used seeds: {error}") from None

    def close(self) -> None:
        """Lets another process use the database."""
        self._database.close()
