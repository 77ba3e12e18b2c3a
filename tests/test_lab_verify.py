"""Damage to a run directory is found: no bit that flips and no file that is cut off ever gives a wrong number."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from fairlag.core.types import Dispatch, Ended, Outcome
from fairlag.errors import InputError, UnreadableError
from fairlag.lab import checkpoints
from fairlag.lab import folder as room
from fairlag.lab.database import Database
from fairlag.lab.run import Run
from fairlag.lab.store import Store
from fairlag.lab.verify import verified
from tests.support.command import Call
from tests.support.scores import scored
from tests.support.stores import STATE, aggregation, create


def made(folder: Path, *, commits: int = 4, finished: bool = False) -> Path:
    """A run of some pages: tasks that were merged and lost, evaluations, refusals."""
    with create(folder) as store:
        for number in range(1, commits + 1):
            for version in range(20 * number, 20 * number + 20):
                store.record(aggregation(version))
            store.record(Ended(Dispatch(10_000 + number, 2, 0, 0, 0.0), 1.5, Outcome.LOST, "its client left"))
            store.evaluated(
                20 * number, float(number), [scored("all", "", 4, 3, 0.5), scored("class", "3", 2, 1, 0.25)]
            )
            store.commit(STATE, str(number), 20 * number + 19, refusals={"too old": number})
        if finished:
            store.finish({"weight": np.arange(16, dtype=np.float32)}, "done")
    return folder


def read(folder: Path) -> list[object]:
    """All that a run answers, also questions that seek single rows."""
    run = Run(folder)
    frames = run.tasks, run.aggregations, run.evaluations, run.clients, run.refusals, run.influence()
    with room.reading(folder) as database:
        ask = database.execute
        sought = [ask("SELECT weight FROM tasks WHERE task = ?", (task,)).fetchone() for task in range(40, 200)]
        sought += [ask("SELECT time FROM aggregations WHERE version = ?", (each,)).fetchone() for each in range(100)]
    model = {name: each.tobytes() for name, each in run.tensors().items()} if run.status == "finished" else {}
    return [*(frame.to_csv() for frame in frames), run.meta, sought, model]


def resumed(folder: Path) -> object:
    """What a run that is continued begins with."""
    with Store.open(folder) as store:
        arrays, text = store.checkpoint() or ({}, "")
        return {name: np.asarray(each).tobytes() for name, each in arrays.items()}, text


def flipped(content: bytes, step: int) -> Iterator[bytes]:
    """One bit after the other, over all of it and more densely at its beginning, where headers are."""
    places = {*range(0, min(len(content), 100), 13), *range(0, len(content), step)}
    for number, place in enumerate(sorted(places)):
        spoilt = bytearray(content)
        spoilt[place] ^= 1 << number % 8
        yield bytes(spoilt)


def cut(content: bytes, step: int) -> Iterator[bytes]:
    return (content[:size] for size in range(0, len(content), step))


def judged(
    folder: Path, file: str, contents: Iterator[bytes], ask: Callable[[Path], object], right: list[object]
) -> list[bool]:
    """Per content of a file: was the damage refused in a sentence? If not, the answer is one of the right ones."""
    refused = []
    for number, content in enumerate(contents):
        copy = folder.parent / f"{file}-{ask.__name__}-{number}"  # what was checked once is not checked again
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*-shm"))
        (copy / file).write_bytes(content)
        try:
            assert ask(copy) in right, (file, number)
            refused.append(False)
        except InputError as error:
            assert str(copy) in str(error)
            refused.append(True)
        shutil.rmtree(copy)
    return refused


@pytest.mark.parametrize(
    ("finished", "flips"),
    [(False, 15), (True, 15), *(pytest.param(each, 100, marks=pytest.mark.slow) for each in (False, True))],
)
def test_bits_that_flip_in_the_database_are_found_or_change_nothing(tmp_path: Path, finished: bool, flips: int) -> None:
    folder = made(tmp_path / "run", finished=finished)
    content = (folder / "run.sqlite").read_bytes()
    for ask in (read, resumed):
        refused = judged(folder, "run.sqlite", flipped(content, len(content) // flips), ask, [ask(folder)])
        assert sum(refused) > flips / 5


def test_bits_that_flip_in_a_checkpoint_are_always_found(tmp_path: Path) -> None:
    folder = made(tmp_path / "run")
    newest, older = checkpoints.found(folder)
    content = newest.file.read_bytes()
    assert all(judged(folder, newest.file.name, flipped(content, 11), resumed, []))
    assert all(judged(folder, newest.file.name, cut(content, 50), resumed, []))
    newest.file.write_bytes(content[:-1] + b"!")
    with pytest.raises(UnreadableError) as caught:
        Store.open(folder)
    assert str(caught.value) == (
        f"the run in {str(folder)!r} cannot be continued: {newest.file.name} is not what was written; "
        f"`fairlag rollback {folder} --version {older.version}` continues from the newest intact checkpoint"
    )
    older.file.unlink()
    with pytest.raises(UnreadableError, match="no other checkpoint is intact: restore it from a backup"):
        Store.open(folder)
    assert newest.file.exists()


@pytest.mark.parametrize("file", ["model.safetensors", "experiment.json"])
def test_bits_that_flip_in_other_files_are_always_found(tmp_path: Path, file: str) -> None:
    folder = made(tmp_path / "run", finished=True)
    content = (folder / file).read_bytes()
    ask = read if file == "model.safetensors" else resumed
    assert all(judged(folder, file, flipped(content, 29), ask, []))


def test_a_digest_that_is_lost_or_damaged_changes_nothing(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", finished=True)
    right = read(folder)
    content = (folder / room.SUMS).read_bytes()
    assert not any(judged(folder, room.SUMS, flipped(content, 40), read, [right]))
    copy = shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns(room.SUMS))
    assert read(copy) == right


def killed(folder: Path, *, emptied: bool) -> tuple[Path, list[object]]:
    """A run as a killed process leaves it, with all commits in its WAL file unless that was emptied; each moment."""
    moments: list[object] = []
    whole = folder.with_name("killed")
    empty = Database._empty_the_log if emptied else lambda _: None
    with patch.object(Database, "_empty_the_log", empty), create(folder) as store:
        for version in range(1, 5):
            copy = shutil.copytree(folder, folder.with_name(f"at-{version}"))
            moments.append(read(copy))
            store.record(aggregation(version))
            store.commit(STATE, str(version), version)
        moments.append(read(shutil.copytree(folder, whole)))
    return whole, moments


@pytest.mark.parametrize("spoil", [cut, flipped])
def test_a_torn_log_gives_an_earlier_moment_or_a_sentence_and_no_checkpoint_is_removed(
    tmp_path: Path, spoil: Callable[[bytes, int], Iterator[bytes]]
) -> None:
    folder, moments = killed(tmp_path / "run", emptied=False)
    log = (folder / "run.sqlite-wal").read_bytes()
    there = {each.file.name for each in checkpoints.found(folder)}

    def ask(copy: Path) -> object:
        """The rows are those of the checkpoint that it is continued from; a newer one stays where it is."""
        try:
            begins: Any = resumed(copy)
        finally:
            assert {each.file.name for each in checkpoints.found(copy)} == there
        assert Run(copy).version == int(begins[1])
        return int(begins[1])

    assert set(judged(folder, "run.sqlite-wal", spoil(log, len(log) // 7), read, moments)) == {False}
    assert any(judged(folder, "run.sqlite-wal", spoil(log, len(log) // 7), ask, [3, 4]))


def test_without_its_log_a_run_is_at_most_one_commit_behind(tmp_path: Path) -> None:
    folder, moments = killed(tmp_path / "run", emptied=True)
    (folder / "run.sqlite-wal").unlink()
    assert read(folder) == moments[-1]
    assert resumed(folder) is not None


def test_a_run_without_its_log_says_what_is_there_and_goes_on_from_it(tmp_path: Path, call: Call) -> None:
    folder, _ = killed(tmp_path / "run", emptied=False)
    for name in ("run.sqlite-wal", "run.sqlite-shm"):
        (folder / name).unlink()
    newest, older = checkpoints.found(folder)
    with pytest.raises(UnreadableError) as caught:
        Store.open(folder)
    assert str(caught.value) == (
        f"the run in {str(folder)!r} is not complete: its run.sqlite ends with version 0, but there is a newer "
        f"checkpoint, {newest.file.name}; perhaps run.sqlite-wal was not copied with it, or is damaged: put it back, "
        f"or `fairlag rollback {folder} --version 4` continues from that one, without the rows of versions 1 to 4"
    )
    assert newest.file.exists() and older.file.exists()
    assert not verified(folder)[0] and newest.file.name in verified(folder)[1]
    assert call("rollback", str(folder), "--version", "4").code == 0
    assert verified(folder) == (True, "running, 0 versions, 2 checkpoints, rows of versions 1 to 4 are missing")
    with Store.open(folder) as store:
        found = store.checkpoint()
        assert found is not None and found[1] == "4"
        store.record(aggregation(5))
        store.commit(STATE, "5", 5)
    assert Run(folder).aggregations["version"].to_list() == [5]


def test_verify_has_one_line_per_run_and_an_exit_code(tmp_path: Path, call: Call) -> None:
    made(tmp_path / "good", finished=True)
    made(tmp_path / "more")
    done = call("runs", str(tmp_path), "--verify")
    assert done.code == 0 and done.out.splitlines() == [
        f"{tmp_path / 'good'}: intact: finished, 99 versions, 0 checkpoints",
        f"{tmp_path / 'more'}: intact: running, 99 versions, 2 checkpoints",
    ]
    with Store.open(tmp_path / "more"):
        assert verified(tmp_path / "more")[1].endswith("versions, being written, so its checkpoints are not checked")
    content = (tmp_path / "good/run.sqlite").read_bytes()
    place = content.index(b"its client left")
    (tmp_path / "good/run.sqlite").write_bytes(content[:place] + b"I" + content[place + 1 :])
    (_, older) = checkpoints.found(tmp_path / "more")
    older.file.write_bytes(b"")
    done = call("runs", str(tmp_path), "--verify")
    good, more = done.out.splitlines()
    assert done.code == 1 and ": DAMAGED: " in good and "the rows 8192 to 12287 of the table tasks" in good
    assert more == f"{tmp_path / 'more'}: DAMAGED: {older.file.name} is not what was written"


def test_what_was_checked_once_is_checked_again_only_where_it_changed(tmp_path: Path) -> None:
    with create(tmp_path / "run") as store:
        store.record(aggregation(1))
        store.commit(STATE, "1", 1)
        Run(store.folder)
        with patch("fairlag.lab.digest.of_rows") as looked:
            Run(store.folder).tasks  # noqa: B018
            assert not looked.called
        store.record(aggregation(2))
        store.commit(STATE, "2", 2)
        store._database.execute("UPDATE tasks SET weight = 7 WHERE task = 5")
        with pytest.raises(UnreadableError, match="the rows 0 to 4095 of the table tasks are not those"):
            Run(store.folder)
