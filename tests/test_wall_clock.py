"""Runs on the wall clock: the same directories as in virtual time, told apart wherever they are shown, and resumed.

The speeds are so high that no test takes long. None looks at how fast or how late anything was.
"""

import json
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fairlag.analyse.compare import compare, repeated
from fairlag.analyse.fit.fleet import fit_fleet
from fairlag.errors import ExperimentError, InputError
from fairlag.lab import loop
from fairlag.lab.events import Event, Progress
from fairlag.lab.experiment import load, parse
from fairlag.lab.run import Run
from fairlag.lab.serialise import key_of, sha256, toml, written
from fairlag.lab.simulate import simulate
from fairlag.report.page.build import runs_page
from fairlag.report.page.shell import data
from fairlag.runtime.threads import RESUMED
from tests.support.command import Call
from tests.support.experiments import DROPPING

WALL = {"clock": "wall", "speed": 2000}


def trained(folder: Path, **changes: Any) -> Run:
    return simulate({**DROPPING, **changes}, executor="serial", out=folder)


def rows(run: Run, question: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(run.folder / "run.sqlite")) as database:
        return database.execute(question).fetchall()


def check_whole(run: Run, aggregations: int) -> None:
    """Versions are dense, and every task ended once or is still running or buffered at the end."""
    assert run.status == "finished" and run.aggregations["version"].tolist() == [*range(1, aggregations + 1)]
    counts = run.meta["counts"]
    assert counts["dispatched"] == sum(counts.values()) - counts["dispatched"]
    ended = Counter(run.tasks["outcome"])
    assert ended == {name: counts[name] for name in ended} and run.tasks["task"].is_unique
    assert run.tasks["staleness"].min() >= 0


# Experiments


def test_the_clock_is_part_of_what_an_experiment_is() -> None:
    virtual, wall = load("demo"), load("demo").checked(**WALL)
    assert load("demo").checked(clock="virtual") == virtual and sha256(virtual) != sha256(wall)
    assert key_of(virtual) != key_of(wall) != key_of(wall.checked(speed=100.0))
    assert "clock" not in json.loads(written(virtual))["experiment"]
    assert 'clock = "wall"\nspeed = 2000' in toml(wall)
    assert parse(json.loads(written(wall))["experiment"]) == wall


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"clock": "wal"}, "clock is 'wal': it must be 'virtual' or 'wall'"),
        ({"clock": "wall", "speed": 0}, "speed is 0: it must be greater than 0"),
        ({"clock": "wall", "speed": -1.0}, "speed is -1.0: it must be greater than 0"),
        ({"clock": "wall", "speed": float("inf")}, "speed is inf: it must be finite"),
        ({"clock": "wall", "speed": "fast"}, "speed is 'fast': it must be a valid number"),
        (
            {"speed": 200},
            r'speed is 200, but only the wall clock has a speed: give clock = "wall" \(--clock wall\)',
        ),
        ({"clock": "virtual", "speed": 200}, "but only the wall clock has a speed"),
    ],
)
def test_a_clock_that_there_is_not_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ExperimentError, match=sentence):
        load("demo").checked(**changes)


# Runs


def test_a_run_that_trains_has_the_same_directory_as_in_virtual_time(tmp_path: Path) -> None:
    before = threading.enumerate()
    virtual, wall = trained(tmp_path / "virtual"), trained(tmp_path / "wall", **WALL)
    check_whole(wall, 12)
    assert {thread for thread in threading.enumerate() if thread not in before and not thread.daemon} == set()
    assert wall.meta.keys() - virtual.meta.keys() == {"clock", "speed", "lateness"}
    assert virtual.meta.keys() <= wall.meta.keys()
    assert (wall.meta["clock"], wall.meta["speed"]) == ("wall", 2000.0)
    late = wall.meta["lateness"]
    assert 0 < late["mean"] <= late["most"] and late["share"] > 0
    assert sorted(file.name for file in wall.folder.iterdir()) == sorted(file.name for file in virtual.folder.iterdir())
    names = "SELECT name, sql FROM sqlite_master ORDER BY name"
    assert rows(wall, names) == rows(virtual, names)
    assert {name: array.shape for name, array in wall.tensors().items()} == {
        name: array.shape for name, array in virtual.tensors().items()
    }
    assert all(np.isfinite(array).all() for array in wall.tensors().values())
    ends = [run.evaluations.query("whole and scope == 'all'")["version"].tolist() for run in (wall, virtual)]
    assert ends == [[12], [12]]
    assert wall.evaluations["version"].isin([0, 4, 8, 12]).all()


def test_the_fleet_draws_the_same_durations_as_in_virtual_time(tmp_path: Path) -> None:
    """No task arrives before it is due, and its duration does not depend on the clock."""
    wall = trained(tmp_path / "wall", **WALL)
    fleet, tasks = parse(DROPPING).fleet(), wall.tasks
    assert len(tasks) >= 36
    for row in tasks.to_dict("records"):
        due = row["dispatched"] + fleet.duration(row["client"], row["ordinal"], row["steps"])
        assert row["ended"] >= due - 1e-6


@pytest.mark.parametrize(
    "use",
    [
        {"use": "fedavg", "cohort": 4, "over": 0.5, "deadline": 8.0},
        {"use": "fairshare", "buffer": 3, "estimator": "account"},
        {"use": "asofed"},
    ],
    ids=lambda use: str(use["use"]),
)
def test_strategies_of_every_kind_train(tmp_path: Path, use: dict[str, Any]) -> None:
    check_whole(trained(tmp_path / "run", **WALL, strategies=[use]), 12)


