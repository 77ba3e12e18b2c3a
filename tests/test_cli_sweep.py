"""`fairlag sweep`, and what `resume`, `compare` and `figure` make of a sweep."""

import json
from pathlib import Path
from shutil import rmtree

import pytest

from fairlag.analyse.sweep import Sensitivity, Swept, final_runs
from fairlag.cli.report import _page, _state
from fairlag.errors import InputError
from fairlag.lab.executors import ExecutorChoice
from fairlag.lab.runs import given
from fairlag.lab.serialise import toml
from fairlag.lab.sweep.make import make
from fairlag.lab.sweep.objective import Objective
from fairlag.lab.sweep.plan import SweepPlan
from fairlag.lab.sweep.progress import unfinished
from fairlag.lab.sweep.result import FINISHED, Result, Tried, Tuned
from fairlag.report.audits import Throttled
from fairlag.report.page.build import runs_page
from fairlag.report.sweep import sweep_plain
from fairlag.text.scored import ACCURACY
from tests.support.command import Call
from tests.support.sweeps import BUFFERED, FEDBUFF, made, outcome, swept


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An experiment file with a [sweep] table."""
    found = tmp_path / "mine.toml"
    found.write_text(toml(swept(BUFFERED, {**FEDBUFF, "label": "FedBuff"}, seeds=1, tests=2)))
    return found


def test_a_sweep_from_its_file_to_the_file_of_the_best(call: Call, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = call("sweep", str(file), "--over", "lr=1e300,1", "--out", str(out), "--workers", "1")
    assert found.code == 0, found.err
    assert "tuning: 8 of 8 trials" in found.err and "testing: 4 of 4 trials" in found.err
    told = " ".join(found.out.split())
    assert "Every strategy had 4 trials" in told and "Sweep by accuracy %, 1 seed per trial" in told
    assert "* FedBuff: 2 of 4 trials diverged or stalled and count as worst" in told
    best = tmp_path / "best.toml"
    compared = call("compare", str(out), "--export", str(best), "--json")
    (sweep,) = json.loads(compared.out)["sweeps"]
    for row in sweep["strategies"]:
        assert (row["trials"], row["failed"], row["setting"]["lr"]) == (4, 2, 1)
        assert row["best"] == max(row["values"]) and len(row["tested"]) == 2
        assert row["lower_quartile"] <= row["median"] <= row["upper_quartile"] <= row["best"]
    assert "# Every strategy had 4 trials.\n" in best.read_text()
    again = call("run", str(best), "--seeds", "2", "--out", str(tmp_path / "again"), "--workers", "1")
    assert again.code == 0, again.err
    repeated = json.loads(call("compare", str(tmp_path / "again"), "--json").out)["strategies"]
    assert [row["accuracy"] for row in repeated] == [row["accuracy"] for row in json.loads(compared.out)["strategies"]]
    picture = tmp_path / "sweep.png"
    assert call("figure", str(out), "--kind", "sweep", "--out", str(picture)).code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("metric", "told"), [("time:0.4", "ranked by time"), ("group", "ranked by the group's accuracy")]
)
def test_tests_are_ranked_by_what_the_sweep_tuned_for(
    call: Call, file: Path, tmp_path: Path, metric: str, told: str
) -> None:
    out = str(tmp_path / "out")
    found = call("sweep", str(file), "--metric", metric, "--out", out, "--workers", "1")
    assert found.code == 0, found.err
    compared = call("compare", out)
    for words in (found.out, compared.out):
        assert told in words
        assert ("time: virtual time to 40 % accuracy" in words) == (metric == "time:0.4")
    assert "ranked by accuracy" in call("compare", out, "--by", "accuracy").out
    if metric == "time:0.4":  # further targets do not change what decides
        assert "time: virtual time to 40 % accuracy" in call("compare", out, "--target", "0.05").out
        assert "time: virtual time to 5 % accuracy" in call("compare", out, "--target", "0.05", "--by", "time").out
    page = runs_page(final_runs(Path(out)), sweeps=[Swept.of(Path(out))])
    assert told in page.sections[0].tables[0].caption


def test_resume_removes_what_a_test_has_left_that_was_killed_at_its_end(tmp_path: Path) -> None:
    plan = made(swept(BUFFERED, seeds=1, tests=1), tmp_path / "sweep")
    (run,) = final_runs(plan.folder)
    (run.folder / "SHA256SUMS").unlink()
    left = run.folder / "model.safetensors.partial"
    left.write_bytes(b"")
    make(plan, ExecutorChoice(workers=1), lambda *_: None, new=False)
    assert not left.exists() and run.status == "finished"


def test_resume_continues_a_sweep(call: Call, file: Path, tmp_path: Path) -> None:
    experiment = swept(BUFFERED, seeds=1, tests=1)
    whole, plan = made(experiment, tmp_path / "whole"), SweepPlan(experiment, tmp_path / "parts")

    def interrupt(part: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(plan, ExecutorChoice(workers=1), interrupt, new=True)
    told = f"the sweep in '{plan.folder}' is not finished: 1 of at most 4 trials are made; "
    for words in (
        ("compare", str(plan.folder)),
        ("report", str(plan.folder), "--out", str(tmp_path / "report.html")),
        ("figure", str(plan.folder), "--kind", "curve", "--out", str(tmp_path / "curve.png")),
        ("figure", str(plan.folder), "--kind", "sweep", "--out", str(tmp_path / "sweep.png")),
        ("runs", str(plan.folder)),
    ):
        refused = call(*words)
        assert (refused.code, refused.out) == (2, "")
        assert f"fairlag: {told}`fairlag resume {plan.folder}` continues it" in " ".join(refused.err.split())
    with pytest.raises(InputError, match="1 of at most 4 trials are made"):
        given(plan.folder)
    assert told in _page(plan.folder, Throttled([], [])).lead[0]
    exists = call("sweep", str(file), "--out", str(plan.folder))
    assert exists.code == 2 and "continues it, or choose another with --out" in " ".join(exists.err.split())
    before = _state(plan.folder)
    assert call("resume", str(plan.folder), "--workers", "1").code == 0
    assert outcome(plan.folder) == outcome(whole.folder)
    assert _state(plan.folder) != before and unfinished(plan.folder) is None
    (section,) = (each for each in _page(plan.folder, Throttled([], [])).sections if each.name == "sweep")
    assert section.tables[0].rows[0][0] == "Buffered FedAvg (buffer=2)"
    (run,) = final_runs(plan.folder)
    rmtree(run.folder)
    assert "all trials are made, and 0 of 1 tests of the best settings; `fairlag resume" in str(unfinished(plan.folder))
    assert "0 of 1 tests" in call("compare", str(plan.folder)).err


def test_trials_and_tests_that_miss_the_target_are_said(tmp_path: Path) -> None:
    missing: list[dict[int, float | None]] = [{0: 5.0, 1: None}, {0: None, 1: None}]
    tried = [Tried({"lr": lr}, "", Result(FINISHED, values=values)) for lr, values in enumerate(missing, 1)]
    row = Sensitivity.of(Tuned.of("FedBuff", tried, higher=False), [7.0, None], higher=False)
    assert (row.setting, row.missed, row.values, row.tested, row.tests) == ({"lr": 1}, 2, (), (7.0,), 2)
    told = sweep_plain(Swept(tmp_path, Objective.read("time:0.9", [ACCURACY]), (0, 1), (row,)))
    assert told.rows[0][2] == "2*"
    assert told.notes[-3:] == (
        "* FedBuff: 2 of 2 trials did not reach 90 % accuracy with every seed and are in no quartile",
        "FedBuff: its setting is the one that did with most seeds, or the first of equals",
        "FedBuff: 1 of 2 tests failed or did not reach 90 % accuracy, and are not in its mean",
    )


def test_ctrl_c_says_how_to_continue(call: Call, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fairlag.lab.sweep.make.made", interrupted)
    found = call("sweep", str(file), "--out", str(tmp_path / "out"), "--workers", "1")
    assert found.code == 130 and f"interrupted: `fairlag resume {tmp_path / 'out'}`" in " ".join(found.err.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("racer", "--over", "lr=1,2"), "the experiment 'racer' has no [data]: a sweep needs a model to train"),
        (
            ("demo", "--set", "clock=wall", "--over", "lr=1,2"),
            "a sweep runs in virtual time, but the clock is 'wall'",
        ),
        (
            ("demo",),
            "there is nothing to try: give --over KEY=VALUES, such as lr=0.1,0.3,1 or 'local.lr=log(0.01,0.3)', or",
        ),
        (("demo", "--over", "lrr=1,2"), "no strategy has a parameter 'lrr' to sweep: did you mean 'lr'?"),
        (("demo", "--over", "lr=log(-1,2)"), "the range 'log(-1,2)' of 'lr' has no logarithm"),
        (("demo", "--over", "lr=log(0.1,2)"), "the number of trials per strategy must be given: --trials 40"),
        (
            ("demo", "--over", "lr=1,2", "--search", "grid", "--trials", "3"),
            "a grid tries all settings, but trials is 3",
        ),
        (("demo", "--over", "lr=log(1,2)", "--search", "grid"), "a grid needs lists of values, but there is a range"),
        (("demo", "--over", "lr=1,2", "--search", "gird"), "sweep.search is 'gird'"),
        (("demo", "--over", "lr=1,2", "--metric", "acuracy"), "the metric of a sweep is 'acuracy'"),
        (
            ("demo", "--over", "lr=1,2", "--budget", "soon"),
            "sweep.budget: it is 'soon', but must be a duration above 0",
        ),
        (("demo", "--over", "lr=1,2", "--trials", "0"), "sweep.trials is 0"),
        (("demo", "--over", "lr=1,2", "--seeds", "0"), "--seeds is 0, it must be at least 1"),
        (("demo", "--over", "lr=1,2", "--tests", "0"), "--tests is 0, it must be at least 1"),
        (
            ("demo", "--over", "lr=1,2", "--set", "data.validation=0.1"),
            "validation in [data] is 0.1, but a sweep draws validation examples itself, and tests the best settings on "
            "test examples: remove it, or write validation = 0.1 in [sweep] instead",
        ),
        (("demo", "--over", "lr=1,2", "--executor", "ray"), "the executor ray needs the address of a Ray cluster"),
    ],
)
def test_bad_input_is_one_sentence(call: Call, tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    found = call("sweep", *words, "--out", str(tmp_path / "out"))
    assert (found.code, found.out) == (2, "")
    assert sentence in " ".join(found.err.split())
    assert not (tmp_path / "out").exists()


def test_only_a_sweep_has_best_settings(call: Call, runs: Path, tmp_path: Path) -> None:
    found = call("compare", str(runs), "--export", str(tmp_path / "best.toml"))
    assert found.code == 2 and "writes the best settings of one sweep to a .toml file" in " ".join(found.err.split())
    refused = call("compare", str(runs), "--export", "word")
    assert refused.code == 2 and "latex, markdown, csv, json, or a file such as best.toml" in refused.err
    drawn = call("figure", str(runs), "--kind", "sweep", "--out", str(tmp_path / "sweep.png"))
    assert drawn.code == 2 and "there is no sweep in" in drawn.err
