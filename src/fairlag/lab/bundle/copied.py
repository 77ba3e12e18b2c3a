"""Copies the record of a run into a bundle: its database and experiment, without what only its machine knows."""

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from fairlag.lab import digest
from fairlag.lab.database import meta_rows
from fairlag.lab.folder import DATABASE, EXPERIMENT, layout_of, meta_of, reading
from fairlag.lab.run import Run


def copied(run: Run, tables: Mapping[str, Any], target: Path, hidden: Mapping[str, str]) -> Run:
    """The copy of a run in an empty folder; its bytes follow from the rows, not from when they were written.

    `tables` are those of its experiment, and `hidden` are texts to replace in the reason why it ended.
    """
    target.mkdir(parents=True)
    text = json.dumps({"experiment": tables, "folder": None}, indent=2).encode()
    (target / EXPERIMENT).write_bytes(text)
    with reading(run.folder) as source, closing(sqlite3.connect(target / DATABASE, isolation_level=None)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
        meta = meta_of(copy, target)
        changes = {"file_sha256": hashlib.sha256(text).hexdigest(), "reason": replaced(meta["reason"], hidden)}
        copy.execute("BEGIN")
        copy.executemany("REPLACE INTO meta VALUES (?, ?)", meta_rows(changes))
        copy.execute("DELETE FROM checkpoints")
        layout = layout_of(copy, target)
        digest.seal(copy, layout, digest.Sums(layout))
        copy.execute("COMMIT")
        copy.execute("VACUUM")
    return Run(target)


def replaced(text: str | None, hidden: Mapping[str, str]) -> str | None:
    """The text without the paths of this machine."""
    for path, name in sorted(hidden.items(), key=lambda each: -len(each[0])):
        text = text.replace(path, name) if text else text
    return text
