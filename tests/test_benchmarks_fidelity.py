"""The comparison of a run with simulations agrees with the audit, accepts a true fleet and finds a false one."""

import re
from pathlib import Path

import numpy as np
import pytest

import fairlag
from benchmarks.fidelity.compare import compared, with_overhead
from benchmarks.fidelity.figure import drawn
from benchmarks.fidelity.measure import measure, write_experiment
from benchmarks.fidelity.notes import overheads
from benchmarks.fidelity.rows import FILE, OVERHEAD, THEN, WHOLE, table
from benchmarks.fidelity.seen import Seen
from fairlag.analyse.audit import audit
from fairlag.fleet.clients import Fleet
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.run import Run
from tests.support.edits import changed
from tests.support.experiments import tables
from tests.support.ports import free_ports

SECONDS = 400.0
ADDED = np.random.default_rng(1).uniform(0.4, 0.8, 300)


def run_of(place: Path, experiment: Experiment, work: Fleet) -> None:
    """A folder as measure.py makes it, but simulated, so that it does not depend on how busy the machine is.

    Its nodes note that they worked as long as in the other fleet, which has no overhead.
    """
    run = fairlag.simulate(experiment, seed=7, out=place / "run", workers=1)
    assert isinstance(run, Run)
    (place / "load.csv").write_text("seconds,late\n5,0.001\n10,0.003\n")
    (place / "federation/data").mkdir(parents=True)
    tasks = run.tasks.sort_values("ended")
    for node in range(len(run.clients) // work.groups[0].per_device):
        mine = tasks[tasks["client"] // work.groups[0].per_device == node]
        long = [work.duration(*each) for each in zip(mine["client"], mine["ordinal"], strict=True)]
        rows = [f"0,1,3,{3 + seconds:.9f},0.5,0.1\n" for seconds in long]
        (place / f"federation/data/{run.groups[0]}-{node}.csv").write_text("".join(rows))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with overhead, of which its experiment file does not know, and a calibration."""
    place = tmp_path_factory.mktemp("fidelity") / "virtual"
    for each, seconds in ((place / "calibration", 60.0), (place, SECONDS)):
        plain = fairlag.load(write_experiment(each, unit=1.0, seconds=seconds, fast=10, slow=5, buffer=5))
        run_of(each, with_overhead(plain, ADDED), plain.fleet(7))
    return place


def test_a_whole_run_has_the_quantities_of_an_audit(folder: Path) -> None:
    run = Run(folder / "run")
    experiment = with_overhead(fairlag.load(folder / "experiment.toml"), ADDED)
    experiment = experiment.checked(seed=7, aggregations=run.version, until_time=None)
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


def test_true_fleets_agree_and_one_without_overhead_does_not(folder: Path) -> None:
    found = compared(folder, seeds=12, training=0)
    for fleet in (OVERHEAD, THEN, WHOLE):
        assert all(abs(row.sigmas(fleet)) < 4 for row in found.rows if not row.is_part)
    rows = {row.name: row for row in found.rows}
    for name in ("versions per hour", "share of updates, slow", "staleness, slow", "updates per device and day, fast"):
        assert not rows[name].agrees(FILE) and abs(rows[name].sigmas(FILE)) > 5
    assert rows["versions per hour"].error(FILE) == pytest.approx(100 * (0.6 / 1.5), rel=0.2)
    words = table(found)
    assert re.search(
        r"- with measured overhead: `uniform\(0\.[34]\d*, 0\.8\d*\)`, mean 0\.6\d* s, from 290 tasks", words
    )
    assert "ended 2.0 ms late on average, and 3 ms at most" in words and "it took 2.0 s in the median" in words


@pytest.mark.parametrize("per_device", [1, 2])
def test_overhead_is_what_the_server_saw_beyond_the_work(tmp_path: Path, per_device: int) -> None:
    group = {"group": "all", "count": 6, "delay": "uniform(1, 2)"} | ({"per_device": 2} if per_device > 1 else {})
    plain, experiment = (
        parse(tables([each], aggregations=40) | {"until_time": 60.0})
        for each in (group, {**group, "overhead": "uniform(0.2, 0.9)"})
    )
    work = plain.fleet(7)
    run_of(tmp_path, experiment, work)
    changed(Run(tmp_path / "run"), f"REPLACE INTO meta VALUES ('queued', '{per_device}')")
    tasks = Run(tmp_path / "run").tasks.sort_values("ended")
    fleet, expected = experiment.fleet(7), []
    for node in range(6 // per_device):
        mine = tasks[tasks["client"] // per_device == node]
        pairs = list(zip(mine["client"], mine["ordinal"], strict=True))[per_device:]
        expected += [fleet.duration(*each) - work.duration(*each) for each in pairs]
    np.testing.assert_allclose(overheads(tmp_path), expected, atol=1e-6)


@pytest.mark.slow
def test_the_table_the_figure_and_accuracy(folder: Path, tmp_path: Path) -> None:
    found = compared(folder, seeds=2, training=2, until=300.0)
    assert "| versions per hour |" in table(found) and "compared from 100 to 300 s" in table(found)
    for row in found.accuracy:
        assert 0 < row.real < 1 and abs(row.simulated[OVERHEAD][0] - row.real) < 0.2
    drawn([found, found], tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_real_federation_is_described_by_its_overhead_and_by_its_fit(tmp_path: Path) -> None:
    """A short one: four nodes, so sampling errors are large. Without Flower's overhead, the file is still far off."""
    place = tmp_path / "real"
    experiment = fairlag.load(write_experiment(place, unit=2.0, seconds=100.0, fast=3, slow=1, buffer=2))
    run = measure(place, experiment, queued=1, port=free_ports(6))
    assert run.status == "finished" and (overheads(place) > 0).all()
    (place / "calibration").symlink_to(".")
    found = compared(place, seeds=30, training=0)
    rows = {row.name: row for row in found.rows if not row.is_part}
    assert rows["versions per hour"].error(FILE) > 20 and rows["versions per hour"].sigmas(FILE) > 3
    for row in rows.values():
        for fleet in (OVERHEAD, WHOLE):
            assert abs(row.sigmas(fleet)) < 4 or abs(row.error(fleet)) < 15, table(found)


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
