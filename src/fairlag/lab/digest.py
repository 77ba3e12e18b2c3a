"""Computes and checks the digests of a run directory's files and of its database's rows."""

import hashlib
import sqlite3
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

WHOLE = ("meta", "refusals", "checkpoints")
"""Small tables: one digest for all of their rows."""
BLOCKS = ("clients", "tasks", "aggregations", "parts", "units", "presence", "evaluations", "client_scores")
"""Tables that grow: one digest per 4096 numbers of their first column."""
Digests = dict[tuple[str, int], tuple[int, bytes]]
"""By table and block: the number of rows, and the sum of their digests."""

_SHIFT = 12
_BYTES = 16
_ROOT = ""
"""The name of the digest of all other digests: it detects blocks that are intact but from different times."""
_FEW = 1000
_OF_THE_DISK = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR}
"""SQLite's codes of errors that may be over when there is room again; their high bits say more."""
_NUMBERS = {"INTEGER": "q", "REAL": "d"}


class Damage(Exception):
    """Something in a run directory is not what was written; the message says what."""


def of_file(file: Path) -> str:
    """The SHA-256 digest of a file.

    >>> import os
    >>> of_file(Path(os.devnull))[:12]
    'e3b0c44298fc'
    """
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def disk_fails(error: sqlite3.Error) -> bool:
    """Is it an error of the disk, such as a full one, and not of what is stored on it?"""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_THE_DISK


Row = tuple[Any, ...]


class Layout:
    """The columns of a database's tables, and the encoders of their rows as bytes, for writing and for reading."""

    def __init__(self, schema: str) -> None:
        with closing(sqlite3.connect(":memory:")) as database:
            database.executescript(schema)
            self.definitions = {row[0] for row in database.execute("SELECT sql FROM sqlite_master")}
            found = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
            self.tables = [table for table in (*WHOLE, *BLOCKS) if table in found]
            """The tables that have digests."""
            self._columns = {
                table: [(row[1], row[2]) for row in database.execute(f"PRAGMA table_info({table})")]
                for table in self.tables
            }
        self.encoders = {table: _encoder(table, [kind for _, kind in self._columns[table]]) for table in self._columns}

    def key(self, table: str) -> str:
        """The first column, which determines the block of a row."""
        return str(self._columns[table][0][0])

    def width(self, table: str) -> int:
        """The number of columns of a table."""
        return len(self._columns[table])


def _encoder(table: str, kinds: Sequence[str]) -> Callable[[Row], bytes]:
    """A fast encoder of rows, as it is called for every update: numbers as they are in memory, then texts."""
    numeric = [place for place, kind in enumerate(kinds) if kind in _NUMBERS]
    others = [place for place in range(len(kinds)) if place not in numeric]
    pack = struct.Struct("<" + "".join(_NUMBERS[kinds[place]] for place in numeric)).pack
    pick, words = (itemgetter(*places) if places else _none for places in (numeric, others))
    single = len(numeric) == 1

    def text(words: object) -> bytes:
        return f"{table}{words!r}".encode()

    if table in BLOCKS:  # the same few texts over and over
        text = lru_cache(_FEW)(text)

    def encode(row: Row) -> bytes:
        numbers = (pick(row),) if single else pick(row)
        try:
            return pack(*numbers) + text(words(row))
        except struct.error:
            gaps = [place for place, number in enumerate(numbers) if number is None]
            if not gaps:
                raise
            filled = (0 if number is None else number for number in numbers)
            return pack(*filled) + text(words(row)) + f"{gaps}".encode()

    return encode


def _none(row: Row) -> Row:
    return ()


class Sums:
    """Sums of the digests of rows, by table and block: rows may be added and removed in any order."""

    def __init__(self, layout: Layout) -> None:
        self._encoders = layout.encoders
        self._sums: dict[tuple[str, int], list[int]] = {}

    def noted(self, table: str, rows: Iterable[Row], sign: int = 1) -> Iterator[Row]:
        """Passes on rows that are being written, or removed if the sign is −1, and adds their digests."""
        encode, digest, number = self._encoders[table], hashlib.blake2b, int.from_bytes
        shift = _SHIFT if table in BLOCKS else None
        last, entry = -1, [0, 0]
        for row in rows:
            block = 0 if shift is None else row[0] >> shift
            if block != last:
                last, entry = block, self._sums.setdefault((table, block), [0, 0])
            entry[0] += sign
            entry[1] += sign * number(digest(encode(row), digest_size=_BYTES).digest(), "little")
            yield row

    def onto(self, known: Digests) -> Digests:
        """The new digests of the blocks that changed, given the digests before."""
        changed: Digests = {}
        for place, (rows, total) in self._sums.items():
            before, digest = known.get(place, (0, bytes(_BYTES)))
            now = (int.from_bytes(digest, "little") + total) % 256**_BYTES
            changed[place] = before + rows, now.to_bytes(_BYTES, "little")
        return changed


