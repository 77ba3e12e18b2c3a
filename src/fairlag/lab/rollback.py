"""Takes a run back to an earlier version: lists the possible versions, and removes the later rows."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairlag.errors import InputError, UnreadableError
from fairlag.lab import checkpoints
from fairlag.lab.database import Database
from fairlag.lab.folder import MODEL, SUMS, check_is_run, explained, reading
from fairlag.privacy.noise import SYSTEM

ENDS = ("virtual_time", "counts", "model_sha256")
"""The facts that only a finished run has."""


class Point(NamedTuple):
    """A version that a run can continue from."""

    number: int
    version: int
    file: Path
    known: bool
    """Does the database have its rows?"""

    @property
    def written(self) -> str:
        """When it was written, on this machine's clock."""
        return datetime.fromtimestamp(self.file.stat().st_mtime).isoformat(" ", "seconds")


def points(folder: Path) -> list[Point]:
    """The versions that a run can continue from, the newest first: one per intact checkpoint."""
    check_is_run(folder)
    with reading(folder) as database:
        known = {name for (name,) in database.execute("SELECT file FROM checkpoints")}
        (newest,) = database.execute("SELECT COALESCE(MAX(version), 0) FROM aggregations").fetchone()
    there = (each for each in checkpoints.found(folder) if each.file.name in known or each.version > newest)
    return [Point(*each, each.file.name in known) for each in there if each.damage is None]


def chosen(folder: Path, version: int) -> Point:
    """The newest point with this version."""
    there = points(folder)
    for point in there:
        if point.version == version:
            return point
    versions = ", ".join(str(each) for each in dict.fromkeys(point.version for point in there))
    raise UnreadableError.of(
        folder,
        f"the run in {str(folder)!r} cannot go back to version {version}: "
        + (f"there are checkpoints of {versions}" if there else "it has no checkpoint"),
    )


def rollback(folder: Path, version: int) -> Point:
    """Makes this version the newest: the server's state becomes that of its checkpoint, and later rows are removed.

    If the version is newer than the database, for example because its WAL file was lost, the rows in between are
    missing, and `meta` says so. Refused if it would forget versions that were released with noise.
    """
    point = chosen(folder, version)
    remedy = f"`fairlag rollback {folder} --version {version}` tries it again"
    with explained(folder, "the run", remedy), closing(Database(folder)) as database:
        newest = int(database.execute("SELECT COALESCE(MAX(version), 0) FROM aggregations").fetchone()[0])
        released = max(newest, *(each.version for each in checkpoints.found(folder)))
        if released > version and database.meta.get("noise_source") == SYSTEM:
            raise InputError(
                f"versions {version + 1} to {released} of the run in {str(folder)!r} were released, and clients paid "
                "for them with their privacy: going back would forget that, and their ε would be too small"
            )
        (folder / SUMS).unlink(missing_ok=True)
        gaps = [gap for gap in database.meta.get("missing", []) if gap[0] <= version]
        with database.transaction():
            if point.known:
                _forget(database, point)
            else:
                row = point.number, point.version, point.file.name, "{}", b"", database.presence
                database.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?)", row)
                gaps.append([newest + 1, version])
            database.execute(f"DELETE FROM meta WHERE key IN ({', '.join('?' * len(ENDS))})", ENDS)
            database.note({"status": "running", "reason": None, "missing": gaps})
        newer = [each.file for each in checkpoints.found(folder) if each.number > point.number]
        for file in (folder / MODEL, *newer):
            file.unlink(missing_ok=True)
    return point


def _forget(database: Database, point: Point) -> None:
    """Removes the rows that are newer than a checkpoint."""
    later = database.execute("SELECT tasks FROM checkpoints WHERE number > ?", (point.number,)).fetchall()
    known = database.execute("SELECT refusals, presence FROM checkpoints WHERE number = ?", (point.number,))
    refusals, presence = known.fetchone()
    for task in _numbers(later):
        database.remove("tasks", "task = ?", (task,))
    for table in ("aggregations", "parts", "units", "evaluations", "client_scores"):
        database.remove(table, "version > ?", (point.version,))
    database.remove("presence", "number > ?", (presence,))
    database.refused(json.loads(refusals))
    database.execute("DELETE FROM checkpoints WHERE number > ?", (point.number,))


def _numbers(blobs: list[tuple[bytes]]) -> Iterator[int]:
    for (blob,) in blobs:
        yield from np.frombuffer(blob, np.int64).tolist()
