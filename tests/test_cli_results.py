"""`fairlag runs` and `fairlag compare` as a user meets them, and what runs look like while they are made."""

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from fairlag.cli.progress import Board, Lines
from fairlag.lab.events import Over, Progress
from fairlag.lab.experiment import load
from fairlag.lab.plan import Plan, slug
from tests.support.command import Call
from tests.support.runs import made


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Two strategies, one of them with two seeds."""
    for label, seed, gain in (("FedAvg", 0, 0), ("FedAvg", 1, 10), ("Mine", 0, 20)):
        made(tmp_path / f"runs/demo/{label.lower()}-seed{seed}", label=label, seed=seed, gain=gain)
    return tmp_path / "runs"


def test_runs_are_listed(call: Call, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = call("runs", str(kept))
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines() if "finished" in line] == [
        "fedavg-seed0",
        "fedavg-seed1",
        "mine-seed0",
    ]
    monkeypatch.chdir(kept.parent)
    assert call("runs").code == 0


def test_runs_are_listed_also_if_one_cannot_be_read(call: Call, kept: Path) -> None:
    (kept / "demo/mine-seed0/run.sqlite").write_bytes(b"no database at all, but long enough to look like one")
    done = call("runs", str(kept))
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines() if "unreadable" in line] == [["mine-seed0", "unreadable"]]
    assert "its run.sqlite is something else" in " ".join(done.out.split())
    done = call("compare", str(kept))
    assert (done.code, done.err.count("\n")) == (0, 1)
    assert done.err.startswith("fairlag: left out: there is no run in ") and "mine-seed0" in done.err
    assert "FedAvg" in done.out and "Mine" not in done.out


def test_strategies_are_compared(call: Call, kept: Path) -> None:
    done = call("compare", str(kept), "--target", "0.6", "--target", "0.9")
    assert done.code == 0
    assert max(len(line) for line in done.out.splitlines()) <= 80
    assert "69.00 ±7.07" in done.out
    assert [line.split()[-7:] for line in done.out.splitlines() if " % " in line and " of " in line] == [
        ["60", "%", "9", "2", "1", "of", "1"],
        ["90", "%", "9", "2", "1", "of", "1"],
        ["60", "%", "9", "2", "2", "of", "2"],
        ["90", "%", "–", "–", "0", "of", "2"],
    ]


def test_json_is_exactly_what_is_promised(call: Call, kept: Path) -> None:
    done = call("compare", str(kept), "--json", "--target", "0.8")
    assert (done.code, done.err) == (0, "")
    mine, average = json.loads(done.out)["strategies"]
    assert (mine["rank"], average["rank"]) == (1, 2)
    assert (mine["label"], average["label"], average["seeds"]) == ("Mine", "FedAvg", [0, 1])
    assert mine["accuracy"]["final"] == {"mean": 0.84, "deviation": None, "seeds": 1}
    assert mine["accuracy"]["reached"][0]["aggregations"] == {"mean": 2.0, "deviation": None, "seeds": 1}
    assert list(mine["groups"]) == ["fast", "slow"]
    assert mine["groups"]["slow"]["influence"]["mean"] == 0.375


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ("accuracy", [("1", "Mine"), ("2", "FedAvg")]),
        ("group", [("1", "Mine"), ("2", "FedAvg")]),
        ("influence", [("1", "FedAvg"), ("1", "Mine")]),
        ("jain", [("1", "FedAvg"), ("1", "Mine")]),
        ("time", [("1", "FedAvg"), ("1", "Mine")]),
    ],
)
def test_strategies_are_ranked_and_then_shown_in_that_order(
    call: Call, kept: Path, by: str, rows: list[tuple[str, str]]
) -> None:
    done = call("compare", str(kept), "--by", by, "--target", "0.5")
    lines = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert [tuple(line.split()[:2]) for line in lines[3:5]] == rows
    assert [line.split()[0] for line in lines if "Jain index 0." in line] == [label for _, label in rows]
    assert [word.lower() for word in lines[2].split() if "▾" in word] == [f"▾{by}"]
    ranks = [(str(each["rank"]), each["label"]) for each in told(call, str(kept), "--by", by, "--target", "0.5")]
    assert ranks == rows


def told(call: Call, *words: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(call("compare", *words, "--json").out)["strategies"]
    return found


def test_accuracy_is_what_strategies_are_ranked_by_unless_something_else_is_said(call: Call, kept: Path) -> None:
    assert call("compare", str(kept)).out == call("compare", str(kept), "--by", "accuracy").out


def test_what_no_run_has_cannot_be_ranked_by(call: Call, kept: Path) -> None:
    for by, hint in (("Jain", "did you mean 'jain'?"), ("mse", "choose from accuracy, group, influence, jain, time")):
        done = call("compare", str(kept), "--by", by)
        assert (done.code, done.out) == (2, "")
        assert done.err == f"fairlag: cannot rank the strategies of 'demo' by {by!r}: {hint}\n"


def test_json_ranks_each_experiment_for_itself(call: Call, kept: Path) -> None:
    made(kept / "other/a", label="A", experiment="other")
    made(kept / "other/b", label="B", experiment="other", gain=30)
    found = [(each["experiment"], each["rank"], each["label"]) for each in told(call, str(kept))]
    assert found == [("demo", 1, "Mine"), ("demo", 2, "FedAvg"), ("other", 1, "B"), ("other", 2, "A")]


def test_equals_keep_the_order_of_the_experiment_file(call: Call, tmp_path: Path) -> None:
    for label in ("A", "B", "C (x=1)"):
        made(tmp_path / f"{slug(label)}-seed0", label=label)
    assert [each["label"] for each in told(call, str(tmp_path))] == ["A", "B", "C (x=1)"]
    strategies = [{"use": "fedavg", "label": label} for label in ("C (x=1)", "B")]
    (tmp_path / "plan.json").write_text(json.dumps({"seeds": [0], "experiment": {"strategies": strategies}}))
    assert [each["label"] for each in told(call, str(tmp_path))] == ["C (x=1)", "B", "A"]
    given = [str(tmp_path / "b-seed0"), str(tmp_path)]
    assert [each["label"] for each in told(call, *given)] == ["B", "C (x=1)", "A"]
    for nonsense in ("{", "[]", '{"experiment": {"strategies": [1]}}'):
        (tmp_path / "plan.json").write_text(nonsense)
        assert [each["label"] for each in told(call, str(tmp_path))] == ["A", "B", "C (x=1)"]


@pytest.mark.parametrize(("count", "shown"), [(6, True), (7, False)])
def test_of_many_strategies_only_the_ranking_is_printed(call: Call, tmp_path: Path, count: int, shown: bool) -> None:
    for place in range(count):
        made(tmp_path / str(place), label=f"S{place}", gain=place)
    few, all_of_it = call("compare", str(tmp_path)).out, call("compare", str(tmp_path), "--details").out
    hint = f"{count} strategies: `fairlag compare DIR --details` shows the groups of each\n"
    assert few.endswith(hint) == (not shown)
    assert ("Time to an accuracy" in few, "S0  1 seed" in few) == (shown, shown)
    assert [line.split()[1] for line in few.splitlines()[3:][:count]] == [f"S{place}" for place in range(count)][::-1]
    assert hint not in all_of_it
    assert [line.split()[0] for line in all_of_it.splitlines() if "  1 seed, " in line] == [
        f"S{place}" for place in range(count)
    ][::-1]
    assert (few == all_of_it) == shown


def test_what_is_to_know_is_said_once_also_without_details(call: Call, tmp_path: Path) -> None:
    for place in range(7):
        made(tmp_path / str(place), label=f"S{place}", finished=place > 4)
    done = call("compare", str(tmp_path))
    assert done.out.endswith("S0, S1, S2 and 2 more: seed 0 is unfinished, at 1 of 2 aggregations.\n")


def test_a_figure_is_drawn(call: Call, kept: Path) -> None:
    figure = kept / "figure.pdf"
    done = call("compare", str(kept), "--figure", str(figure))
    assert done.out.endswith(f"The figure was written to {figure}\n")
    assert figure.read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["runs", "no/such"], "there is no folder 'no/such'"),
        (["runs", "."], "there are no runs in '.'"),
        (["compare"], "Missing argument 'DIR...'"),
        (["compare", "."], "there are no runs in '.'"),
        (["compare", ".", "--by"], "Option '--by' requires an argument."),
        (["compare", ".", "--figure", "x.gif"], "'x.gif' cannot be drawn: the name must end with .png, .pdf, .svg"),
        (["compare", ".", "--figure", "no/x.png"], "--figure is 'no/x.png', but there is no folder 'no'"),
    ],
)
def test_mistakes_are_one_sentence(
    call: Call, words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(*words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"fairlag: {sentence}")


def test_a_target_beyond_1_is_refused(call: Call, kept: Path) -> None:
    done = call("compare", str(kept), "--target", "80")
    assert (done.code, done.err) == (2, "fairlag: a target accuracy is 80.0, it must be above 0 and at most 1\n")


# While runs are made


def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, seeds: int = 1) -> tuple[Board, Plan]:
    """A table of the demo's runs on a clock that moves on by a second whenever it is looked at."""
    seconds = iter(range(1000))
    monkeypatch.setattr("fairlag.cli.progress.monotonic", lambda: float(next(seconds)))
    plan = Plan(load("demo"), tuple(range(seeds)), tmp_path)
    return Board(plan), plan