def of_rows(layout: Layout, table: str, rows: Iterable[Row]) -> Digests:
    """The digests of the blocks of these rows."""
    sums = Sums(layout)
    deque(sums.noted(table, rows), maxlen=0)
    return sums.onto({})


def read(database: sqlite3.Connection) -> Digests:
    """The digests that are stored in a database."""
    found = database.execute("SELECT name, block, rows, digest FROM digests WHERE name <> ?", (_ROOT,))
    return {(name, block): (rows, digest) for name, block, rows, digest in found}


def seal(database: sqlite3.Connection, layout: Layout, sums: Sums) -> None:
    """Ends a transaction: writes the digests of the rows that it changed."""
    changed = sums.onto(read(database))
    for table in WHOLE:
        changed |= of_rows(layout, table, database.execute(f"SELECT * FROM {table}")) or {
            (table, 0): (0, bytes(_BYTES))
        }
    rows = [(*place, *digest) for place, digest in changed.items()]
    database.executemany("REPLACE INTO digests VALUES (?, ?, ?, ?)", rows)
    database.execute("DELETE FROM digests WHERE rows = 0")
    database.execute("REPLACE INTO digests VALUES (?, 0, 1, ?)", (_ROOT, _root(read(database))))


def check(database: sqlite3.Connection, layout: Layout, seen: Digests | None = None) -> Digests:
    """Refuses a database whose rows are not those that were written; returns its digests.

    Blocks of rows that were `seen` with the same digest before are not checked again.
    """
    try:
        digests = read(database)
        root = database.execute("SELECT digest FROM digests WHERE name = ?", (_ROOT,)).fetchone()
        if root is None or root[0] != _root(digests):
            raise Damage("the digests of its rows are inconsistent")
        if seen is None:
            _check_pages(database, layout)
            found: Digests = {}
            for table in layout.tables:
                found |= of_rows(layout, table, database.execute(f"SELECT * FROM {table}"))
        else:
            places = [place for place, digest in digests.items() if seen.get(place) != digest]
            found = {**digests, **_found(database, layout, places)}
    except (struct.error, TypeError, ValueError, OverflowError) as error:  # a text instead of a number
        raise Damage(f"a row holds a value that was never written ({error})") from None
    except sqlite3.DatabaseError as error:
        if "locked" in str(error) or disk_fails(error):
            raise
        raise Damage(f"SQLite finds {str(error)!r}") from None
    for place in sorted(found.keys() | digests.keys(), key=repr):
        if found.get(place) != digests.get(place):
            raise Damage(f"{_named(*place)} are not those that were written")
    return digests


def _check_pages(database: sqlite3.Connection, layout: Layout) -> None:
    """Finds damage that rows alone do not show: tables with different definitions, and keys in the wrong order."""
    if {row[0] for row in database.execute("SELECT sql FROM sqlite_master")} != layout.definitions:
        raise Damage("its tables have different definitions")
    (said,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if said.startswith("***"):  # its reports about single rows are sometimes wrong, and rows have digests
        raise Damage(f"SQLite finds {' '.join(said.split())!r}")


def _found(database: sqlite3.Connection, layout: Layout, places: Iterable[tuple[str, int]]) -> Digests:
    """The digests of some blocks, from their rows."""
    found: Digests = {}
    for table, block in places:
        if table in WHOLE:
            rows = database.execute(f"SELECT * FROM {table}")
        elif table in layout.tables:
            ends = block << _SHIFT, (block + 1 << _SHIFT) - 1
            rows = database.execute(f"SELECT * FROM {table} WHERE {layout.key(table)} BETWEEN ? AND ?", ends)
        else:
            raise Damage(f"it has a digest of {table!r}, which is not one of its tables")
        found |= of_rows(layout, table, rows) or {(table, block): (0, b"")}
    return found


def _named(table: str, block: int) -> str:
    if table in WHOLE:
        return f"the rows of the table {table}"
    return f"the rows {block << _SHIFT} to {(block + 1 << _SHIFT) - 1} of the table {table}"


def _root(digests: Digests) -> bytes:
    text = repr(sorted((*place, *digest) for place, digest in digests.items()))
    return hashlib.blake2b(text.encode(), digest_size=_BYTES).digest()
