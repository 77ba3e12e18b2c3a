"""The section about clients' own data: its lines, its marks, its tables, and what it says of who is tested."""

from pathlib import Path

import numpy as np
import pytest

from fairlag.analyse.own_data import OwnData, own_data
from fairlag.analyse.totals import OwnScores
from fairlag.lab.experiment import load
from fairlag.lab.simulate import simulate
from fairlag.report.page.build import runs_page
from fairlag.report.page.own_data import own_data_section
from fairlag.report.page.spec import Named
from fairlag.text.scored import ACCURACY, Scored
from tests.support.own_data import GROUPS, run_with_tests
from tests.support.page import checked, values

STEPS = 5


def own(before: list[float], after: list[float], lead: Scored = ACCURACY, **changes: int) -> OwnData:
    groups = ["fast", "fast", "slow"]
    seed = {
        False: OwnScores.of(before, groups, higher=lead.higher),
        True: OwnScores.of(after, groups, higher=lead.higher),
    }
    return OwnData(lead, GROUPS, (seed,), **{"steps": STEPS, "tested": 3, "able": 3, "clients": 3, **changes})


FAIR = (Named("FairShare", 0), own([0.9, 0.7, 0.4], [0.9, 0.9, 0.8]))
OTHER = (Named("FedAvg", 1), own([0.9, 0.9, 0.0], [0.9, 0.9, 0.5]))


def test_a_line_per_strategy_goes_from_the_worst_client_to_the_best() -> None:
    section = own_data_section([FAIR, OTHER], GROUPS)
    checked(section)
    chart, groups = section.charts
    assert [*chart.views] == [f"{who}|{model}" for who in ("all", "g0", "g1") for model in ("model", "own")]
    first, second = chart.views["all|model"].traces
    drawn = values(first["y"])
    assert (drawn[0], drawn[50], drawn[100]) == pytest.approx((0.4, 0.7, 0.9))
    assert values(second["y"])[0] == 0.0
    assert values(chart.views["g1|own"].traces[1]["y"])[0] == 0.5
    line, other_line, fast, slow = groups.views["model"].traces
    assert line["x"] == pytest.approx([0.4, 0.8]) and other_line["x"] == pytest.approx([0.0, 0.9])
    assert fast["x"] == pytest.approx([0.8, 0.9]) and slow["x"] == pytest.approx([0.4, 0.0])
    assert groups.views["own"].traces[0]["x"] == pytest.approx([0.8, 0.9])


def test_the_tables_have_the_worst_tenth_and_the_gap() -> None:
    chart, groups = own_data_section([FAIR, OTHER], GROUPS).charts
    assert chart.table is not None and groups.table is not None
    assert chart.table.head[2:] == [
        "mean",
        "worst tenth",
        "mean after 5 local steps",
        "worst tenth after 5 local steps",
    ]
    assert chart.table.rows[0] == ["FairShare, all", "3", "66.67", "46.00", "86.67", "82.00"]
    assert chart.table.rows[2] == ["FairShare, slow", "1", "40.00", "40.00", "80.00", "80.00"]
    assert groups.table.rows == [
        ["FairShare", "40.00", "slow", "10.00", "slow"],
        ["FedAvg", "90.00", "slow", "40.00", "slow"],
    ]


def test_of_an_error_the_highest_is_the_worst_and_nothing_is_in_per_cent() -> None:
    mse = Scored("mse", higher=False, rate=False)
    section = own_data_section([(Named("A", 0), own([3.0, 5.0, 9.0], [2.0, 2.0, 3.0], mse))], GROUPS)
    checked(section)
    chart, groups = section.charts
    assert values(chart.views["all|model"].traces[0]["y"])[0] == 9.0
    assert groups.table is not None and groups.table.rows == [["A", "5.000", "slow", "1.000", "slow"]]
    assert "%" not in str(chart.views["all|model"].layout["yaxis"]) and "per cent" not in str(chart.table)


def test_without_own_steps_and_with_one_group_there_is_less_to_choose() -> None:
    alone = OwnData(ACCURACY, ("all",), ({False: OwnScores.of([0.5], ["all"], higher=True)},), 0, 1, 1, 1)
    section = own_data_section([(Named("A", 0), alone)], ("all",))
    checked(section)
    (chart,) = section.charts
    assert [*chart.views] == ["all"] and "local steps" not in section.lead


def test_it_says_who_is_not_tested() -> None:
    few = own([0.9, 0.7, 0.4], [0.9, 0.9, 0.8], tested=500, able=2000, clients=2100)
    assert own_data_section([(Named("A", 0), few), (Named("B", 1), None)], GROUPS).remarks == [
        "For B, no run has finished yet: clients are tested at the end.",
        "100 of 2,100 clients have too few examples for a test of their own.",
        "Tested are 500 of 2,000 clients: a sample with the same shares of groups, drawn by the seed.",
    ]


def test_lines_are_means_over_seeds(tmp_path: Path) -> None:
    runs = [run_with_tests(tmp_path / "0", [0.9, 0.7, 0.4]), run_with_tests(tmp_path / "1", [0.9, 0.7, 0.6], seed=1)]
    found = own_data(runs)
    assert found is not None and (found.tested, found.able, found.clients, found.steps) == (3, 3, 3, 0)
    quantiles = found.quantiles(None, np.array([0.0, 0.5, 1.0]), personalised=False)
    assert quantiles is not None and quantiles.tolist() == pytest.approx([0.5, 0.7, 0.9])
    assert found.quantiles(None, np.array([0.5]), personalised=True) is None


def test_the_page_has_the_section_only_if_clients_are_tested(tmp_path: Path) -> None:
    demo = load("demo").checked(aggregations=3)
    without = simulate(demo, strategy="fairshare", out=tmp_path / "without", workers=1)
    own_tests = demo.checked(evaluate={"clients": 0.2, "personalise": 2})
    with_tests = simulate(own_tests, strategy="fairshare", out=tmp_path / "with", workers=1)
    (section,) = (each for each in runs_page([with_tests, without]).sections if each.name == "own-data")
    checked(section)
    assert "2 local steps" in section.lead
    assert "own-data" not in [section.name for section in runs_page([without]).sections]
