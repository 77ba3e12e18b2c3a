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
from fairlag.lab.schema import LAYOUT, LAYOUTS


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


def of_format_4(folder: Path) -> None:
    """Makes a run one of the format that had no metric but accuracy."""
    with edited(folder, LAYOUTS[4]) as database:
        scores: dict[tuple[object, ...], dict[str, float]] = {}
        for *key, metric, examples, value, whole in database.execute("SELECT * FROM evaluations").fetchall():
            scores.setdefault((*key, examples, whole), {})[metric] = value
        database.execute("DROP TABLE client_scores")
        database.execute("DROP TABLE evaluations")
        for sql in LAYOUTS[4].definitions - LAYOUT.definitions:
            database.execute(sql)
        for (*key, examples, whole), found in scores.items():
            correct = round((found["accuracy"] or 0) * int(str(examples)))
            row = (*key, examples, correct, found["loss"], whole)
            database.execute("INSERT INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        database.execute("DELETE FROM meta WHERE key = 'metrics'")
        database.execute("UPDATE meta SET value = '4' WHERE key = 'format'")
