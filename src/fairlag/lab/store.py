"""Writes a run directory: rows and checkpoints, always consistent on disk. Reading is in run.py."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fairlag.core.state import Stack
from fairlag.core.types import Integers, Record, Row
from fairlag.errors import InputError
from fairlag.files import PARTIAL, put, write_anew
from fairlag.lab import checkpoints, digest, rowfiles, rows
from fairlag.lab.database import Database, make_database
from fairlag.lab.folder import (
    DATABASE,
    EXPERIMENT,
    MODEL,
    NODES,
    SUMS,
    check_experiment,
    check_is_run,
    check_own,
    explained,
    in_use,
    is_begun,
    packed,
    unpacked,
)
from fairlag.lab.lock import locked
from fairlag.lab.schema import FORMAT

if TYPE_CHECKING:
    from fairlag.learn.evaluation import ClientScore

KEPT = 2
"""The number of checkpoints that a simulation keeps: anything lost can be computed again."""


class Score(NamedTuple):
    """The score of a version on test examples: all, those of a class, or those with the labels of a client group."""

    scope: str
    """The examples: "all", "class" or "group"."""
    name: str
    examples: int
    values: Mapping[str, float]
    """The metrics and the mean loss, by name."""
    whole: bool = False
    """Was it measured on the whole test set, not on the sample for the curve?"""


class Store:
    """Writes one run. The disk always holds the state of the last commit, whenever the process is killed.

    Rows are buffered until a commit writes them; everything after it is computed again after a resume.
    """

    def __init__(self, folder: Path, keep: int = KEPT, *, new: bool = False) -> None:
        """Opens a folder that holds a run. Use `Store.create` or `Store.open` instead."""
        self.folder = folder
        self._keep = keep
        self._row_files = rowfiles.RowFiles(folder)
        self._rows: list[Row] = []
        self.record: Record = self._rows.append
        """The server's callback. It is called for every event, so a row is only converted when it is committed."""
        self._scores: list[tuple[object, ...]] = []
        self._client_scores: dict[tuple[int, int], list[tuple[object, ...]]] = {}
        self.rows_took = 0.0
        """The seconds that the last commit spent on rows."""
        self._database = Database(folder, new=new)
        try:
            check_experiment(folder, self.meta)
            row = self._database.execute("SELECT * FROM checkpoints ORDER BY number DESC LIMIT 1").fetchone()
            newest = checkpoints.Checkpoint(0, 0, folder) if row is None else _checkpoint(folder, row)
            self._number = newest.number
            ended = self.meta["status"] == "finished"
            self._file = None if row is None or ended else newest.file
            if not ended:
                checkpoints.check_newest(folder, newest)
            if self._file is not None:
                checkpoints.check_whole(folder, newest)
            self._tidy(self._ended_at() if ended else newest.version)
            if self.meta["status"] == "failed":  # it is tried again
                with self._database.transaction():
                    self._database.note({"status": "running", "reason": None})
        except BaseException:
            self.close()
            raise

    @property
    def meta(self) -> dict[str, Any]:
        """What is known about the run as a whole."""
        return self._database.meta

    @property
    def _deployed(self) -> bool:
        """Does a real fleet make it?"""
        return "runtime" in self.meta

    @property
    def _remedy(self) -> str:
        """How to continue after the disk has failed."""
        return "run the app again" if self._deployed else _resume(self.folder)

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
        keep: int = KEPT,
    ) -> Self:
        """A new run in a folder that is empty or missing; `experiment` is the text of its resolved experiment."""
        written = experiment.encode()
        facts = {
            "format": FORMAT,
            "status": "running",
            "reason": None,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "fairlag": metadata.version("fairlag"),
            "groups": list(groups),
            "clients": len(group_of),
            "file_sha256": hashlib.sha256(written).hexdigest(),
            **meta,
        }
        names = np.asarray(groups, dtype=object)[group_of].tolist()
        clients = zip(range(len(names)), names, np.asarray(examples).tolist(), strict=True)
        with explained(folder, "a new run", "run it again"):
            folder.mkdir(parents=True, exist_ok=True)
            _check_empty(folder)
            check_own(folder)
            with closing(locked(folder)):
                _check_empty(folder)  # again, because another process may have been faster
                put(folder / EXPERIMENT, written)
                make_database(folder, facts, clients)
            return cls(folder, keep, new=True)

    @classmethod
    def open(cls, folder: Path, keep: int = KEPT) -> Self:
        """An existing run, to continue it."""
        check_is_run(folder)
        with explained(folder, "the run", "do the same again"):
            return cls(folder, keep)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Releases the run. Uncommitted rows are dropped, because they are newer than the checkpoint."""
        self._database.close()

    def evaluated(self, version: int, time: float, scores: Iterable[Score]) -> None:
        """Takes the scores of a version, one row per score and metric; the next commit writes them."""
        # Converted, because SQLite would store NumPy's numbers as raw bytes.
        self._scores += [
            (int(version), float(time), scope, str(name), metric, int(examples), rows.number(value), int(whole))
            for scope, name, examples, values, whole in scores
            for metric, value in values.items()
        ]

    def tested(self, version: int, steps: int, scores: "Iterable[ClientScore]") -> None:
        """A version was tested on clients' own data, after `steps` local steps; the next commit writes it."""
        self._client_scores[version, steps] = [
            (version, client, steps, metric, examples, rows.number(value))
            for client, examples, values in scores
            for metric, value in values.items()
        ]

    def commit(
        self,
        state: Mapping[str, NDArray[Any] | Stack],
        text: str,
        version: int,
        *,
        refusals: Mapping[str, int] | None = None,
        meta: Mapping[str, object] | None = None,
        clients: Iterable[tuple[int, str, int]] = (),
    ) -> None:
        """Writes the current state to disk: the state to continue from, and all rows up to it.

        `clients` are those with new facts: their groups, and how many examples they hold.
        """
        # Numbered, because a version may be committed twice, and a file that the database refers to must never change.
        number = self._number + 1
        written = np.array([task for row in self._rows for task in rows.tasks(row)], np.int64).tobytes()
        with explained(self.folder, "a checkpoint", self._remedy):
            content = self._content(number, state, text)
            file = checkpoints.named(self.folder, version, number, content).file
            put(file, content)
            with self._transaction() as database:
                began = monotonic()
                self._write(refusals, meta or {})
                self.rows_took = monotonic() - began
                for client in clients:
                    database.remove("clients", "client = ?", client[:1])
                    database.add("clients", [client])
                row = number, version, file.name, json.dumps(refusals or {}), written, database.presence
                database.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?)", row)
                self._thin_out()
        self._number, self._file = number, file
        self._tidy(version)

    def _content(self, number: int, state: Mapping[str, NDArray[Any] | Stack], text: str) -> bytes:
        """The bytes of a checkpoint; large rows are in files that it refers to."""
        big = {name: each for name, each in state.items() if isinstance(each, Stack) and each.nbytes >= rowfiles.BIG}
        arrays = {
            name: each.matrix if isinstance(each, Stack) else each for name, each in state.items() if name not in big
        }
        places, words = self._row_files.write(number, big) if big else ({}, {})
        return packed(arrays | places, {"text": text, **words})

    def checkpoint(self) -> tuple[dict[str, NDArray[Any] | Stack], str] | None:
        """The state and the text of the last commit; None before the first and after the end."""
        if self._file is None:
            return None
        tensors, words = unpacked(self._file)
        return self._row_files.read(tensors, words), words["text"]

    def finish(
        self,
        tensors: Mapping[str, NDArray[Any]],
        reason: str,
        *,
        refusals: Mapping[str, int] | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> None:
        """Ends the run: writes its rows and its final model; then there is nothing left to resume."""
        content = packed(tensors, {})
        facts = {"status": "finished", "reason": reason, "model_sha256": hashlib.sha256(content).hexdigest()}
        with explained(self.folder, "the final model", self._remedy):
            put(self.folder / MODEL, content)
            with self._transaction() as database:
                self._write(refusals, {**(meta or {}), **facts})
                if not self._deployed:  # a simulation can be made again, but a fleet may have to go back
                    database.execute("DELETE FROM checkpoints")
        self._file = None
        self._tidy(self._ended_at())
        if self._database.settle():
            with suppress(OSError):  # if it is missing or incomplete, reading only takes longer
                names = [DATABASE, MODEL, EXPERIMENT, *([NODES] if (self.folder / NODES).exists() else [])]
                lines = [f"{digest.of_file(self.folder / name)}  {name}\n" for name in names]
                write_anew(self.folder / SUMS, "".join(lines).encode())

    def _ended_at(self) -> int:
        """The last version that is on disk."""
        (version,) = self._database.execute("SELECT COALESCE(MAX(version), 0) FROM aggregations").fetchone()
        return int(version)

    def fail(self, reason: str) -> None:
        """Notes that the run failed; it may be tried again from its last checkpoint."""
        # Without its rows, because they are newer than the checkpoint.
        with explained(self.folder, "why the run failed", self._remedy), self._database.transaction():
            self._database.note({"status": "failed", "reason": reason})

    def _thin_out(self) -> None:
        """Deletes all checkpoints except those to keep; the next newer one then lists the rows in between."""
        rows = self._database.execute("SELECT number, tasks FROM checkpoints ORDER BY number").fetchall()
        wanted = checkpoints.kept([number for number, _ in rows], self._keep)
        between, oldest = b"", min(wanted)
        for number, tasks in rows:
            if number not in wanted:
                between += tasks
                self._database.execute("DELETE FROM checkpoints WHERE number = ?", (number,))
                continue
            if between or number == oldest:  # nothing goes back further than the oldest one
                tasks = b"" if number == oldest else between + tasks
                self._database.execute("UPDATE checkpoints SET tasks = ? WHERE number = ?", (tasks, number))
            between = b""

    def _tidy(self, version: int) -> None:
        """Removes partial files of killed processes, and unreferenced checkpoints up to a version."""
        known = {name for (name,) in self._database.execute("SELECT file FROM checkpoints")}
        left = [each.file for each in checkpoints.found(self.folder) if each.version <= version]
        for file in (*self.folder.glob(f"*{PARTIAL}*"), *(file for file in left if file.name not in known)):
            file.unlink(missing_ok=True)
        self._row_files.tidy(each.file for each in checkpoints.found(self.folder))

    @contextmanager
    def _transaction(self) -> Iterator[Database]:
        """Everything written inside reaches the disk together; then the buffers are empty."""
        with self._database.transaction():
            yield self._database
        self._rows.clear()
        self._scores.clear()
        self._client_scores.clear()

    def _write(self, refusals: Mapping[str, int] | None, meta: Mapping[str, object]) -> None:
        write = self._database.add
        for table, new in rows.by_table(self._rows, self._database.presence):
            write(table, new)
        write("evaluations", self._new_scores())
        for key, scores in self._client_scores.items():  # after a resume, the last version may be tested again
            known = "SELECT 1 FROM client_scores WHERE version = ? AND steps = ? LIMIT 1"
            if self._database.execute(known, key).fetchone() is None:
                write("client_scores", scores)
        if refusals is not None:
            self._database.refused(refusals)
        self._database.note(meta)

    def _new_scores(self) -> list[tuple[object, ...]]:
        """The scores to write: the last version may be evaluated twice, for the curve and because it is the last."""
        known = "SELECT 1 FROM evaluations WHERE version = ? AND scope = ? AND name = ? AND metric = ? AND whole = ?"
        fresh = {(row[0], *row[2:5], row[7]): row for row in self._scores}
        return [row for key, row in fresh.items() if self._database.execute(known, key).fetchone() is None]


def _checkpoint(folder: Path, row: tuple[Any, ...]) -> checkpoints.Checkpoint:
    number, version, name, *_ = row
    return checkpoints.Checkpoint(number, version, folder / Path(name).name)


def _check_empty(folder: Path) -> None:
    """Refuses a folder in use."""
    if is_begun(folder):
        raise InputError(f"{str(folder)!r} already holds a run: {_resume(folder)}, or choose another folder")
    if other := in_use(folder):
        raise InputError(f"{str(folder)!r} already holds {other!r}: a run needs an empty folder")


def _resume(folder: Path) -> str:
    return f"`fairlag resume {folder}` continues from its last checkpoint"
