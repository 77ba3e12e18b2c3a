"""The soak itself: some of its seeds, its disk, and that it finds what is broken on purpose."""

import json
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlag import files, zoo
from fairlag.core.vector import Layout
from fairlag.errors import StoreError
from fairlag.lab.folder import is_run
from fairlag.lab.nodelog import NodeLog, lines_of, quarantined
from fairlag.lab.quarantine import requests, waiting
from fairlag.lab.run import Run
from fairlag.lab.store import Store
from fairlag.runtime.decisions import ADMITTED, QUARANTINED, REFUSED
from tests import soak as command
from tests.support import sqlite_io
from tests.support.disk import FULL, KILL, POWER, Disk, Gone
from tests.support.remade import Remade
from tests.support.soak import Broken, Tally, soak
from tests.support.stores import STATE, aggregation, create

pytestmark = pytest.mark.skipif(not sqlite_io.available(), reason="this Python hides the functions of SQLite's library")


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """The command silences Flower's log, which other tests in this process read."""
    log = logging.getLogger("flwr")
    level = log.level
    yield
    log.setLevel(level)


def made(folder: Path, seed: int = 0) -> Disk:
    return Disk(folder.resolve(), Random(seed), Counter(), set())


def broken_within(seeds: int, folder: Path) -> str:
    """What the first seed that breaks something says; empty if none does."""
    for seed in range(seeds):
        try:
            soak(seed, folder, Tally())
        except Broken as error:
            return str(error)
    return ""


@pytest.mark.parametrize("name", ["buffered_fedavg", "mifa", "fedstale", "ca2fl", "ace", "area", "fedadam"])
def test_versions_are_computed_a_second_time_under(name: str) -> None:
    """A strategy whose rules get other labels must not drop out of the check unseen."""
    assert Remade(zoo.ALGORITHMS[name].make(), Layout(("weight",), ((3,),))).applies


def test_nothing_is_broken_in_some_seeds(tmp_path: Path) -> None:
    assert broken_within(25, tmp_path) == ""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1200, 50))
def test_nothing_is_broken_in_many_seeds(first: int, tmp_path: Path) -> None:
    tally = Tally()
    for seed in range(first, first + 50):
        soak(seed, tmp_path, tally)
    assert {KILL, POWER, "update replayed", "task forged", "write torn", "clock jumped forwards"} <= tally.faults.keys()


def test_the_same_seed_meets_the_same_faults(tmp_path: Path) -> None:
    tallies = []
    for _ in range(2):
        tally = Tally()
        for seed in range(4):
            soak(seed, tmp_path, tally)
        tallies.append(tally)
    assert tallies[0] == tallies[1] and tallies[0].faults


# What is broken on purpose is found


