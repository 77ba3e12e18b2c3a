"""Used seeds on disk: kept, locked, and refused if they are missing or damaged."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fairlag.errors import InputError, RefusedError
from fairlag.privacy.secure.server import mean_of
from fairlag.privacy.secure.used import UsedOnDisk, mark
from tests.support.secure import EVEN, LEAST, RUN, keeper, updates


@pytest.fixture
def file(tmp_path: Path) -> Path:
    UsedOnDisk.create(tmp_path / "keeper.used")
    return tmp_path / "keeper.used"


def test_marks_are_kept(file: Path) -> None:
    one, two = mark(b"one"), mark(b"two")
    for count in (0, 1):
        with closing(UsedOnDisk(file)) as used:
            assert len(used) == count
            assert used.known([one, two]) == ({one} if count else set())
            if not count:
                used.add([one])


def test_a_seed_can_not_be_found_in_the_file(file: Path) -> None:
    with closing(UsedOnDisk(file)) as used:
        used.add([mark(b"s" * 32)])
    assert b"s" * 32 not in file.read_bytes()


def test_only_one_keeper_may_open_it(file: Path) -> None:
    with closing(UsedOnDisk(file)), pytest.raises(InputError, match=r"^another keeper uses "):
        UsedOnDisk(file)
    UsedOnDisk(file).close()


def test_a_missing_file_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is missing: it says which seeds were used"):
        UsedOnDisk(tmp_path / "keeper.used")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [0, 50, 4096, 6000])
def test_a_file_that_was_cut_is_refused(file: Path, size: int) -> None:
    with closing(UsedOnDisk(file)) as used:
        used.add([mark(bytes([number])) for number in range(250)])
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(InputError, match="does not hold the used seeds of a keeper, or is damaged: "):
        UsedOnDisk(file)


def test_another_database_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.used")) as database:
        database.execute("CREATE TABLE used (mark BLOB PRIMARY KEY) WITHOUT ROWID")
    with pytest.raises(InputError, match="it was made by something else"):
        UsedOnDisk(tmp_path / "other.used")


def test_a_transaction_that_was_cut_off_is_rolled_back(file: Path) -> None:
    """What a crash leaves behind: a database with half a transaction, and the journal that undoes it."""
    one, two = mark(b"one"), mark(b"two")
    with closing(UsedOnDisk(file)) as used:
        used.add([one])
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA cache_size = 1")  # writes to the file before the end of the transaction
        database.execute("BEGIN")
        database.executemany("INSERT INTO used VALUES (?)", [(mark(bytes([place, 0])),) for place in range(256)])
        journal = file.with_name(f"{file.name}-journal")
        left = file.read_bytes(), journal.read_bytes()
        database.execute("ROLLBACK")
    file.write_bytes(left[0])
    journal.write_bytes(left[1])
    with closing(UsedOnDisk(file)) as used:
        assert len(used) == 1
        assert used.known([one, two]) == {one}


def test_a_keeper_that_cannot_write_refuses(file: Path) -> None:
    used = UsedOnDisk(file)
    used.close()
    with pytest.raises(RefusedError, match="the keeper cannot write its used seeds: Cannot operate on a closed"):
        used.add([mark(b"one")])


def test_nothing_is_answered_if_the_disk_is_full(file: Path) -> None:
    with closing(UsedOnDisk(file)) as used:
        used._database.execute("PRAGMA max_page_count = 2")
        masked = [updates(LEAST, first=3 * round) for round in range(60)]
        answered = 0
        with pytest.raises(RefusedError, match="the keeper cannot write its used seeds: database or disk is full"):
            for each in masked:
                mean_of(RUN, each, EVEN, keeper(used).answer)
                answered += 1
        assert len(used) == LEAST * answered
        used._database.execute("PRAGMA max_page_count = 100")
        assert mean_of(RUN, masked[answered], EVEN, keeper(used).answer) == pytest.approx(1.5, abs=2**-20)
