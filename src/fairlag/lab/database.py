"""The database of a run, opened for writing: each transaction also writes the digests of the rows that it changed."""

import json
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from fairlag.errors import UnreadableError
from fairlag.files import PARTIAL, place
from fairlag.lab import digest
from fairlag.lab.folder import DATABASE, check_own, check_rows, connected, meta_of
from fairlag.lab.lock import locked
from fairlag.lab.schema import FORMAT, LACKS, LAYOUT, SCHEMA


class Database:
    """The rows of one run, locked for other writers. Without the WAL file, at most one commit is missing."""

    def __init__(self, folder: Path, *, new: bool = False) -> None:
        """Checks the rows, unless the database is new."""
        self.folder = folder
        check_own(folder)
        self._held = ExitStack()
        self._held.enter_context(closing(locked(folder)))
        self._sums = digest.Sums(LAYOUT)
        try:
            self._rows = self._held.enter_context(closing(connected(folder, "rw")))
            if not new:
                check_rows(folder, self._rows)
            self.meta = meta_of(self._rows, folder)
            """What is known about the run as a whole."""
            _check_writable(folder, self.meta)
            if self.meta["status"] != "finished":
                self._log_ahead()
            self._rows.execute("PRAGMA synchronous = FULL")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Releases the run."""
        self._held.close()

    @property
    def presence(self) -> int:
        """The number of the last row about clients that joined or left; 0 if there is none."""
        return int(self.execute("SELECT COALESCE(MAX(number), 0) FROM presence").fetchone()[0])

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> sqlite3.Cursor:
        """Runs a query, or changes a table that has one digest for all of its rows."""
        return self._rows.execute(sql, parameters)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything written inside reaches the disk together."""
        self._rows.execute("BEGIN IMMEDIATE")
        self._sums = digest.Sums(LAYOUT)
        try:
            yield
            digest.seal(self._rows, LAYOUT, self._sums)
            self._rows.execute("COMMIT")
        except BaseException:
            if self._rows.in_transaction:  # a full disk makes SQLite itself roll back
                self._rows.execute("ROLLBACK")
            raise
        self.meta = meta_of(self._rows, self.folder)
        self._empty_the_log()

    def add(self, table: str, rows: Iterable[digest.Row]) -> None:
        """Writes rows of plain Python values, with None for NaN."""
        places = ", ".join("?" * LAYOUT.width(table))
        self._rows.executemany(f"INSERT INTO {table} VALUES ({places})", self._sums.noted(table, rows))

    def remove(self, table: str, condition: str, parameters: tuple[object, ...] = ()) -> None:
        """Removes rows."""
        rows = self._rows.execute(f"SELECT * FROM {table} WHERE {condition}", parameters)
        deque(self._sums.noted(table, rows, -1), maxlen=0)
        self._rows.execute(f"DELETE FROM {table} WHERE {condition}", parameters)

    def note(self, meta: Mapping[str, object]) -> None:
        """Writes facts about the run as a whole."""
        self._rows.executemany("REPLACE INTO meta VALUES (?, ?)", meta_rows(meta))

    def refused(self, refusals: Mapping[str, int]) -> None:
        """Writes the number of updates refused so far, by reason."""
        self._rows.execute("DELETE FROM refusals")
        self._rows.executemany("INSERT INTO refusals VALUES (?, ?)", refusals.items())

    def settle(self) -> bool:
        """Turns it into one plain file, which can be read on a read-only disk; False if it is being read right now."""
        try:
            self._rows.execute("PRAGMA busy_timeout = 0")
            # Without a journal file, as in `_log_ahead`.
            (mode,) = self._rows.execute("PRAGMA journal_mode = MEMORY").fetchone()
        except sqlite3.OperationalError:
            return False
        return str(mode) == "memory"

    def _log_ahead(self) -> None:
        """Writes commits to the WAL file first."""
        (mode,) = self._rows.execute("PRAGMA journal_mode").fetchone()
        if mode != "wal":
            # The switch only changes some bytes of the header. With a journal file, a process that is killed meanwhile
            # would leave that file behind, and SQLite then refuses to open the database just to read it.
            self._rows.execute("PRAGMA journal_mode = MEMORY")
            self._rows.execute("PRAGMA journal_mode = WAL").fetchone()  # which raises the error if the disk is full

    def _empty_the_log(self) -> None:
        """Moves commits from the WAL file into the database file, unless it is being read right now."""
        (patience,) = self._rows.execute("PRAGMA busy_timeout").fetchone()
        self._rows.execute("PRAGMA busy_timeout = 0")
        with suppress(sqlite3.OperationalError):  # if the disk is full, commits stay in the log
            self._rows.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._rows.execute(f"PRAGMA busy_timeout = {patience}")


def _check_writable(folder: Path, meta: Mapping[str, Any]) -> None:
    """Refuses a run of a format that can only be read."""
    if meta["format"] != FORMAT:
        sentence = (
            f"the run in {str(folder)!r} has format {meta['format']}, which {LACKS[meta['format']]}: this "
            f"fairlag reads it, but continues only runs of format {FORMAT}; run its experiment again in another folder"
        )
        raise UnreadableError.of(folder, sentence)


def make_database(folder: Path, meta: Mapping[str, object], clients: Iterable[digest.Row]) -> None:
    """Creates a database, either completely or not at all."""
    file = folder / DATABASE
    partial = file.with_name(file.name + PARTIAL)
    partial.unlink(missing_ok=True)
    sums = digest.Sums(LAYOUT)
    with closing(sqlite3.connect(partial, isolation_level=None)) as database:
        database.execute("PRAGMA synchronous = OFF")  # it gets its name only after it is completely flushed
        database.execute("PRAGMA journal_mode = OFF")
        database.executescript(SCHEMA)
        database.execute("BEGIN")
        database.executemany("REPLACE INTO meta VALUES (?, ?)", meta_rows(meta))
        database.executemany("INSERT INTO clients VALUES (?, ?, ?)", sums.noted("clients", clients))
        digest.seal(database, LAYOUT, sums)
        database.execute("COMMIT")
    place(partial, file)


def meta_rows(meta: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """The rows of the table `meta`."""
    return ((key, json.dumps(value)) for key, value in meta.items())
