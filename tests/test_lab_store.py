"""The run directory: what is on disk is one consistent moment, whatever happens to the process or the disk."""

import errno
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest

from fairlag.core.server import Server
from fairlag.core.types import Dispatch, Ended, Outcome, Presence
from fairlag.errors import FairlagError, InputError, StoreError
from fairlag.lab import checkpoints
from fairlag.lab import folder as room
from fairlag.lab.experiment import load
from fairlag.lab.lock import is_locked
from fairlag.lab.store import Store
from fairlag.runtime import virtual
from tests.support.scores import scored
from tests.support.stores import STATE, aggregation, alone, create, rows, write


def test_a_run_that_failed_is_tried_again_from_its_last_checkpoint(tmp_path: Path) -> None:
    with create(tmp_path) as store:
        store.record(aggregation(1))
        store.commit(STATE, "good", 1)
        store.record(aggregation(2))
        store.fail("it cannot go on")
        assert (store.meta["status"], store.meta["reason"]) == ("failed", "it cannot go on")
    assert len(rows(tmp_path, "aggregations")) == 1
    with Store.open(tmp_path) as store:
        assert (store.meta["status"], store.meta["reason"]) == ("running", None)
        kept = store.checkpoint()
        assert kept is not None and kept[1] == "good"


def test_a_commit_writes_everything_and_can_be_taken_up(tmp_path: Path) -> None:
    with create(tmp_path / "run") as store:
        assert store.checkpoint() is None
        store.record(aggregation(1))
        store.record(Ended(Dispatch(9, 2, 0, 0, 0.0), 1.5, Outcome.LOST, "its client left"))
        store.record(Presence(0.0, 0, range(3), True))
        store.record(Presence(1.5, 1, [2, 0], False))
        store.evaluated(np.int64(1), np.float32(1.0), [scored("class", "3", np.int64(4), np.int32(3), np.float32(0.5))])  # type: ignore[arg-type]
        assert rows(store.folder, "tasks") == []
        store.commit(STATE, '{"ü": 1}', 1, refusals={"too old": 2}, meta={"seconds": 1.5})
        store.record(aggregation(2))
    with Store.open(tmp_path / "run") as store:
        kept = store.checkpoint()
        assert kept is not None
        state, text = kept
        assert text == '{"ü": 1}'
        assert {name: np.asarray(array).tolist() for name, array in state.items()} == {
            "parameters": [0, 1, 2],
            "clock": 2.5,
            "counts": [[0, 3], [1, 4], [2, 5]],
        }
        assert store.meta["seconds"] == 1.5
        assert store.meta["groups"] == ["fast", "slow"]
    assert rows(store.folder, "clients") == [(0, "fast", 7), (1, "slow", 7), (2, "fast", 7)]
    assert rows(store.folder, "tasks") == [
        (2, 0, 0, 1, 0.5, 0, 1.0, 0.75, "aggregated", 1, 0, 0.25, None),
        (3, 1, 0, 1, 0.5, 0, 1.0, 1.0, "aggregated", 1, 1, 0.75, None),
        (9, 2, 0, 0, 0.0, 0, 1.0, 1.5, "lost", None, None, None, "its client left"),
    ]
    assert rows(store.folder, "aggregations") == [(1, 1.0, 2, 1.0, 0, "")]
    assert rows(store.folder, "presence") == [(1, 0.0, 0, 0, 2, 1), (2, 1.5, 1, 0, 0, 0), (3, 1.5, 1, 2, 2, 0)]
    assert rows(store.folder, "evaluations") == [
        (1, 1.0, "class", "3", "accuracy", 4, 0.75, 0),
        (1, 1.0, "class", "3", "loss", 4, 0.5, 0),
    ]
    assert rows(store.folder, "refusals") == [("too old", 2)]
    assert (store.folder / "experiment.json").read_text() == "{}"


def test_a_version_may_be_committed_twice_and_the_last_two_checkpoints_stay(tmp_path: Path) -> None:
    with create(tmp_path) as store:
        for text in ("first", "second", "third"):
            store.commit(STATE, text, 7)
        kept = store.checkpoint()
    assert kept is not None
    assert kept[1] == "third"
    assert [each[:2] for each in checkpoints.found(tmp_path)] == [(3, 7), (2, 7)]


def test_the_end_leaves_a_model_and_one_plain_file(tmp_path: Path) -> None:
    with create(tmp_path) as store:
        store.commit(STATE, "", 0)
        store.record(aggregation(1))
        store.finish({"weight": np.ones((2, 2), np.float32)}, "2 aggregations were made", meta={"tasks": 2})
        assert store.meta["status"] == "finished"
        assert store.checkpoint() is None
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "SHA256SUMS",
        "experiment.json",
        "lock",
        "model.safetensors",
        "run.sqlite",
    ]
    tensors, _ = room.unpacked(tmp_path / "model.safetensors")
    assert tensors["weight"].tolist() == [[1, 1], [1, 1]]
    with Store.open(tmp_path) as store:
        assert (store.meta["status"], store.meta["reason"]) == ("finished", "2 aggregations were made")


