"""`fairlag fit-fleet`: the table, the JSON, the file and what reads it, and what is refused with which sentence."""

import json
from pathlib import Path

import pytest

from fairlag.lab.experiment import load
from fairlag.lab.runs import runs as found_runs
from tests.support.command import Call
from tests.support.edits import changed
from tests.support.experiments import PAPER, tables
from tests.support.runs import runs_of


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One run in a folder `runs` below this one; nothing was trained."""
    monkeypatch.chdir(tmp_path)
    runs_of(Path("runs"), tables(PAPER, aggregations=200))
    return Path("runs")


def test_the_table_the_file_and_the_next_command(call: Call, runs: Path) -> None:
    done = call("fit-fleet", "runs")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].rstrip() == "The fleet of fleet, as measured"
    heads = "group clients updates used lost mean 10 % 50 % 90 % KS"
    assert lines[2].split() == heads.split()
    assert lines[4].split()[:4] == ["fast", "10", "933", "929"]
    assert lines[5].split()[0] == "uniform"
    assert "14 tasks were running at the end: their durations were not observed." in done.out
    assert (
        lines[-1] == "The fleet was written to fleet.toml; `fairlag audit fleet.toml` predicts who the model listens to"
    )
    assert max(map(len, lines[:-1])) <= 80
    audited = call("audit", "fleet.toml", "--seeds", "1", "--incentive-updates", "1", "--json")
    assert audited.code == 0
    assert json.loads(audited.out)["strategies"][0]["groups"]["slow"]["share"] == pytest.approx(0.07, abs=0.01)


def test_what_was_learnt_is_in_the_file(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("run", "demo", "--aggregations", "20", "--strategy", "fairshare", "--out", "runs").code == 0
    assert call("fit-fleet", "runs").code == 0
    found, first = load("fleet.toml"), load("demo")
    assert (found.data, found.model, found.local, found.seed) == (first.data, first.model, first.local, first.seed)
    assert [table.labels for table in found.clients] == [table.labels for table in first.clients]
    assert found.aggregations == 20 and found.strategies == first.only(["fairshare"]).strategies
    shown = call("data", "show", "fleet.toml")
    assert shown.code == 0 and "demo-fitted" in shown.out
    assert call("run", "fleet.toml", "--aggregations", "5").code == 0


def test_json_and_nothing_else(call: Call, runs: Path) -> None:
    done = call("fit-fleet", "runs", "--how", "lognormal", "--out", "other.toml", "--json")
    found = json.loads(done.out)
    assert (done.code, found["file"], found["experiment"]) == (0, "other.toml", "fleet-fitted")
    fast, slow = found["groups"]
    assert (fast["group"], fast["family"], slow["lost"]) == ("fast", "lognormal", 0)
    assert fast["seen"]["quantiles"]["0.5"] == pytest.approx(1.5, abs=0.05)
    assert fast["table"]["delay"] == load("other.toml").clients[0].delay


def test_a_file_is_overwritten_only_when_that_is_asked_for(call: Call, runs: Path) -> None:
    Path("fleet.toml").write_text("mine")
    done = call("fit-fleet", "runs")
    sentence = "fairlag: 'fleet.toml' exists: choose another file with --out, or overwrite it with --force\n"
    assert (done.code, done.out, done.err) == (2, "", sentence)
    assert Path("fleet.toml").read_text() == "mine"
    assert call("fit-fleet", "runs", "--force").code == 0
    assert load("fleet.toml").name == "fleet-fitted"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere",), "there is no folder 'nowhere'"),
        (("empty",), "there are no runs in 'empty'"),
        (("runs", "--how", "weibull"), "cannot fit by 'weibull': choose one of best, empirical, uniform, normal, "),
        (("runs", "--out", "no/x.toml"), "--out is 'no/x.toml', but there is no folder 'no'"),
        (("spoilt",), "there is no run in 'spoilt'"),
    ],
)
def test_what_is_refused(call: Call, runs: Path, words: tuple[str, ...], sentence: str) -> None:
    Path("empty").mkdir()
    Path("spoilt").mkdir()
    Path("spoilt/run.sqlite").write_bytes(b"x" * 5000)
    done = call("fit-fleet", *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"fairlag: {sentence}") and len(done.err.splitlines()) == 1
    assert not Path("fleet.toml").exists()


def test_a_run_without_tasks(call: Call, runs: Path) -> None:
    (run,) = found_runs(runs)
    changed(run, "DELETE FROM tasks")
    done = call("fit-fleet", "runs")
    assert done.code == 2 and "there is nothing to fit in" in done.err and len(done.err.splitlines()) == 1


def test_modules_of_the_user_are_found_beside_their_own_experiment(call: Call, runs: Path) -> None:
    Path("mine").mkdir()
    Path("mine/equal_rules.py").write_text(
        "import numpy as np\n\n\ndef equal(buffer, view):\n    return np.full(len(buffer), 1 / len(buffer))\n"
    )
    Path("mine/own.toml").write_text(
        'name = "own"\naggregations = 50\n[[clients]]\ngroup = "all"\ncount = 5\ndelay = "uniform(1, 2)"\n'
        '[[strategies]]\nuse = "equal_rules:equal"\nbuffer = 2\n'
    )
    assert call("run", "mine/own.toml", "--out", "own").code == 0
    done = call("fit-fleet", "own")
    assert done.code == 2 and not Path("fleet.toml").exists()
    assert done.err.startswith(
        "fairlag: 'equal_rules:equal' is only found next to the run's own experiment file: write to '"
    )
    assert call("fit-fleet", "own", "--out", "mine/fleet.toml").code == 0
    assert load("mine/fleet.toml").strategies[0].use == "equal_rules:equal"
