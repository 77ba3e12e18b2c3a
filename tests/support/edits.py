"""Changes to a run without fairlag, and without damage: its digests are made to fit."""

import json
import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fairlag.lab import digest
from fairlag.lab.folder import DATABASE, EXPERIMENT
from fairlag.lab.run import Run
from fairlag.lab.schema import LAYOUT


def changed(run: Run, *statements: str) -> Run:
    """The same run with a changed database."""
    with edited(run.folder) as database:
        for statement in statements:
            database.execute(statement)
    return Run(run.folder)


def deployed(run: Run) -> Run:
    """The same run as if a real fleet had made it."""
    return changed(run, "REPLACE INTO meta VALUES ('runtime', '\"flower\"')")


@contextmanager
def edited(folder: Path, layout: digest.Layout = LAYOUT) -> Iterator[sqlite3.Connection]:
    """The database of a run with these tables, to be changed; `experiment.json` may have been changed before."""
    with closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as database:
        yield database
        text = json.dumps(digest.of_file(folder / EXPERIMENT))
        database.execute("REPLACE INTO meta VALUES ('file_sha256', ?)", (text,))
        database.execute("DELETE FROM digests")
        sums = digest.Sums(layout)
        for table in set(digest.BLOCKS).intersection(layout.tables):
            deque(sums.noted(table, database.execute(f"SELECT * FROM {table}")), maxlen=0)
        digest.seal(database, layout, sums)
