"""Large rows in checkpoints: written once, shared, bounded and checked; killed runs end with the same bytes."""

from importlib import import_module
from itertools import count
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from fairlag.core import rows as memory
from fairlag.core.state import Stack
from fairlag.core.vector import Vector, published
from fairlag.errors import UnreadableError
from fairlag.lab import checkpoints, rowfiles
from fairlag.lab.plan import Plan
from fairlag.lab.store import Store
from fairlag.lab.verify import verified
from tests.support.resuming import contents, experiment
from tests.support.stores import aggregation, alone, create
from tests.test_lab_resume import lived

WIDE = 50


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowfiles, "BIG", 0)


def row(value: float) -> Vector:
    return published(np.full(WIDE, value))


def files(folder: Path) -> dict[str, int]:
    """The files with rows, and how many rows each has."""
    return {file.name.split("-")[1]: file.stat().st_size // (4 * WIDE) for file in folder.glob("rows-*.f32")}


def saved(store: Store) -> list[list[float]]:
    kept = store.checkpoint()
    assert kept is not None
    stack = kept[0]["server/rows"]
    assert isinstance(stack, Stack) and stack.width == WIDE
    return [each[[0, -1]].tolist() for each in stack]


def commit(store: Store, rows: list[Vector], version: int) -> None:
    store.commit({"server/rows": Stack(tuple(rows), WIDE), "other": np.arange(3)}, "{}", version)


def test_only_new_rows_are_written_and_all_are_read(tmp_path: Path) -> None:
    rows = [row(number) for number in range(10)]
    with create(tmp_path / "run") as store:
        commit(store, rows, 1)
        assert files(store.folder) == {"1": 10}
        rows[3] = row(30)
        commit(store, rows, 2)
        assert files(store.folder) == {"1": 10, "2": 1}
        commit(store, rows, 3)
        assert files(store.folder) == {"1": 10, "2": 1}
    values = [30 if number == 3 else number for number in range(10)]
    with Store.open(tmp_path / "run") as store:
        assert saved(store) == [[value, value] for value in values]


def test_a_run_that_goes_on_does_not_write_again_what_it_read(tmp_path: Path) -> None:
    with create(tmp_path / "run") as store:
        commit(store, [row(number) for number in range(10)], 1)
    with Store.open(tmp_path / "run") as store:
        kept = store.checkpoint()
        assert kept is not None
        stack = kept[0]["server/rows"]
        assert isinstance(stack, Stack)
        rows = [*stack.rows[1:], row(99)]
        commit(store, rows, 2)
        assert files(store.folder) == {"1": 10, "2": 1}
        assert saved(store)[-1] == [99, 99] and saved(store)[0] == [1, 1]


def test_files_do_not_grow_without_bounds_and_are_removed_when_no_checkpoint_needs_them(tmp_path: Path) -> None:
    rows = [row(0) for _ in range(4)]
    with create(tmp_path / "run") as store:
        for version in range(1, 60):
            rows[version % 4] = row(version)
            store.record(aggregation(version))
            commit(store, rows, version)
            assert sum(files(store.folder).values()) <= 2 * rowfiles._MOST * 4
        assert saved(store) == [[each[0], each[0]] for each in rows]
        store.finish({}, "it was over")
        assert files(store.folder) == {}


def test_a_damaged_or_missing_file_is_found(tmp_path: Path) -> None:
    rows = [row(number) for number in range(10)]
    with create(tmp_path / "run") as store:
        commit(store, rows, 1)
        rows[0] = row(50)
        commit(store, rows, 2)
    _, new = sorted((tmp_path / "run").glob("rows-*.f32"))
    assert verified(tmp_path / "run")[0]
    whole = new.read_bytes()
    new.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert verified(tmp_path / "run") == (False, f"{new.name} is not what was written")
    with pytest.raises(UnreadableError, match=f"{new.name} is not what was written; `fairlag rollback .* --version 1`"):
        Store.open(tmp_path / "run")
    new.unlink()
    assert "cannot be read (No such file or directory)" in verified(tmp_path / "run")[1]
    assert [each.version for each in checkpoints.found(tmp_path / "run") if each.damage is None] == [1]


@pytest.mark.parametrize("use", ["ca2fl", "buffered_scaffold", pytest.param("safa", marks=pytest.mark.slow)])
def test_a_killed_run_with_rows_in_files_ends_with_the_bytes_of_one_without(tmp_path: Path, use: str) -> None:
    alone(KILLS[use], tmp_path)


def kill(folder: Path, use: dict[str, object]) -> None:
    for module in ("fairlag.learn.learner", "fairlag.learn.flat", "sklearn.datasets"):
        import_module(module)  # once, not in every life
    whole, calm, killed = (Plan(experiment(use, 12), (3,), folder / name) for name in ("whole", "calm", "killed"))
    assert lived(whole) == 0
    with patch.object(rowfiles, "BIG", 0), patch.object(memory, "_available_memory", lambda: 0):
        assert lived(calm) == 0
        seen = set[str]()
        for kills in count():
            if lived(killed, 20 + 20 * kills) == 0:
                break
            seen |= {file.name for file in killed.folder.rglob("rows-*.f32")}
    assert kills >= 2 and seen
    (one,), (other,), (third,) = whole, calm, killed
    assert contents(one.folder) == contents(other.folder) == contents(third.folder)
    assert not [*other.folder.glob("rows-*"), *third.folder.glob("rows-*")]


def kill_ca2fl(folder: Path) -> None:
    kill(folder, {"use": "ca2fl", "buffer": 3})


def kill_safa(folder: Path) -> None:
    kill(folder, {"use": "safa", "share": 0.3, "lag": 1})


def kill_scaffold(folder: Path) -> None:
    kill(folder, {"use": "buffered_scaffold", "buffer": 3})


KILLS = {"ca2fl": kill_ca2fl, "safa": kill_safa, "buffered_scaffold": kill_scaffold}
