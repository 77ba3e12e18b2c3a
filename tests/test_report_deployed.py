"""Runs of a real fleet, as their meta says: time is not called virtual, and incentives are those of what was seen."""

import json
from pathlib import Path

import pytest

from fairlag.analyse.compare import compare, repeated
from fairlag.analyse.evidence import staleness
from fairlag.errors import InputError
from fairlag.lab.run import Run
from fairlag.report.audits import throttled
from fairlag.report.figures.kinds import Kind
from fairlag.report.page.build import runs_page
from fairlag.report.page.shell import data
from tests.support.command import Call
from tests.support.edits import changed, deployed
from tests.support.experiments import PAPER, tables
from tests.support.runs import runs_of

ASSUMED = [{**PAPER[0], "delay": "uniform(1, 2)"}, {**PAPER[1], "delay": "uniform(1, 2)"}]


@pytest.fixture
def real(tmp_path: Path) -> Run:
    """All were assumed to be equally fast, but some took six times as long as that."""
    (run,) = runs_of(tmp_path / "runs", tables(PAPER, aggregations=300))
    file = run.folder / "experiment.json"
    written = json.loads(file.read_text())
    written["experiment"]["clients"][1]["delay"] = "uniform(1, 2)"
    file.write_text(json.dumps(written))
    return deployed(run)


def test_incentives_are_simulated_on_the_fleet_as_it_was_seen(real: Run) -> None:
    (audit,), (note,) = throttled(repeated([real]), workers=1)
    assert [group.name for group in audit.groups] == ["fast", "slow"]
    assert audit.groups[1].share == pytest.approx(real.influence("group")["share"][1], rel=0.1)
    assert audit.groups[1].share < 0.1  # as assumed, it would be a third
    assert note == "FedStaleWeight was simulated on a fleet fitted to 1,500 recorded tasks."
    (section,) = [each for each in runs_page([real], [audit], notes=[note]).sections if each.name == "incentives"]
    assert note in section.remarks and section.charts


def test_a_simulation_is_taken_at_its_word(tmp_path: Path) -> None:
    runs = runs_of(tmp_path / "runs", tables(ASSUMED, aggregations=100))
    (audit,), notes = throttled(repeated(runs), workers=1)
    assert notes == [] and audit.groups[1].share == pytest.approx(1 / 3, abs=0.03)


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (("DELETE FROM tasks WHERE client >= 10",), "was not simulated: some group has too few recorded durations"),
        (
            ("DELETE FROM tasks", "DELETE FROM aggregations"),
            "was not simulated, because its fleet cannot be fitted: there is nothing to fit",
        ),
    ],
)
def test_a_fleet_that_was_hardly_seen_is_not_simulated(real: Run, statements: tuple[str, ...], words: str) -> None:
    run = changed(real, *statements)
    audits, (note,) = throttled(repeated([run]), workers=1)
    assert audits == [] and note.startswith(f"FedStaleWeight {words}")
    (section,) = [each for each in runs_page([run], audits, notes=[note]).sections if each.name == "incentives"]
    assert section.remarks == [note] and not section.charts
    with pytest.raises(InputError, match="not all incentives can be drawn: FedStaleWeight was not simulated"):
        Kind("incentives").draw([run], Path("unused.png"))


def test_the_report_says_so(call: Call, real: Run, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    assert call("report", str(real.folder), "--out", str(file), "--workers", "1").code == 0
    assert "was simulated on a fleet fitted to 1,500 recorded tasks." in file.read_text("utf-8")


def test_staleness_is_predicted_from_what_was_seen(real: Run) -> None:
    fast, slow = staleness(repeated([real])[0])
    assert slow.predicted == pytest.approx(slow.mean, rel=0.15)
    assert fast.predicted == pytest.approx(fast.mean, rel=0.15)


def test_time_is_not_called_virtual(call: Call, real: Run) -> None:
    page = data(runs_page([real]))
    assert "irtual time" not in page
    assert "their times are real, not virtual" in page and ", as assumed" in page
    assert "aggregations, time " in repr(real)
    (found,) = compare([real])
    assert found.deployed
    shown = call("compare", str(real.folder))
    assert shown.code == 0 and "virtual time" not in shown.out


def test_the_time_of_a_simulation_is(tmp_path: Path) -> None:
    runs = runs_of(tmp_path / "runs", tables(PAPER, aggregations=30))
    page = data(runs_page(runs))
    assert "virtual time" in page and "not virtual" not in page and "assumed" not in page
    assert "aggregations, virtual time " in repr(runs[0])
