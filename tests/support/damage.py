"""Many ways to damage a run."""

import json
import sqlite3
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.support.edits import edited


def spoilt(folder: Path, how: str) -> None:
    """Damages a run."""
    database, experiment = folder / "run.sqlite", folder / "experiment.json"
    if how == "no database":
        database.write_bytes(b"x" * 5000)
    elif how == "pages":
        content = bytearray(database.read_bytes())
        content[4096 * 2 :] = b"\xaa" * (len(content) - 4096 * 2)
        database.write_bytes(content)
    elif how == "no file":
        experiment.unlink()
    else:
        experiment.write_text(how)


BOMB = "[" * 100_000
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"


def said(*statements: str) -> Callable[[Path], None]:
    """Changes the database of a run."""

    def damage(folder: Path) -> None:
        # The maker of a run can also make its digests fit, unless something has no digest.
        with suppress(sqlite3.Error, struct.error, TypeError, IndexError), edited(folder) as database:
            for statement in statements:
                database.execute(statement)

    return damage


def written(text: str) -> Callable[[Path], None]:
    """Overwrites the experiment of a run."""

    def damage(folder: Path) -> None:
        (folder / "experiment.json").write_text(text)
        said()(folder)

    return damage


def without(*keys: str) -> Callable[[Path], None]:
    """Leaves out what an experiment must have."""

    def damage(folder: Path) -> None:
        tables = json.loads((folder / "experiment.json").read_text())
        for key in keys:
            del tables["experiment"]["clients"][0][key]
        (folder / "experiment.json").write_text(json.dumps(tables))
        said()(folder)

    return damage


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a bomb in meta": said(f"UPDATE meta SET value = '{BOMB}' WHERE key = 'groups'"),
    "a blob in meta": said("UPDATE meta SET value = x'ff00' WHERE key = 'label'"),
    "no JSON in meta": said("UPDATE meta SET value = '{' WHERE key = 'label'"),
    "half a character in meta": said("UPDATE meta SET value = '\"\\ud800\"' WHERE key = 'label'"),
    "no groups": said("DELETE FROM meta WHERE key = 'groups'"),
    "an odd status": said("UPDATE meta SET value = '\"odd\"' WHERE key = 'status'"),
    "a seed that is text": said("UPDATE meta SET value = '\"x\"' WHERE key = 'seed'"),
    "a time that is text": said("UPDATE aggregations SET time = 'soon'"),
    "a staleness that is text": said("UPDATE tasks SET staleness = 'late' WHERE task = 3"),
    "a strange group": said("UPDATE clients SET grp = 'nobody'"),
    "no tasks": said("DROP TABLE tasks"),
    "an endless view": said("DROP TABLE tasks", f"CREATE VIEW tasks AS {ENDLESS} SELECT x AS client FROM n"),
    "a bomb as experiment": written(BOMB),
    "a list as experiment": written('{"experiment": [1]}'),
    "a client without a group": without("group"),
}