def test_every_task_of_a_real_run_has_one_row_of_plain_numbers(tmp_path: Path) -> None:
    experiment = load("demo")
    fleet = experiment.fleet(0)
    with create(tmp_path, fleet.clients) as store:
        strategy = experiment.strategy(experiment.strategies[0])
        server = Server(strategy, clients=fleet.clients, aggregations=50, record=store.record)
        virtual.run(server, fleet)
        store.commit({}, "", 50, refusals=server.refusals)
    with room.reading(tmp_path) as database:
        names = [column[1] for column in database.execute("PRAGMA table_info(tasks)")]
        kinds = database.execute(f"SELECT DISTINCT {', '.join(f'typeof({name})' for name in names)} FROM tasks")
        assert kinds.fetchall() == [
            (*["integer"] * 4, "real", "integer", "real", "real", "text", "integer", "integer", "real", "null")
        ]
    assert len(rows(tmp_path, "tasks")) == server.counts["aggregated"]
    assert len(rows(tmp_path, "aggregations")) == 50


def test_numbers_that_are_not_finite_are_kept(tmp_path: Path) -> None:
    with create(tmp_path) as store:
        store.evaluated(1, 1.0, [scored("all", "", 1, 0, float("nan")), scored("class", "0", 1, 0, float("inf"))])
        store.commit({}, "", 1)
    found = {row[2:5]: row[6] for row in rows(tmp_path, "evaluations")}
    assert found["all", "", "loss"] is None and found["class", "0", "loss"] == float("inf")


def test_what_is_half_done_is_cleared_away(tmp_path: Path) -> None:
    with create(tmp_path) as store:
        store.commit(STATE, "good", 3)
    newer, partial = "checkpoint-4-2-0123456789abcdef.safetensors", "checkpoint-5-3.safetensors.partial"
    for name in (newer, partial):
        (tmp_path / name).write_bytes(b"half")
    with Store.open(tmp_path) as store:
        kept = store.checkpoint()
        assert kept is not None
        assert kept[1] == "good"
        assert sorted(each.version for each in checkpoints.found(tmp_path)) == [3, 4] and not list(
            tmp_path.glob("*.partial")
        )
        store.commit(STATE, "better", 4)  # only now is it known to be older
        assert not (tmp_path / newer).exists()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with create(tmp_path / "run"):
        pass
    with pytest.raises(InputError, match="already holds a run: `fairlag resume "):
        create(tmp_path / "run")
    with pytest.raises(InputError, match="already holds 'run': a run needs an empty folder"):
        create(tmp_path)
    assert not (tmp_path / "lock").exists()


def test_a_run_whose_making_was_killed_can_be_made_again(tmp_path: Path) -> None:
    for name in ("lock", "experiment.json", "run.sqlite.partial", "run.sqlite.partial-journal"):
        (tmp_path / name).touch()
    with create(tmp_path) as store:
        assert len(rows(store.folder, "clients")) == 3


def test_what_is_no_run_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no run in '.*nothing': it has no file run\.sqlite"):
        Store.open(tmp_path / "nothing")
    (tmp_path / "run.sqlite").write_bytes(b"something else, longer than a header of a database" * 20)
    with pytest.raises(InputError, match=r"its run\.sqlite is something else"):
        Store.open(tmp_path)
    (tmp_path / "run.sqlite").write_bytes(b"")
    with pytest.raises(InputError, match="no such table: meta"):
        Store.open(tmp_path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    with create(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "run.sqlite", isolation_level=None)) as database:
        database.execute("UPDATE meta SET value = '6' WHERE key = 'format'")
    with pytest.raises(InputError, match="has format 6, but this fairlag reads formats 3 to 5"):
        Store.open(tmp_path)


