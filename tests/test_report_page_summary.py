"""The top of the page: what was run and what came out, of one experiment or several whose client groups differ."""

import re
from pathlib import Path
from typing import Any

import pytest

from fairlag.lab.experiment import parse
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute
from fairlag.report.page.build import runs_page
from fairlag.report.page.spec import Page, Section
from fairlag.report.page.summary import experiment_section
from tests.support.page import checked


def made(folder: Path, name: str, groups: dict[str, tuple[int, str]], **more: Any) -> list[Run]:
    """Runs of an experiment with these groups: how many clients, and how long they take."""
    clients = [{"group": group, "count": count, "delay": delay} for group, (count, delay) in groups.items()]
    tables = {"name": name, "aggregations": 20, "clients": clients, **more}
    return execute(
        Plan(parse({"strategies": [{"use": "fedbuff"}], **tables}), (0,), folder / name), new=True, workers=1
    )


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Two experiments that have groups of the same names in another order; one of them trains."""
    folder = tmp_path_factory.mktemp("two")
    fast, slow = (4, "uniform(1, 2)"), (2, "uniform(8, 12)")
    learning = {"data": {"use": "digits"}, "model": {"use": "logistic"}, "local": {"lr": 0.1}}
    runs = made(folder, "first", {"fast": fast, "slow": slow}, **learning)
    runs += made(folder, "other", {"slow": slow, "medium": (3, "uniform(3, 4)"), "fast": fast})
    return runs_page(runs)


def section(page: Page, name: str) -> Section:
    return next(each for each in page.sections if each.name == name)


def test_groups_keep_their_colours_in_every_experiment_and_section(two: Page) -> None:
    for each in two.sections:
        checked(each)
    fleets = section(two, "experiment").tables[2:]
    assert [[row[0] for row in fleet.rows] for fleet in fleets] == [["fast", "slow"], ["slow", "medium", "fast"]]
    assert [list(fleet.marks) for fleet in fleets] == [["@g0", "@g1"], ["@g1", "@g2", "@g0"]]
    influence, staleness = section(two, "influence").charts[0], section(two, "staleness").charts[0]
    assert [*influence.views] == ["s0", "s1"]  # clients differ, so no axis would be right for both
    for view, groups in zip(influence.views.values(), ("fast slow", "slow medium fast"), strict=True):
        bars = {trace["name"]: trace["marker"]["color"] for trace in view.traces if trace["type"] == "bar"}
        assert bars == {name: {"fast": "@g0", "slow": "@g1", "medium": "@g2"}[name] for name in groups.split()}
    assert staleness.table is not None
    marks = {row[0]: mark for row, mark in zip(staleness.table.rows, staleness.table.marks, strict=True)}
    assert marks == {"fast": "@g0", "slow": "@g1", "medium": "@g2"}
    for name, tokens in (("timeline", ["@g1", "@g2", "@g0"]), ("weights", ["@g1", "@g2", "@g0"])):
        table = section(two, name).charts[0].table
        assert table is not None
        assert list(table.marks)[2:] == tokens
    rules = section(two, "timeline").charts[0].views["s1"].layout["shapes"]
    assert [rule["fillcolor"] for rule in rules] == ["@g1", "@g2", "@g0"]


def test_each_experiment_is_told_of_and_ranked_by_what_it_has(two: Page) -> None:
    first, other = section(two, "experiment").tables[:2]
    assert first.caption == "Comparison of first, ranked by accuracy"
    assert other.caption == "Comparison of other, ranked by Jain index"
    assert "accuracy %" in first.head
    assert [name for name in other.head if "accuracy" in name or name == "time"] == []
    assert other.rows[0][0] == "1 FedBuff"
    assert two.lead[0].startswith("In first: FedBuff ended with an accuracy of ")
    assert [line.split(",")[0] for line in two.lead[1:]] == ["In first: Under FedBuff", "In other: Under FedBuff"]
    legends = [line for line in section(two, "experiment").remarks if line.startswith("The highest first. ")]
    assert ["accuracy" in line for line in legends] == [True, False]
    assert re.search(r"Time: virtual time to \d+ % accuracy \(95 % of the lowest final accuracy, ", legends[0])


def test_long_names_are_cut_at_the_head_of_a_column(tmp_path: Path) -> None:
    names = {"x" * 60: (2, "uniform(1, 2)"), "y" * 60: (2, "uniform(1, 2)")}
    page = runs_page(made(tmp_path, "long", names))
    table = section(page, "experiment").tables[0]
    assert max(len(name) for name in table.head) <= 32


def test_a_fleet_that_several_settings_share_is_shown_once(tmp_path: Path) -> None:
    fleet = {"all": (2, "uniform(1, 2)")}
    runs = [run for rate in (0.1, 0.2) for run in made(tmp_path / str(rate), "one", fleet, local={"lr": rate})]
    ranking, shown = section(runs_page(runs), "experiment").tables
    assert [row[0] for row in ranking.rows] == ["1 FedBuff [local.lr=0.1]", "1 FedBuff [local.lr=0.2]"]
    assert shown.caption == "The clients of one"


def test_labels_have_the_names_that_the_data_gives_them() -> None:
    clients = [{"group": "fast", "count": 1, "labels": [0]}, {"group": "slow", "count": 1, "labels": [0, 1]}]
    tables = {"name": "x", "clients": clients}
    for classes, cells in (({}, ["0", "0–1"]), ({"x": ("benign", "malignant")}, ["benign", "benign, malignant"])):
        (fleet,) = experiment_section([tables], [], [], ["fast", "slow"], classes=classes).tables
        assert [row[-1] for row in fleet.rows] == cells