def drawn(board: Board, width: int = 80, height: int = 24) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height, color_system=None)
    console.print(board)
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


FOUND = {"": 0.5, "fast": 0.75, "slow": 0.25}


def test_the_live_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, plan = board(tmp_path, monkeypatch)
    assert drawn(table) == ["Loading the data and the model …"]
    first, second, _ = plan
    table(first, Progress(2, 1.0, 10, {}))
    table(first, Progress(2000, 1400.0, 10_000, FOUND))
    table(first, Over("finished", "2000 aggregations were made"))
    table(second, Progress(100, 70.0, 500, {}))
    table(second, Progress(500, 350.0, 2500, FOUND))
    expected = """\
strategy        seed    versions  time all % fast slow updates/s     left
Buffered FedAvg    0 2,000/2,000 1,400  50.0 75.0 25.0     9,990 finished
FedStaleWeight     0   500/2,000   350  50.0 75.0 25.0     2,000     0:04
FairShare          0     0/2,000     0                            waiting
1 of 3 runs finished, about 0:09 left"""
    assert drawn(table) == expected.splitlines()
    assert "━" in drawn(table, width=120)[1]
    table(second, Over("interrupted", ""))
    table.close()
    assert drawn(table)[2].endswith("interrupted")
    assert drawn(table)[-1] == "1 of 3 runs finished"


