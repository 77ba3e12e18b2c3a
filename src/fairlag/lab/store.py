"""Writing a run directory: rows and checkpoints, always one consistent moment on disk. Reading is in run.py."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fairlag.errors import InputError
from fairlag.lab.folder import (
    DATABASE,
    EXPERIMENT,
    FORMAT,
    MODEL,
    PARTIAL,
    SCHEMA,
    check_is_run,
    connected,
    explained,
    in_use,
    is_begun,
    locked,
    meta_of,
    packed,
    place,
    put,
    unpacked,
)
from fairlag.types import Aggregation, Ended, Integers, Outcome, Record

_AGGREGATED = f"INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, '{Outcome.AGGREGATED}', ?, ?, ?, NULL)"
"""What all of them share is part of the statement: handing over a word costs as much as five numbers."""
_ENDED = "INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL, ?)"
_META = "REPLACE INTO meta VALUES (?, ?)"


class Score(NamedTuple):
    """How a version does on some test examples: all, those of a class, or those with the labels of a client group."""

    scope: str
    """Of what: "all", "class" or "group"."""
    name: str
    examples: int
    correct: int
    loss: float
    """The mean over the examples."""
    whole: bool = False
    """On the whole test set, not on the sample of it that the curve uses?"""


class Store:
    """Writes one run. What is on disk is always the moment of the last commit, whenever the process is killed.

    Rows are buffered until a commit takes them: what was not committed is computed again after a resume.
    """

    def __init__(self, folder: Path) -> None:
        """Use `Store.create` or `Store.open`: this takes a folder that holds a run."""
        self.folder = folder
        self._rows: list[Aggregation | Ended] = []
        self.record: Record = self._rows.append
        """The server's callback: it is called for every event, so a row is taken apart only when it is committed."""
        self._scores: list[tuple[object, ...]] = []
        self._held = ExitStack()
        self._held.enter_context(closing(locked(folder)))
        try:
            self._database = self._held.enter_context(closing(connected(folder, "rw")))
            self.meta = meta_of(self._database, folder)
            """What is known about the run as a whole."""
            if self.meta["status"] != "finished":
                self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            if self.meta["status"] == "failed":  # it is tried again
                self._note({"status": "running", "reason": None})
            row = self._database.execute("SELECT number, file FROM checkpoint").fetchone()
            self._number: int = row[0] if row else 0
            self._file = folder / row[1] if row else None
            self._tidy()
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(
        cls,
        folder: Path,
        meta: Mapping[str, object],
        *,
        experiment: str,
        groups: Sequence[str],
        group_of: Integers,
        examples: Integers,
    ) -> Self:
        """A new run in a folder that is empty or not there; `experiment` is the text of its resolved experiment."""
        facts = {
            "format": FORMAT,
            "status": "running",
            "reason": None,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "fairlag": metadata.version("fairlag"),
            "groups": list(groups),
            "clients": len(group_of),
            **meta,
        }
        names = np.asarray(groups, dtype=object)[group_of].tolist()
        clients = zip(range(len(names)), names, np.asarray(examples).tolist(), strict=True)
        with explained(folder, "a new run", "run it again"):
            folder.mkdir(parents=True, exist_ok=True)
            _check_empty(folder)
            with closing(locked(folder)):
                _check_empty(folder)  # again: another process may have been quicker
                put(folder / EXPERIMENT, experiment.encode())
                _make_database(folder / DATABASE, facts, clients)
            return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """A run that was made before, to go on with it."""
        check_is_run(folder)
        with explained(folder, "the run", _resume(folder)):
            return cls(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the run. Rows that no commit took are dropped: they lie after the checkpoint."""
        self._held.close()

    def evaluated(self, version: int, time: float, scores: Iterable[tuple[str, str, int, int, float, bool]]) -> None:
        """A version was evaluated, one score a row; the next commit writes them."""
        # Converted, because numbers of numpy would be stored as the bytes of their memory.
        self._scores += [
            (int(version), float(time), scope, str(name), int(examples), int(correct), float(loss), bool(whole))
            for scope, name, examples, correct, loss, whole in scores
        ]

    def commit(
        self,
        state: Mapping[str, NDArray[Any]],
        text: str,
        version: int,
        *,
        refusals: Mapping[str, int] | None = None,
        meta: Mapping[str, object] | None = None,
        clients: Iterable[tuple[int, str, int]] = (),
    ) -> None:
        """Makes this moment the one on disk: the state to go on from, and all rows up to it.

        `clients` are those of which something new is known: their groups, and how many examples they hold.
        """
        # Numbered, because a version may be committed twice: a name that the database refers to must never change.
        number = self._number + 1
        file = self.folder / f"checkpoint-{version}-{number}.safetensors"
        with explained(self.folder, "a checkpoint", _resume(self.folder)):
            put(file, packed(state, {"text": text}))
            with self._transaction() as database:
                self._write(refusals or {}, meta or {})
                database.executemany("REPLACE INTO clients VALUES (?, ?, ?)", clients)
                database.execute("DELETE FROM checkpoint")
                database.execute("INSERT INTO checkpoint VALUES (?, ?, ?)", (number, version, file.name))
        self._number, self._file = number, file
        self._tidy()

    def checkpoint(self) -> tuple[dict[str, NDArray[Any]], str] | None:
        """The state and the text of the last commit; None before the first and after the end."""
        if self._file is None:
            return None
        tensors, words = unpacked(self._file)
        return tensors, words["text"]

    def finish(
        self,
        tensors: Mapping[str, NDArray[Any]],
        reason: str,
        *,
        refusals: Mapping[str, int] | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> None:
        """The run is over: keeps its rows and the model that it ended with; there is nothing left to resume."""
        with explained(self.folder, "the final model", _resume(self.folder)):
            put(self.folder / MODEL, packed(tensors, {}))
            with self._transaction() as database:
                self._write(refusals or {}, {**(meta or {}), "status": "finished", "reason": reason})
                database.execute("DELETE FROM checkpoint")
        self._file = None
        self._tidy()
        # A finished run is one plain file that a read-only disk can show; unless somebody is reading it right now.
        with suppress(sqlite3.OperationalError):
            self._database.execute("PRAGMA busy_timeout = 0")
            self._database.execute("PRAGMA journal_mode = DELETE")

    def fail(self, reason: str) -> None:
        """The run cannot go on; it may be tried again from its last checkpoint."""
        with explained(self.folder, "why the run failed", _resume(self.folder)):
            self._note({"status": "failed", "reason": reason})

    def _note(self, meta: Mapping[str, object]) -> None:
        """Writes what is known about the run as a whole, and none of its rows."""
        with self._transaction() as database:
            database.executemany(_META, _meta_rows(meta))

    def _tidy(self) -> None:
        """Removes what a killed process left half done, and checkpoints that nothing refers to any more."""
        left = {*self.folder.glob(f"*{PARTIAL}*"), *self.folder.glob("checkpoint-*.safetensors")} - {self._file}
        if self.meta["status"] != "finished":
            left.add(self.folder / MODEL)
        for file in left:
            file.unlink(missing_ok=True)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is written inside reaches the disk together; then nothing is left in the buffers."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            yield database
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:  # a full disk makes SQLite itself roll back
                database.execute("ROLLBACK")
            raise
        self._rows.clear()
        self._scores.clear()
        self.meta = meta_of(database, self.folder)

    def _write(self, refusals: Mapping[str, int], meta: Mapping[str, object]) -> None:
        write = self._database.executemany
        write(_AGGREGATED, _aggregated_tasks(self._rows))
        write(_ENDED, _ended_tasks(self._rows))
        write("INSERT INTO aggregations VALUES (?, ?, ?, ?, ?, ?)", _aggregations(self._rows))
        write("INSERT INTO parts VALUES (?, ?, ?)", _parts(self._rows))
        write("INSERT INTO units VALUES (?, ?)", _units(self._rows))
        # The last version may be evaluated twice in the same way: for the curve, and because it is the last.
        write("REPLACE INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self._scores)
        write("REPLACE INTO refusals VALUES (?, ?)", refusals.items())
        write(_META, _meta_rows(meta))


def _check_empty(folder: Path) -> None:
    """Refuses a folder in use."""
    if is_begun(folder):
        raise InputError(f"{str(folder)!r} already holds a run: {_resume(folder)}, or choose another folder")
    if other := in_use(folder):
        raise InputError(f"{str(folder)!r} already holds {other!r}, a run needs an empty folder")


def _make_database(file: Path, meta: Mapping[str, object], clients: Iterable[tuple[object, ...]]) -> None:
    partial = file.with_name(file.name + PARTIAL)
    partial.unlink(missing_ok=True)
    with closing(sqlite3.connect(partial, isolation_level=None)) as database:
        database.execute("PRAGMA synchronous = OFF")  # it gets its name only after it was flushed as a whole
        database.execute("PRAGMA journal_mode = OFF")
        database.executescript(SCHEMA)
        database.execute("BEGIN")
        database.executemany(_META, _meta_rows(meta))
        database.executemany("INSERT INTO clients VALUES (?, ?, ?)", clients)
        database.execute("COMMIT")
    place(partial, file)


def _aggregated_tasks(rows: Iterable[Aggregation | Ended]) -> Iterator[tuple[object, ...]]:
    for row in rows:
        if type(row) is Aggregation:
            late, weights = row.staleness.tolist(), row.weights.tolist()
            for task, arrival, versions, weight in zip(row.tasks, row.arrivals, late, weights, strict=True):
                yield (*task, arrival, row.version, versions, weight)


def _ended_tasks(rows: Iterable[Aggregation | Ended]) -> Iterator[tuple[object, ...]]:
    return ((*row.task, row.time, row.outcome.value, row.reason) for row in rows if type(row) is Ended)


def _aggregations(rows: Iterable[Aggregation | Ended]) -> Iterator[tuple[object, ...]]:
    for row in rows:
        if type(row) is Aggregation:
            yield row.version, row.time, len(row.tasks), sum(row.weights.tolist()), row.partial, row.refused


def _parts(rows: Iterable[Aggregation | Ended]) -> Iterator[tuple[object, ...]]:
    for row in rows:
        if type(row) is Aggregation and row.parts is not None:
            for client, change in zip(row.parts.clients.tolist(), row.parts.changes.tolist(), strict=True):
                yield row.version, client, change


def _units(rows: Iterable[Aggregation | Ended]) -> Iterator[tuple[object, ...]]:
    return ((row.version, row.acted) for row in rows if type(row) is Aggregation and row.parts is not None)


def _meta_rows(meta: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    return ((key, json.dumps(value)) for key, value in meta.items())


def _resume(folder: Path) -> str:
    return f"`fairlag resume {folder}` goes on from its last checkpoint"
