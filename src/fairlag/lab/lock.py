"""The lock of a run directory: only one process writes it at a time."""

import sqlite3
from contextlib import closing
from pathlib import Path

from fairlag.errors import InputError
from fairlag.lab.folder import LOCK


def locked(folder: Path) -> sqlite3.Connection:
    """A lock that allows writing a run, until it is closed or the process ends in any way.

    It is the lock of an empty database, so it works the same on every system, and forked children do not keep it.
    """
    lock = sqlite3.connect(folder / LOCK, timeout=1, isolation_level=None)
    try:
        lock.execute("PRAGMA journal_mode = OFF")  # nothing is ever written, so no other file is needed
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.DatabaseError as error:
        lock.close()
        if "locked" in str(error):
            raise _taken(folder) from None
        if isinstance(error, sqlite3.OperationalError):
            raise
        raise InputError(f"{str(folder / LOCK)!r} is not a lock of fairlag ({error}): remove it") from None
    return lock


def is_locked(folder: Path) -> bool:
    """Is a process writing the run now?"""
    if not (folder / LOCK).is_file():
        return False
    with closing(sqlite3.connect(f"{(folder / LOCK).resolve().as_uri()}?mode=ro", uri=True, timeout=0)) as lock:
        try:
            lock.execute("SELECT name FROM sqlite_master").fetchone()
        except sqlite3.DatabaseError as error:
            return "locked" in str(error)
    return False


def check_free(folder: Path) -> None:
    """Refuses a run that a process is writing now."""
    if is_locked(folder):
        raise _taken(folder)


def _taken(folder: Path) -> InputError:
    return InputError(f"the run in {str(folder)!r} is being written by another process")
