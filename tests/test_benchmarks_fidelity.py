"""The comparison of a run with simulations agrees with the audit, accepts a true fleet and finds a false one."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import fairlag
from benchmarks.fidelity.compare import FILE, THEN, WHOLE, compared, table
from benchmarks.fidelity.figure import drawn
from benchmarks.fidelity.measure import write_experiment
from benchmarks.fidelity.seen import Seen
from fairlag.analyse.audit import audit
from fairlag.lab.run import Run

SECONDS = 400.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as measure.py makes it, but simulated, so that it does not depend on how busy the machine is."""
    place = tmp_path_factory.mktemp("fidelity") / "virtual"
    file = write_experiment(place, unit=1.0, seconds=SECONDS, fast=10, slow=5, buffer=5)
    fairlag.simulate(fairlag.load(file), seed=7, out=place / "run", workers=1)
    (place / "load.csv").write_text("seconds,load\n5,1.5\n10,2.5\n")
    return place


def test_a_whole_run_has_the_quantities_of_an_audit(folder: Path) -> None:
    run = Run(folder / "run")
    experiment = fairlag.load(folder / "experiment.toml").checked(seed=7, aggregations=run.version, until_time=None)
    (found,) = audit(experiment, seeds=1, incentive_updates=1)
    names = {name: name for name in run.groups}
    for seen in (Seen.run(run), Seen.simulated(experiment, 7)):
        real = seen.quantities(0.0, found.virtual_time, experiment.model_bytes, names)
        assert real["versions per hour"] == pytest.approx(found.deployment.versions_per_hour)
        assert real["part of tasks lost"] == found.deployment.lost == 0
        assert real["part of time waiting"] == pytest.approx(found.deployment.waiting, abs=1e-3)
        assert real["megabytes per device and day"] == pytest.approx(found.deployment.megabytes_per_day)
        for group in found.groups:
            assert real[f"share of updates, {group.name}"] == pytest.approx(group.share)
            assert real[f"influence, {group.name}"] == pytest.approx(group.influence)
            assert real[f"staleness, {group.name}"] == pytest.approx(group.staleness)
            assert real[f"updates per device and day, {group.name}"] == pytest.approx(group.deployment.updates_per_day)


def test_a_true_fleet_agrees_and_a_false_one_does_not(folder: Path, tmp_path: Path) -> None:
    true = compared(folder, seeds=12, training=0)
    assert all(abs(row.sigmas(FILE)) < 4 for row in true.rows if row.real and row.simulated[FILE][1])
    shutil.copytree(folder, tmp_path / "false")
    file = tmp_path / "false" / "experiment.toml"
    file.write_text(file.read_text().replace("uniform(8, 12)", "uniform(4, 6)"))
    rows = {row.name: row for row in compared(tmp_path / "false", seeds=12, training=0).rows}
    for name in ("share of updates, slow", "staleness, slow", "influence, slow"):
        assert not rows[name].agrees(FILE) and abs(rows[name].sigmas(FILE)) > 5
        assert abs(rows[name].error(THEN)) < 15 and abs(rows[name].error(WHOLE)) < 15


@pytest.mark.slow
def test_the_table_the_figure_and_accuracy(folder: Path, tmp_path: Path) -> None:
    found = compared(folder, seeds=2, training=2)
    words = table(found)
    assert "load average 1.5 to 2.5" in words and "| versions per hour |" in words
    for row in found.accuracy:
        assert 0 < row.real < 1 and abs(row.simulated[FILE][0] - row.real) < 0.2
    drawn([found, found], tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_tasks_count_in_the_window_in_which_they_were_merged() -> None:
    seen = Seen(
        groups=["a", "b"],
        client=np.array([0, 1, 0]),
        dispatched=np.array([0.0, 0.0, 6.0]),
        ended=np.array([4.0, 8.0, 9.0]),
        merged=np.array([5.0, np.nan, 10.0]),
        staleness=np.array([0.0, np.nan, 1.0]),
        weight=np.array([1.0, np.nan, 1.0]),
        refused=np.array([0, 1, 0]),
        versions=np.array([5.0, 10.0]),
    )
    found = seen.quantities(5.0, 10.0, 1_000_000, {"a": "a", "b": "b"})
    assert found["versions per hour"] == 720 and found["part of tasks lost"] == 0.5
    assert found["share of updates, a"] == 1 and found["staleness, a"] == 1
    assert found["part of time waiting"] == pytest.approx(0.1)  # client 0, from 5 to 6
    assert found["megabytes per device and day"] == pytest.approx(4 / 2 / (5 / 86400))