def test_only_one_process_writes(tmp_path: Path) -> None:
    command = f"from pathlib import Path\nfrom fairlag.lab.store import Store\nStore.open(Path({str(tmp_path)!r}))"
    with create(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(InputError, match="is being written by another process"):
            Store.open(tmp_path)
        other = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
        assert "is being written by another process" in other.stderr
    assert not is_locked(tmp_path)
    subprocess.run([sys.executable, "-c", command], check=True)


# A full disk


def test_a_full_disk_is_one_sentence_and_the_commit_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with create(tmp_path) as store:
        store.commit(STATE, "before", 0)
        store.record(aggregation(1))
        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", full)
            with pytest.raises(StoreError) as caught:
                store.commit(STATE, "after", 1)
        assert str(caught.value) == (
            f"cannot write a checkpoint to {str(tmp_path)!r}: the disk is full; make room, "
            f"then `fairlag resume {tmp_path}` continues from its last checkpoint"
        )
        assert not isinstance(caught.value, InputError)
        assert isinstance(caught.value, FairlagError)
        kept = store.checkpoint()
        assert kept is not None
        assert kept[1] == "before"
        store.commit(STATE, "after", 1)
    assert len(rows(tmp_path, "tasks")) == 2


def test_a_full_database_rolls_back(tmp_path: Path) -> None:
    with create(tmp_path) as store:
        store.commit(STATE, "before", 0)
        store._database.execute("PRAGMA max_page_count = 20")
        for version in range(1, 3000):
            store.record(aggregation(version))
        with pytest.raises(StoreError, match="the disk is full; make room"):
            store.commit(STATE, "after", 2999)
        assert rows(tmp_path, "tasks") == []
        store._database.execute("PRAGMA max_page_count = 100000")
        store.commit(STATE, "after", 2999)
    assert len(rows(tmp_path, "aggregations")) == 2999


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("a disk of its own can only be mounted by root, where mounting is allowed")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("size", [3, 20_000])
def test_a_disk_that_is_really_full(tiny_disk: Path, size: int) -> None:
    """Big states fill the disk with checkpoints, small ones with rows: both get the sentence, nothing is lost."""
    state = {"parameters": np.zeros(size, np.float32)}
    done = 0
    with create(tiny_disk / "run") as store, pytest.raises(StoreError, match="the disk is full; make room"):
        while True:
            for version in range(done + 1, done + 101):
                store.record(aggregation(version))
            store.commit(state, str(done + 100), done + 100)
            done += 100
            if size > 3:
                (tiny_disk / f"ballast-{done}").write_bytes(bytes(50_000))
    assert done > 0
    for file in tiny_disk.glob("ballast-*"):
        file.unlink()
    check(tiny_disk / "run", done)


def check(folder: Path, version: int | None = None) -> int:
    """Opens a run after whatever happened to it; rows and checkpoint must be of the same moment."""
    with Store.open(folder) as store:
        kept = store.checkpoint()
        found = int(kept[1]) if kept else 0
    versions = [row[0] for row in rows(folder, "aggregations")]
    assert versions == list(range(1, found + 1))
    assert len(rows(folder, "tasks")) == 2 * found
    assert version is None or found == version
    return found


# Killed at any instant. Writers are forked in a process of their own, which has no threads and starts only once.


def test_killed_at_random_moments_a_run_is_always_whole(tmp_path: Path) -> None:
    alone(kill_at_random, tmp_path)


def kill_at_random(folder: Path) -> None:
    chance, reached, kills = random.Random(0), 0, 0
    while kills < 60 or (reached <= 60 and kills < 1000):  # on a busy machine a life may be too short for a commit
        kills += 1
        writer = os.fork()
        if not writer:
            write(folder)
        time.sleep(chance.uniform(0, 0.04 + kills / 2000))  # the busier the machine, the longer
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        if room.is_run(folder):
            before, reached = reached, check(folder)
            assert reached >= before
    assert reached > 60


def test_killed_at_each_step_of_a_commit_a_run_is_always_whole(tmp_path: Path) -> None:
    alone(kill_at_each_step, tmp_path)


_EMPTY = "PRAGMA wal_checkpoint(TRUNCATE)"


def kill_at_each_step(folder: Path) -> None:
    last = ("COMMIT after", f"{_EMPTY} before", f"{_EMPTY} after", "unlink before", "unlink after")
    for step in (
        "fsync",
        "replace",
        "BEGIN IMMEDIATE",
        "DELETE FROM digests WHERE rows = 0",
        "COMMIT",
        _EMPTY,
        "unlink",
    ):
        for when in ("before", "after"):
            where = folder / f"{step} {when}"
            writer = os.fork()
            if not writer:
                commit_and_die(where, step, when)
            _, status = os.waitpid(writer, 0)
            assert os.waitstatus_to_exitcode(status) == 0, where
            assert check(where) == (2 if where.name in last else 1), where
            assert len(list(where.glob("*safetensors*"))) <= 2, where


def commit_and_die(folder: Path, step: str, when: str) -> None:
    """Ends without any clean-up right before or after a step of the second commit."""
    armed = False

    def deadly(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **keywords: Any) -> Any:
            if armed and name == step and when == "before":
                os._exit(0)
            result = act(*arguments, **keywords)
            if armed and name == step:
                os._exit(0)
            return result

        return watched

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            return cast(sqlite3.Cursor, deadly(sql, super().execute)(sql, *arguments))

    with (
        patch.object(sqlite3, "connect", partial(sqlite3.connect, factory=Watched)),
        patch.object(os, "fsync", deadly("fsync", os.fsync)),
        patch.object(Path, "replace", deadly("replace", Path.replace)),
        patch.object(Path, "unlink", deadly("unlink", Path.unlink)),
        create(folder, keep=1) as store,
    ):
        for version in (1, 2):
            armed = version == 2
            store.record(aggregation(version))
            store.commit(STATE, str(version), version)
        os._exit(1)
