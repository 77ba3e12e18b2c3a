"""A run directory: its files, safe reading of its database, and detecting and reporting damage."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fairlag.errors import InputError, StoreError, UnreadableError
from fairlag.files import PARTIAL
from fairlag.lab import digest
from fairlag.lab.schema import LAYOUTS
from fairlag.lab.scores import are_metrics
from fairlag.limits import json_of, shown

DATABASE = "run.sqlite"
MODEL = "model.safetensors"
EXPERIMENT = "experiment.json"
PLAN = "plan.json"
NODES = "nodes.jsonl"
"""In a deployment: the log of decisions about nodes."""
SUMS = "SHA256SUMS"
"""In a finished run: the digests of its files, in the format of `sha256sum -c`."""
LOCK = "lock"

_PATIENCE = 30.0
"""Seconds to wait for another process that briefly locks the database."""

_STEPS, _STEPS_PER_BYTE, _LOOK = 50_000_000, 20, 10_000
"""The most steps of SQLite's virtual machine for reading: fairlag's own queries take half a step per byte."""

_LONGEST = 64_000_000
"""The most bytes of a text that is read."""

_COMPUTED = """
SELECT type, name FROM sqlite_master WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%'
UNION ALL
SELECT 'column', columns.name FROM sqlite_master AS tables, pragma_table_xinfo(tables.name) AS columns WHERE hidden > 1
"""
"""Views, triggers, virtual tables, and generated columns."""

STATUSES = ("running", "finished", "failed")
"""The statuses in a run's own record."""


def is_run(folder: Path) -> bool:
    """Does the folder hold a run?"""
    return (folder / DATABASE).is_file()


def in_use(folder: Path) -> str | None:
    """The name of a file in the folder that prevents a new run; None if there is none.

    Files of a process that was killed while it created a run, or a plan of runs, do not count.
    """
    if not folder.is_dir():
        return folder.name if folder.exists() else None
    unfinished = () if is_run(folder) else (LOCK, EXPERIMENT)
    names = (file.name for file in folder.iterdir())
    return min((name for name in names if name not in unfinished and PARTIAL not in name), default=None)


def is_begun(folder: Path) -> bool:
    """Does the folder hold a run, or a plan of runs, that can be resumed?"""
    return is_run(folder) or (folder / PLAN).is_file()


def check_is_run(folder: Path) -> None:
    """Refuses a folder that does not hold a run."""
    if not is_run(folder):
        raise UnreadableError.of(folder, f"there is no run in {str(folder)!r}: it has no file {DATABASE}")


def connected(folder: Path, mode: str) -> sqlite3.Connection:
    """The database of a run: "ro" to read, "rw" to write."""
    check_is_run(folder)
    address = f"{(folder / DATABASE).resolve().as_uri()}?mode={mode}"
    return sqlite3.connect(address, uri=True, timeout=_PATIENCE, isolation_level=None)


