"""Going back to an earlier version: rows and state are those of that moment, and the run continues from it."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag.core.types import Dispatch, Ended, Outcome, Presence
from fairlag.errors import InputError, Interrupted, UnreadableError
from fairlag.lab import checkpoints, loop, rollback
from fairlag.lab.deploy import deploy
from fairlag.lab.events import Event, Kept
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute
from fairlag.lab.store import Store
from fairlag.lab.verify import verified
from tests.support import resuming
from tests.support.command import Call
from tests.support.flower_deploy import OWN, QUICK, Crash, counted
from tests.support.scores import scored
from tests.support.stores import STATE, aggregation, create, rows

TABLES = ("clients", "tasks", "aggregations", "presence", "evaluations", "client_scores", "refusals")


def contents(folder: Path) -> dict[str, Any]:
    return {table: rows(folder, table) for table in TABLES}


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_rows_are_those_of_the_moment_that_it_goes_back_to(tmp_path: Path, keep: int) -> None:
    moments = {}
    with create(tmp_path / "run", keep=keep) as store:
        for version in range(1, 31):
            store.record(aggregation(version))
            # At the same time as the next version: only which commit it was in tells whether it came before.
            lost = Ended(Dispatch(1000 + version, 2, 0, 0, 0.0), float(version), Outcome.LOST, "left")
            store.record(lost)
            store.record(Presence(float(version), version, [0, 2], version % 2 == 1))
            store.evaluated(version, float(version), [scored("all", "", 4, 3, 0.5)])
            store.commit(STATE, str(version), version, refusals={f"reason {version // 10}": version})
            moments[version] = contents(store.folder)
    there = rollback.points(tmp_path / "run")
    assert len(there) == keep and [each.version for each in there][:2] == [30, 29][:keep]
    for point in there:
        folder = shutil.copytree(tmp_path / "run", tmp_path / str(point.version))
        rollback.rollback(folder, point.version)
        assert contents(folder) == moments[point.version]
        assert checkpoints.found(folder)[0].version == point.version
        assert verified(folder)[0]
        with Store.open(folder, keep) as store:
            found = store.checkpoint()
            assert found is not None and found[1] == str(point.version)
            store.record(aggregation(point.version + 1))
            store.record(Presence(99.0, point.version + 1, [1], True))
            store.commit(STATE, "again", point.version + 1)
        assert rows(folder, "presence")[-1] == (2 * point.version + 1, 99.0, point.version + 1, 1, 1, 1)
        assert Run(folder).version == point.version + 1


def test_a_version_that_is_not_there_is_refused(tmp_path: Path, call: Call) -> None:
    with create(tmp_path) as store:
        assert call("rollback", str(tmp_path)).out.endswith("has no checkpoint to go back to\n")
        for version in (3, 5):
            store.commit(STATE, "", version)
        done = call("rollback", str(tmp_path), "--version", "5")
        assert done.code == 2 and "is being written by another process" in done.err
    listed = call("rollback", str(tmp_path))
    assert listed.code == 0
    assert [line.split(",")[0] for line in listed.out.splitlines()] == ["version 5", "version 3"]
    done = call("rollback", str(tmp_path), "--version", "4")
    assert done.code == 2 and done.err.endswith("cannot go back to version 4: there are checkpoints of 5, 3\n")
    done = call("rollback", str(tmp_path / "nothing"))
    assert done.code == 2 and "there is no run in" in done.err


def test_a_simulation_that_went_back_ends_with_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use = {"use": "fairshare", "buffer": 3}
    whole, stopped = (resuming.planned(tmp_path / name, use, 30) for name in ("whole", "stopped"))
    execute(whole, workers=1)
    monkeypatch.setattr(loop, "CHECKPOINT", 0.0)
    monkeypatch.setattr(loop, "_COSTLY", 0)
    with pytest.raises(Interrupted):
        execute(stopped, workers=1, watch=resuming.CtrlC(16))
    ((one,), (other,)) = whole, stopped
    _, earlier = rollback.points(other.folder)
    rollback.rollback(other.folder, earlier.version)
    execute(stopped, workers=1)
    assert resuming.contents(one.folder) == resuming.contents(other.folder)


BEGIN: dict[str, Any] = {"arrays": {"weight": np.zeros(2, np.float32)}, **QUICK}


@pytest.mark.usefixtures("quick_grid")
def test_a_deployment_goes_back_and_continues_from_there(tmp_path: Path, call: Call) -> None:
    out = tmp_path / "run"
    run = deploy(counted(), OWN, out=out, **BEGIN)
    versions = [each.version for each in rollback.points(out)]
    assert run.status == "finished" and len(versions) == 5 and versions[0] == 30
    assert run.tensors()["weight"].tolist() == [30, 30]
    back = versions[-1]
    done = call("rollback", str(out), "--version", str(back))
    assert done.code == 0 and f"is back at version {back}" in done.out
    run = Run(out)
    assert (run.status, run.version) == ("interrupted", back) and not (out / "model.safetensors").exists()
    counts = run.influence()["updates"].sum()
    assert counts == 2 * back and (run.tasks["aggregation"].dropna() <= back).all()
    run = deploy(counted(), OWN, out=out, **BEGIN)
    assert run.status == "finished" and run.aggregations["version"].to_list() == list(range(1, 31))
    assert run.tensors()["weight"].tolist() == [30, 30] and verified(out)[0]
    there = dict[int, int]()
    changes: list[Any] = rows(out, "presence")
    for *_, first, last, present in changes:
        for client in range(first, last + 1):
            assert there.get(client, 0) != present, "a client came, or went, twice in a row"
            there[client] = present
    assert run.influence()["entitled"].sum() == pytest.approx(1)
    ended = run.meta["counts"]
    assert ended["dispatched"] == sum(count for name, count in ended.items() if name != "dispatched")
    assert ended["aggregated"] == 60


@pytest.mark.usefixtures("quick_grid")
def test_so_many_checkpoints_are_kept_as_is_asked_for(tmp_path: Path) -> None:
    most = 0

    def look(event: Event) -> None:
        nonlocal most
        if isinstance(event, Kept):
            most = max(most, len(checkpoints.found(tmp_path / "run")))

    deploy(counted(), OWN, out=tmp_path / "run", keep=3, watch=look, **BEGIN)
    assert most == 3
    with pytest.raises(InputError, match="keep is 0, it must be a whole number of at least 1"):
        deploy(counted(), OWN, out=tmp_path / "other", keep=0, **BEGIN)
    assert not (tmp_path / "other").exists()


@pytest.mark.usefixtures("quick_grid")
def test_a_finished_deployment_that_lost_its_model_makes_it_again(tmp_path: Path) -> None:
    out = tmp_path / "run"
    before = deploy(counted(), OWN, out=out, **BEGIN)
    content = (out / "model.safetensors").read_bytes()
    (out / "model.safetensors").unlink()
    with pytest.raises(UnreadableError, match=r"its model\.safetensors is missing"):
        before.tensors()
    run = deploy(counted(), OWN, out=out, **BEGIN)
    assert run.version == 30 and (out / "model.safetensors").read_bytes() == content


NOISE = {"clip": 1.0, "noise": 1.0, "delta": 1e-5, "bound": 0.5}


@pytest.mark.usefixtures("quick_grid")
def test_versions_with_noise_that_were_released_are_never_forgotten(tmp_path: Path, call: Call) -> None:
    """Made again, they would have fresh noise: clients would pay twice, and their accounts would say once."""
    out, privacy = tmp_path / "run", {**OWN, "privacy": NOISE}
    paid = deploy(counted(), privacy, out=out, **BEGIN).privacy()["epsilon"].max()
    back = rollback.points(out)[-1].version
    done = call("rollback", str(out), "--version", str(back))
    assert done.code == 2 and f"versions {back + 1} to 30 of the run" in done.err
    assert Run(out).version == 30 and Run(out).privacy()["epsilon"].max() == paid
    content = (out / "model.safetensors").read_bytes()
    (out / "model.safetensors").unlink()
    deploy(counted(), privacy, out=out, **BEGIN)  # goes back to its last version: nothing is forgotten
    assert (out / "model.safetensors").read_bytes() == content


@pytest.mark.usefixtures("quick_grid")
def test_versions_with_noise_whose_rows_are_lost_are_not_free(tmp_path: Path) -> None:
    out = tmp_path / "run"

    def stop(event: Event) -> None:
        if isinstance(event, Kept) and event.version == 10:
            shutil.copytree(out, tmp_path / "early")
        if isinstance(event, Kept) and event.version == 14:
            raise Crash

    with pytest.raises(Crash):
        deploy(counted(), {**OWN, "privacy": NOISE}, out=out, watch=stop, **BEGIN)
    for file in out.glob("run.sqlite*"):
        file.unlink()
    for file in (tmp_path / "early").glob("run.sqlite*"):
        shutil.copy(file, out)  # as if the disk had lost the last rows
    versions = [each.version for each in rollback.points(out)]
    assert versions[:2] == [14, 13]
    with pytest.raises(InputError, match="versions 14 to 14 of the run"):
        rollback.rollback(out, 13)
    rollback.rollback(out, 14)
    with pytest.raises(InputError, match="has lost the rows of versions 11 to 14, so what its clients paid"):
        Run(out).privacy()


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_finished_simulation_that_lost_its_model_is_refused(tmp_path: Path, call: Call, how: str) -> None:
    words = ["--set", "model.use=logistic", "--aggregations", "3", "--strategy", "fedavg"]
    assert call("run", "demo", "--out", str(tmp_path / "out"), *words).code == 0
    (model,) = tmp_path.glob("out/*/model.safetensors")
    if how == "gone":
        model.unlink()
    else:
        model.write_bytes(model.read_bytes()[:-1] + b"?")
    done = call("resume", str(tmp_path / "out"))
    assert (done.code, done.out) == (2, "")
    assert "is finished, but its model.safetensors is missing or damaged, and it has no checkpoint" in done.err


def test_nothing_is_written_through_a_link(tmp_path: Path, call: Call) -> None:
    words = ["--set", "model.use=logistic", "--aggregations", "3", "--strategy", "fedavg"]
    out, secret = tmp_path / "out", tmp_path / "secret"
    secret.write_text("untouched")
    assert call("run", "demo", "--out", str(out), *words).code == 0
    for name in ("curve.png", "curve.png.partial"):
        (out / name).unlink(missing_ok=True)
        (out / name).symlink_to(secret)
    assert call("resume", str(out)).code == 0
    assert secret.read_text() == "untouched" and not (out / "curve.png").is_symlink()


@pytest.mark.parametrize("name", ["lock", "run.sqlite", "run.sqlite-wal"])
def test_a_run_of_which_a_file_is_a_link_is_not_written(tmp_path: Path, name: str) -> None:
    with create(tmp_path / "run") as store:
        store.commit(STATE, "", 1)
    target = tmp_path / "target"
    with suppress(FileNotFoundError):
        (tmp_path / "run" / name).rename(target)
    (tmp_path / "run" / name).symlink_to(target)
    with pytest.raises(UnreadableError, match="is a symbolic link: a run is only written to regular files"):
        Store.open(tmp_path / "run")
    if name == "run.sqlite-wal":
        assert not target.exists()