def test_the_live_table_fits_a_small_terminal_until_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, plan = board(tmp_path, monkeypatch, seeds=10)
    planned = list(plan)
    table(planned[20], Progress(100, 70.0, 500, FOUND))
    lines = drawn(table, height=12)
    assert len(lines) <= 12
    assert any(line.endswith("…") for line in lines)
    table.close()
    assert len(drawn(table, height=12)) == 32
    narrow = drawn(table, width=70)
    assert "worst" in narrow[0]
    assert max(map(len, narrow)) <= 70


def test_lines_come_at_quarters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(load("demo"), (0,), tmp_path)
    lines, first = Lines(plan), next(iter(plan))
    for version in (100, 499, 510, 600, 1700, 2000):
        lines(first, Progress(version, 10.0, 5, FOUND if version > 600 else {}))
    lines(first, Progress(2000, 20.0, 5, FOUND))
    lines(first, Over("finished", "2000 aggregations were made"))
    assert capsys.readouterr().err.splitlines() == [
        "Buffered FedAvg, seed 0: 510 of 2,000 aggregations, time 10",
        "Buffered FedAvg, seed 0: 1,700 of 2,000 aggregations, time 10, accuracy 50.0 % (fast 75.0 %, slow 25.0 %)",
        "Buffered FedAvg, seed 0: 2,000 of 2,000 aggregations, time 20, accuracy 50.0 % (fast 75.0 %, slow 25.0 %)",
    ]


def test_the_command_line_starts_without_what_only_training_needs() -> None:
    heavy = (
        "import sys, fairlag.cli; print({'matplotlib', 'pandas', 'sklearn', 'torch', 'mlflow', 'tensorboard', 'wandb'}"
        " & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout == "set()\n"