@contextmanager
def reading(folder: Path, *, check: bool = True) -> Iterator[sqlite3.Connection]:
    """The database of a run as it is now, even while another process writes it; refuses a damaged one.

    The database may come from anyone: no code in it is run, and reading takes bounded time. A value that no run has,
    such as a text instead of a number, makes it unreadable.
    """
    try:
        with closing(connected(folder, "ro")) as database:
            _bound(database, folder)
            database.execute("BEGIN")
            _check_plain(database)
            if check:
                check_rows(folder, database)
            yield database
    except sqlite3.OperationalError as error:
        why = "reading it takes too long for its size" if str(error) == "interrupted" else str(error)
        raise unreadable(folder, why) from None
    except (sqlite3.Error, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise (
            _no_run(folder, error) if "not a database" in str(error) else unreadable(folder, damage(error))
        ) from None


def damage(error: Exception) -> str:
    """The description of an error that a record with a wrong value caused."""
    return str(error) if isinstance(error, sqlite3.Error) else f"it holds a value that no run has ({shown(error)})"


def _bound(database: sqlite3.Connection, folder: Path) -> None:
    """Bounds the time of reading by the size of the database, and forbids writing and calling functions."""
    files = (folder / DATABASE, folder / f"{DATABASE}-wal")
    size = sum(file.stat().st_size for file in files if file.exists())
    left = iter(range((_STEPS + _STEPS_PER_BYTE * size) // _LOOK))
    database.set_progress_handler(lambda: next(left, None) is None, _LOOK)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
    database.execute("PRAGMA query_only = ON")
    database.execute("PRAGMA trusted_schema = OFF")


def _check_plain(database: sqlite3.Connection) -> None:
    """Refuses tables that are computed on reading."""
    found = database.execute(_COMPUTED).fetchone()
    if found is not None:
        raise sqlite3.DatabaseError(f"its {found[0]} {shown(found[1])} is computed, but a run has only plain tables")


_seen: dict[Path, tuple[tuple[int, ...], digest.Digests | None]] = {}
"""What this process has checked: the state of a run's database file at that time, and the digests of its rows."""


def check_rows(folder: Path, database: sqlite3.Connection) -> None:
    """Refuses a database whose rows are not those that were written; each row is checked once.

    If `SUMS` confirms the whole file, as in every finished run, its rows are not checked one by one.
    """
    layout = layout_of(database, folder)
    place = (folder / DATABASE).resolve()
    found, log = place.stat(), place.with_name(f"{DATABASE}-wal")
    stamp = found.st_ino, found.st_size, found.st_mtime_ns
    is_plain = not log.exists() or not log.stat().st_size
    before, seen = _seen.get(place, ((), None))
    if is_plain and (before == stamp or _is_confirmed(folder, place)):
        _seen[place] = stamp, seen
        return
    try:
        digests = digest.check(database, layout, None if before[:1] != stamp[:1] else seen)
    except digest.Damage as damage:
        raise damaged(folder, f"in its {DATABASE}, {damage}") from None
    _seen[place] = stamp, digests


def _is_confirmed(folder: Path, database: Path) -> bool:
    """Does `SUMS` confirm the whole database file?

    Without it, the run may be being written. Then the file is not even opened: closing it would end the locks that
    SQLite holds for this process, and the writer could take the rows away from a reader.
    """
    wanted = sums_of(folder).get(DATABASE)
    return wanted is not None and wanted == digest.of_file(database)


def sums_of(folder: Path) -> dict[str, str]:
    """The digests of a finished run's files, by name; empty if they cannot be read."""
    try:
        lines = (folder / SUMS).read_text("ascii").splitlines()
    except (OSError, ValueError):
        return {}
    return {name: value for value, _, name in (line.partition("  ") for line in lines)}


def damaged(folder: Path, what: str) -> UnreadableError:
    """The error for a run in which something is not what was written."""
    return UnreadableError.of(folder, f"the run in {str(folder)!r} is damaged: {what}; restore it from a backup")


def unreadable(folder: Path, why: str) -> UnreadableError:
    """The error for a run that exists but cannot be read."""
    return UnreadableError.of(folder, f"the run in {str(folder)!r} cannot be read: {why}")


def _no_run(folder: Path, error: Exception) -> UnreadableError:
    sentence = f"there is no run in {str(folder)!r}: its {DATABASE} is something else ({error})"
    return UnreadableError.of(folder, sentence)


def meta_of(database: sqlite3.Connection, folder: Path) -> dict[str, Any]:
    """The facts about a run as a whole; refuses a run that this version of fairlag cannot read."""
    try:
        meta = {str(key): json_of(value) for key, value in database.execute("SELECT key, value FROM meta")}
        json.dumps(meta, ensure_ascii=False).encode()  # refuses halves of characters, which could not be written again
    except sqlite3.DatabaseError as error:
        if digest.disk_fails(error):
            raise
        raise _no_run(folder, error) from None
    except (TypeError, ValueError) as error:
        raise unreadable(folder, f"its table meta is damaged ({error})") from None
    if meta.get("format") not in LAYOUTS:
        known = f"{min(LAYOUTS)} to {max(LAYOUTS)}"
        sentence = (
            f"the run in {str(folder)!r} has format {meta.get('format')}, but this fairlag reads formats {known}: "
            f"read it with the version that made it, a fairlag {meta.get('fairlag')}, or run its experiment again"
        )
        raise UnreadableError.of(folder, sentence)
    if wrong := next((key for key, fits in _FACTS.items() if not fits(meta.get(key))), None):
        raise unreadable(folder, f"its {wrong} is {shown(meta.get(wrong))}")
    return meta


def layout_of(database: sqlite3.Connection, folder: Path) -> digest.Layout:
    """The tables that it must have; refuses a run that this fairlag cannot read, before reading anything else."""
    found = None
    with suppress(sqlite3.DatabaseError):
        found = database.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    for number, layout in LAYOUTS.items():
        if found == (str(number),):
            return layout
    return LAYOUTS[meta_of(database, folder)["format"]]


def check_experiment(folder: Path, meta: Mapping[str, Any]) -> None:
    """Refuses a run whose resolved experiment is not the one that it was made from."""
    _check_bytes(folder, EXPERIMENT, meta.get("file_sha256"))


def check_model(folder: Path, meta: Mapping[str, Any]) -> None:
    """Refuses a finished run whose model is missing or damaged."""
    _check_bytes(folder, MODEL, meta.get("model_sha256"))


def _check_bytes(folder: Path, name: str, wanted: object) -> None:
    try:
        found = digest.of_file(folder / name)
    except OSError as error:
        raise damaged(folder, f"its {name} is missing ({error.strerror})") from None
    if found != wanted:
        raise damaged(folder, f"its {name} is not what was written")


def check_own(folder: Path) -> None:
    """Refuses to write through a symbolic link in place of one of the run's files."""
    for name in (LOCK, *(DATABASE + end for end in ("", "-wal", "-shm", "-journal", PARTIAL))):
        if (folder / name).is_symlink():
            raise UnreadableError.of(
                folder, f"{str(folder / name)!r} is a symbolic link: a run is only written to regular files"
            )


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_count(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


def _is_lateness(value: object) -> bool:
    names = ("mean", "most", "share")
    return isinstance(value, dict) and all(isinstance(value.get(name), int | float) for name in names)


def _are_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


_FACTS: dict[str, Callable[[Any], bool]] = {
    "status": lambda value: value in STATUSES,
    "groups": lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
    **dict.fromkeys(("experiment", "label", "reason"), _is_text),
    **dict.fromkeys(("seed", "aggregations", "clients_with_tests"), _is_count),
    "until_time": lambda value: value is None or isinstance(value, int | float),
    "lateness": lambda value: value is None or _is_lateness(value),
    "metrics": lambda value: value is None or are_metrics(value),
    "environment": lambda value: value is None or _are_texts(value),
}
"""Checks of the values in the table meta, by key."""


@contextmanager
def explained(folder: Path, what: str, remedy: str) -> Iterator[None]:
    """Turns an error of the disk into one sentence: what could not be written, where, and what to do."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        full = getattr(error, "errno", None) in (ENOSPC, EDQUOT) or "disk is full" in str(error)
        cause = "the disk is full; make room" if full else f"{error}; fix that"
        raise StoreError(f"cannot write {what} to {str(folder)!r}: {cause}, then {remedy}") from error


def packed(tensors: Mapping[str, NDArray[Any]], words: dict[str, str]) -> bytes:
    """Named arrays and words as the bytes of a safetensors file.

    >>> len(packed({"weight": np.zeros(2, np.float32)}, {})) % 8
    0
    """
    arrays = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    return save(arrays, words if arrays or words else None)  # of nothing and no words, safetensors makes no valid file


def words_of(file: Path) -> dict[str, str]:
    """The words of a safetensors file, without reading its arrays."""
    try:
        with safe_open(file, framework="numpy") as content:
            return content.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise InputError(f"{str(file)!r} cannot be read: {error}") from None


def unpacked(file: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The named arrays and words of a safetensors file."""
    try:
        with safe_open(file, framework="numpy") as content:
            return {name: content.get_tensor(name) for name in content.keys()}, content.metadata() or {}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise InputError(f"{str(file)!r} cannot be read: {error}") from None