class Untrainable(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.last = nn.Linear(64, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            raise ValueError("no gradient")
        output: torch.Tensor = self.last(inputs.flatten(1))
        return output


def untrainable(shape: tuple[int, ...], classes: int) -> nn.Module:
    return Untrainable(classes)


def test_an_exception_of_the_model_ends_the_run_as_in_virtual_time(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^task \d of client \d failed: ValueError: no gradient"):
        trained(tmp_path / "run", **WALL, model={"use": untrainable})
    assert Run(tmp_path / "run").status == "failed"


# Resumed


def test_an_interrupted_run_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT", 0.0)
    monkeypatch.setattr(loop, "_COSTLY", 0)
    tables = {**DROPPING, **WALL, "aggregations": 60}

    def interrupt(event: Event) -> None:
        if isinstance(event, Progress) and event.version >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(tables, executor="serial", out=tmp_path / "run", watch=interrupt)
    run = Run(tmp_path / "run")
    assert run.status == "interrupted" and run.version >= 20 and run.meta["lateness"]["mean"] > 0
    at = run.virtual_time
    run = simulate(tables, executor="serial", out=tmp_path / "run", resume=True)
    check_whole(run, 60)
    assert run.aggregations["time"].is_monotonic_increasing and run.virtual_time > at
    lost = run.tasks.query("outcome == 'lost'")
    assert set(lost["reason"]) <= {RESUMED}


def test_a_run_does_not_continue_on_a_different_clock(tmp_path: Path) -> None:
    trained(tmp_path / "run", **WALL)
    with pytest.raises(InputError, match=r"to a different experiment: clock is wall there and None here"):
        simulate(DROPPING, executor="serial", out=tmp_path / "run", resume=True)


# Shown


def test_they_are_compared_beside_runs_in_virtual_time(call: Call, tmp_path: Path) -> None:
    for seed in (0, 1):
        trained(tmp_path / f"virtual{seed}", seed=seed)
        trained(tmp_path / f"wall{seed}", seed=seed, **WALL)
    done = call("compare", str(tmp_path), "--json")
    virtual, wall = json.loads(done.out)["strategies"]
    if virtual["real_time"]:
        virtual, wall = wall, virtual
    assert [virtual["label"], wall["label"]] == [
        "FedStaleWeight (buffer=3)",
        "FedStaleWeight (buffer=3), wall clock ×2000",
    ]
    assert virtual["seeds"] == wall["seeds"] == [0, 1]
    assert virtual["remarks"] == [] and not virtual["real_time"]
    (remark,) = wall["remarks"]
    assert remark.startswith("updates arrived ") and " s late on average, which is " in remark
    assert not wall["deployed"]
    assert "wall clock ×2000" in call("compare", str(tmp_path)).out
    listed = json.loads(call("runs", str(tmp_path), "--json").out)
    assert Counter(each["label"] for each in listed) == {virtual["label"]: 2, wall["label"]: 2}


def test_the_page_says_so(tmp_path: Path) -> None:
    wall = trained(tmp_path / "wall", **WALL)
    page = data(runs_page([wall]))
    assert "irtual time" not in page and "wall clock \\u00d72000" in page.replace("×", "\\u00d7")
    assert "on the wall clock, 2000 times as fast, until 12 aggregations are made." in page
    assert "updates arrived " in page
    assert ", as assumed" not in page and "real fleet" not in page  # it is simulated as the file says
    assert "wall clock ×2000" in str(wall) and "aggregations, time " in str(wall)
    assert [each.label for each in repeated([wall])] == [compare([wall])[0].label] == [wall.label]


def test_a_fleet_that_is_fitted_to_it_is_simulated_in_virtual_time(tmp_path: Path) -> None:
    fitted = fit_fleet(trained(tmp_path / "wall", **WALL)).experiment
    assert fitted.clock is None and fitted.speed is None and fitted.population == 6


# The command line


def test_the_command_line_sets_the_clock(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["run", "racer", "--aggregations", "20", "--strategy", "fedstaleweight"]
    assert call(*words).code == 0
    done = call(*words, "--clock", "wall", "--speed", "2000")
    assert done.code == 0 and "FedStaleWeight, wall clock ×2000" in done.out
    assert done.out.endswith(
        "The runs are in runs/racer-wall-clock-2000; there was nothing to train, so there is no figure\n"
    )
    assert sorted(file.name for file in (tmp_path / "runs").iterdir()) == ["racer", "racer-wall-clock-2000"]
    (file,) = (tmp_path / "runs/racer-wall-clock-2000").glob("*/experiment.json")
    (tmp_path / "wall.toml").write_text(toml(parse(json.loads(file.read_text())["experiment"])))
    assert call("run", "wall.toml", "--clock", "virtual", "--out", "back").code == 0
    assert not any("clock" in run.meta for run in map(Run, Path("back").glob("*-seed0")))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--clock", "wall", "--speed", "0"], "speed is 0.0: it must be greater than 0"),
        (["--speed", "200"], 'only the wall clock has a speed: give clock = "wall" (--clock wall)'),
        (["--clock", "sun"], "clock is 'sun': it must be 'virtual' or 'wall'"),
        (["--clock", "wall", "--speed", "fast"], "'fast' is not a valid float"),
    ],
)
def test_bad_words_are_one_sentence(call: Call, tmp_path: Path, words: list[str], sentence: str) -> None:
    done = call("run", "demo", "--out", str(tmp_path / "out"), *words)
    assert done.code == 2 and sentence in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