@pytest.mark.parametrize("what", ["sync", "influence", "account"])
def test_what_is_broken_is_found(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "sync":
        monkeypatch.setattr(files, "_flush", lambda path: None)
    elif what == "influence":
        from fairlag.core.ledger import Ledger

        credit = Ledger.credit
        monkeypatch.setattr(Ledger, "credit", lambda self, clients, weights: credit(self, clients, 2 * weights))
    else:
        from fairlag.core.accounts import Accounts

        monkeypatch.setattr(Accounts, "restore", lambda self, state: None)
    assert "driven by" in broken_within(60, tmp_path)


# The disk


def written(disk: Disk, content: bytes, act: Callable[[Path, bytes], None]) -> set[bytes | None]:
    """All contents that a power loss may leave under a name, after something has written it."""
    with disk.mounted():
        act(disk.folder / "file", content)
    disk.dead = POWER
    lefts = [disk.left(disk.folder.with_name(f"left-{number}")).folder / "file" for number in range(200)]
    return {each.read_bytes() if each.exists() else None for each in lefts}


def test_what_was_not_synced_may_be_lost_or_torn(tmp_path: Path) -> None:
    found = written(made(tmp_path / "disk"), b"abcd", files.write_anew)
    assert {None, b"", b"abcd"} < found and found - {None, b"", b"abcd"} <= {b"a", b"ab", b"abc"}


def test_what_was_synced_stays(tmp_path: Path) -> None:
    assert written(made(tmp_path / "disk"), b"abcd", files.put) == {b"abcd"}


def test_a_name_may_be_there_before_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(file: Path, content: bytes) -> None:
        partial = file.with_name("partial")
        files.write_anew(partial, content)
        partial.replace(file)

    assert b"" in written(made(tmp_path / "disk"), b"abcd", careless)


def test_sqlite_loses_what_it_does_not_sync(tmp_path: Path) -> None:
    """A database keeps its commits through a power loss, unless it is told not to sync."""

    def rows(synchronous: str, seed: int) -> int | None:
        disk = made(tmp_path / f"{synchronous}-{seed}" / "disk", seed)
        with disk.mounted(), closing(sqlite3.connect(disk.folder / "file", isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(f"PRAGMA synchronous = {synchronous}")
            database.execute("CREATE TABLE numbers (number INTEGER)")
            database.execute("INSERT INTO numbers VALUES (1)")
            disk.dead = POWER
            left = disk.left(disk.folder.with_name("left"))
        try:
            with closing(sqlite3.connect(left.folder / "file")) as database:
                return int(database.execute("SELECT COUNT(*) FROM numbers").fetchone()[0])
        except sqlite3.DatabaseError:
            return None

    assert {rows("FULL", seed) for seed in range(20)} == {1}
    assert {rows("OFF", seed) for seed in range(20)} & {0, None}


# Decisions about nodes


def lefts(disk: Disk) -> list[Path]:
    """Folders that a power loss may leave."""
    disk.dead = POWER
    return [disk.left(disk.folder.with_name(f"left-{number}")).folder for number in range(100)]


def test_a_quarantine_is_on_disk_once_it_is_noted(tmp_path: Path) -> None:
    """The name of a new log was not: a power loss could take the log, and with it the quarantine."""
    disk = made(tmp_path / "disk")
    with disk.mounted(), closing(NodeLog(disk.folder, {})) as log:
        log.note(QUARANTINED, "name a", 0, "it was told to")
        left = lefts(disk)
    assert all(quarantined(lines_of(each, {})[0]) == {"name a": "it was told to"} for each in left)


def test_a_power_loss_takes_at_most_the_last_line_of_the_log(tmp_path: Path) -> None:
    """Lines were synced together: one could be lost and the next one kept, and the log counted as damaged."""
    for step in range(5, 30, 5):
        disk = made(tmp_path / f"{step}" / "disk", step)
        disk.arm(POWER, step)
        noted = 0
        with disk.mounted(), suppress(Gone), closing(NodeLog(disk.folder, {})) as log:
            for number in range(9):
                log.note(REFUSED, f"name {number}", number, "not finite")
                noted += 1
        for left in lefts(disk):
            with closing(NodeLog(left, {})) as log:
                log.note(ADMITTED, "name 9", 9, "any node is admitted")
            lines, _ = lines_of(left, {})
            assert len(lines) in (noted + 1, noted + 2)


def test_a_request_that_was_carried_out_does_not_come_back(tmp_path: Path) -> None:
    """After a power loss, the older one could come back without the newer one, and be carried out again."""
    disk = made(tmp_path / "disk")
    with disk.mounted():
        for number, release in enumerate([True, False]):
            said = {"node": "name a", "why": "it was told to", "release": release}
            files.put(disk.folder / f"quarantine-{number}.json", json.dumps(said).encode())
        orders = requests(disk.folder, pytest.fail)
        carried_out = [next(orders).release, next(orders).release]
        left = lefts(disk)
    assert carried_out == [True, False]
    assert all([order.release for order in waiting(each)] == [False] for each in left)


# Whatever happens to a run, at each step


def lived(disk: Disk) -> bool:
    """Begins a run, or continues it to its end; was there no fault?"""
    try:
        with disk.mounted(), Store.open(disk.folder) if is_run(disk.folder) else create(disk.folder) as store:
            if store.meta["status"] != "finished":
                store.commit(STATE, "1", 1)
                store.finish({"weight": STATE["parameters"]}, "the end")
    except (Gone, StoreError):
        return False
    except Exception:
        if disk.dead:  # SQLite's own error, because nothing reaches the disk any more
            return False
        raise
    return not disk.dead


@pytest.mark.parametrize("fault", [KILL, POWER, FULL])
def test_a_run_can_be_read_and_continued_whenever_it_was_hit(fault: str, tmp_path: Path) -> None:
    """It could not when it was killed while SQLite changed its journal mode: a journal file was left behind."""
    whole = made(tmp_path / "whole")
    assert lived(whole)
    for step in range(1, whole.steps + 1):
        hit = made(tmp_path / f"{step}" / "hit", step)
        hit.arm(fault, step)
        lived(hit)
        left = hit.left(tmp_path.resolve() / f"{step}" / "left")
        if is_run(left.folder):
            with left.mounted():  # reading may make the WAL anew
                assert Run(left.folder).meta["status"] in ("running", "finished")
        assert lived(left), step
        assert Run(left.folder).status == "finished"
    assert whole.steps > 40


def test_a_full_disk_is_not_damage(tmp_path: Path) -> None:
    """Opening a run may write, as SQLite makes its WAL anew: if it cannot, the sentence says why."""
    disk = made(tmp_path / "disk")
    with disk.mounted():
        with create(disk.folder) as store:
            store.record(aggregation(1))
            store.commit(STATE, "1", 1)
        sentences = set()
        for step in range(1, 4):
            disk.arm(FULL, step, for_good=True)
            with pytest.raises(StoreError) as caught, Store.open(disk.folder) as store:
                store.commit(STATE, "1", 1)
            sentences.add(str(caught.value).partition(": ")[0])
    assert sentences == {f"cannot write {what} to {str(disk.folder)!r}" for what in ("the run", "a checkpoint")}


def test_a_run_whose_log_cannot_be_made_does_not_begin(tmp_path: Path) -> None:
    """SQLite tells of a full disk only after its answer. Such a run went on with a journal file, without the log."""
    begun = []
    for step in range(1, 60):
        disk = made(tmp_path / f"{step}" / "disk", step)
        with disk.mounted(), suppress(StoreError):
            disk.arm(FULL, step)
            with create(disk.folder) as store:
                (mode,) = store._database.execute("PRAGMA journal_mode").fetchone()
                begun.append(mode)
    assert len(begun) < 59 and set(begun) == {"wal"}


# The command


def ran(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["soak", *words])
    return command.main()


def test_the_command_counts_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(monkeypatch, "--seeds", "3", "--json", str(tmp_path / "counts.json")) == 0
    assert "0 of 3 seeds broke something" in capsys.readouterr().out
    counts: dict[str, Any] = json.loads((tmp_path / "counts.json").read_text())
    driven = [times for name, times in counts["worlds"].items() if name.startswith("driven by")]
    assert counts["seeds"] == 3 and counts["broken"] == [] and sum(driven) == 3


def test_a_broken_seed_is_printed_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(seed: int, root: Path, tally: Tally) -> None:
        raise Broken(f"seed {seed}: spent more than it earned")

    monkeypatch.setattr(command, "soak", breaks)
    assert ran(monkeypatch, "--seed", "17") == 1
    said = capsys.readouterr().out
    assert "spent more than it earned" in said and "make soak SEED=17" in said


@pytest.mark.parametrize("wrong", [("--seeds", "0"), ("--seeds", "many"), ("--workers", "-1"), ("--seed", "x")])
def test_a_wrong_number_is_refused(
    wrong: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        ran(monkeypatch, *wrong)
    assert wrong[1] in capsys.readouterr().err
