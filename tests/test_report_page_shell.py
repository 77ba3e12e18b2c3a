"""The words at the top of the report page, and how a page is packed."""

from pathlib import Path

import pytest

from fairlag.analyse.compare import compare, repeated
from fairlag.lab.experiment import load
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute
from fairlag.report.page.build import runs_page
from fairlag.report.page.shell import data, html, shell
from fairlag.report.page.spec import Page, Section
from fairlag.report.page.summary import described, experiment_section, findings, settings
from tests.support.page import checked


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two strategies with two seeds, trained for a moment."""
    experiment = load("demo").only(["buffered_fedavg", "fairshare"]).checked(aggregations=20)
    return execute(Plan(experiment, (0, 1), tmp_path_factory.mktemp("demo") / "runs"), new=True, workers=1)


def test_experiments_are_told_once_with_all_their_strategies_and_seeds(demo: list[Run]) -> None:
    (tables,) = settings(repeated(demo))
    assert tables["seeds"] == [0, 1]
    assert [each["label"] for each in tables["strategies"]] == ["Buffered FedAvg", "FairShare"]
    assert described(tables) == (
        "15 clients train the model mlp on digits until 20 aggregations are made. "
        "A task is 1 step on batches of 32 at a learning rate of 0.1."
    )


def test_what_is_not_usual_is_told() -> None:
    tables = {
        "clients": [{"count": 1}],
        "until_time": 3600.0,
        "data": {"use": "digits"},
        "model": {"use": "mlp"},
        "local": {"epochs": 2, "batch": 8, "lr": 0.5, "momentum": 0.9, "prox": 0.01},
    }
    assert described(tables) == (
        "1 client trains the model mlp on digits until the virtual time is 3,600. "
        "A task is 2 epochs on batches of 8 at a learning rate of 0.5, with momentum 0.9 and proximal term 0.01."
    )


def test_strategies_with_tasks_of_their_own_are_named(demo: list[Run]) -> None:
    (tables,) = settings(repeated(demo))
    one, other = tables["strategies"]
    tuned = {**tables, "local": {**tables["local"], "lr": 0.5}, "strategies": [other]}
    page = experiment_section([{**tables, "strategies": [one]}, tuned], [], [], ["fast", "slow"])
    assert page.lead == (
        "15 clients train the model mlp on digits until 20 aggregations are made. "
        "Buffered FedAvg: a task is 1 step on batches of 32 at a learning rate of 0.1. "
        "FairShare: a task is 1 step on batches of 32 at a learning rate of 0.5."
    )


def test_the_page_of_runs(demo: list[Run]) -> None:
    page = runs_page(demo)
    assert page.title == "demo"
    assert page.facts == {
        "clients": "15",
        "strategies": "2",
        "seeds": "2",
        "runs finished": "4 of 4",
        "aggregations": "80",
    }
    for section in page.sections:
        checked(section)
    ranking, fleet = page.sections[0].tables
    assert len(ranking.rows) == 2
    assert sorted(ranking.marks) == ["@s0", "@s1"]
    assert fleet.head == ["group", "clients", "a task takes", "labels"]
    assert fleet.rows == [["fast", "10", "uniform(1, 2)", "4–9"], ["slow", "5", "uniform(8, 12)", "0–3"]]


def test_findings_say_how_far_seeds_tell_and_whom_the_least_even_strategy_forgets(demo: list[Run]) -> None:
    compared = compare(demo)
    first, *others = findings(compared)
    assert first.startswith("The strategies are not distinguishable by accuracy (2 seeds are too few): it ranges from ")
    assert [line.split(",")[0] for line in others] == ["Under Buffered FedAvg", "Under FairShare"]
    slow = compared[0].groups[1].influence.mean
    assert slow is not None
    assert f"the group slow has {100 * slow:.1f}\u00a0% of all weight; 33.3\u00a0% would be fair" in others[0]


def test_nothing_is_found_of_nothing() -> None:
    assert findings([]) == []


def test_text_cannot_end_the_script_that_it_is_in() -> None:
    hostile = "</script><!--<script>"
    page = Page(hostile, [hostile], {}, [Section("one", hostile, hostile)])
    text = html(page)
    assert text.count("</script>") == shell("x", "page.json", "plotly.js").count("</script>")
    assert "<!--<script>" not in text
    assert hostile in data(page)


def test_a_page_that_follows_has_no_data_of_its_own() -> None:
    text = shell("runs", "page.json", "plotly.js")
    assert '{"follow": "page.json"}' in text
    assert len(text) < 60_000


def test_the_style_knows_every_token() -> None:
    text = shell("x", "y", "z")
    for name in ("s0", "s6", "g0", "g7", "ink", "faint", "grid", "edge", "ground", "panel", "link", "bad"):
        assert text.count(f"--{name}:#") == 3, name  # light, dark by the system, dark by choice


def test_what_is_written_can_be_read_anywhere(demo: list[Run], tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(html(runs_page(demo)), "utf-8")
    assert file.read_bytes().startswith(b"<!DOCTYPE html>")
    assert b'<meta charset="utf-8">' in file.read_bytes()[:200]
