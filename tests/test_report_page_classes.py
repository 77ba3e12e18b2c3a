"""The page's heat map of classes: exact cells, who holds a class, and many classes."""

from dataclasses import replace

import numpy as np
import pytest

from fairlag.analyse.classes import ClassCurve, ClassCurves
from fairlag.report.page.classes import classes_section
from fairlag.report.page.spec import Named
from tests.support.page import HOSTILE, checked, size, values


def found(
    accuracy: list[list[float]], *more: list[list[float]], holders: dict[str, tuple[str, ...]] | None = None
) -> ClassCurves:
    """A seed each: a row a class, evaluated every ten aggregations and five seconds."""
    seeds = []
    for rows in (accuracy, *more):
        places = np.arange(len(rows[0]), dtype=np.float64)
        seeds.append(ClassCurve(10 * places, 5 * places, np.array(rows)))
    names = tuple(str(place) for place in range(len(accuracy)))
    return ClassCurves(names, holders or {}, tuple(seeds), len(accuracy[0]))


def test_cells_are_means_over_seeds_and_rows_name_who_holds_them() -> None:
    holders = {"0": ("slow",), "1": ("slow",), "2": ("fast", "slow")}
    curves = found([[0, 0.2], [1, 1], [0, 1]], [[0.5, 0.4], [1, 1], [0, 1]], holders=holders)
    section = classes_section([(Named("FedAvg", 0), curves), (Named("Mine", 1), curves)], ["fast", "slow"])
    checked(section)
    (chart,) = section.charts
    assert [*chart.views] == ["s0|time", "s0|version", "s1|time", "s1|version"]
    view = chart.views["s0|version"]
    (heat,) = view.traces
    assert values(heat["z"]) == [pytest.approx(row) for row in ([0.25, 0.3], [1, 1], [0, 1])]
    assert (values(heat["x"]), heat["y"]) == ([0, 10], ["0 · slow", "1 · slow", "2"])
    assert values(chart.views["s1|time"].traces[0]["x"]) == [0, 5]
    assert [(each["fillcolor"], each["y0"], each["y1"]) for each in view.layout["shapes"]] == [("@g1", -0.5, 1.5)]
    assert view.words == "Mean over 2 seeds, up to the end of the shortest run."
    assert chart.table is not None
    assert chart.table.head == ["class", "held by", "FedAvg", "Mine"]
    assert chart.table.rows[0] == ["0", "slow", "30.00 ±14.14", "30.00 ±14.14"]
    assert chart.table.marks == ["@g1", "@g1", ""]


def test_rows_have_the_names_that_the_data_gives_its_classes() -> None:
    long = "a name that is too long to stand beside a row"
    called = ("home", "<b>stay", long, f"{long}, too")
    curves = replace(found([[0.5]] * 4, holders={"1": ("slow",)}), called=called)
    section = classes_section([(Named("A", 0), curves)], ["fast", "slow"])
    checked(section)
    rows = section.charts[0].views["s0|version"].traces[0]["y"]
    assert rows[:2] == ["home", "&lt;b&gt;stay · slow"] and len(set(rows)) == 4 and max(map(len, rows[2:])) == 20
    assert section.charts[0].table is not None
    assert [row[:2] for row in section.charts[0].table.rows] == [
        ["home", ""],
        ["<b>stay", "slow"],
        *([name, ""] for name in called[2:]),
    ]


def test_one_seed_and_strategies_without_classes() -> None:
    section = classes_section([(Named("A", 0), None), (Named("B", 1), found([[0.5]]))], ["all"])
    checked(section)
    assert section.charts[0].views["s0|version"].words == "One seed."
    assert section.charts[0].views["s0|version"].traces[0]["y"] == ["0"]
    assert section.remarks == ["For A, no class has been evaluated yet."]
    nothing = classes_section([(Named("A", 0), None)], ["all"])
    checked(nothing)
    assert not nothing.charts


def test_hostile_names_are_no_markup() -> None:
    holders: dict[str, tuple[str, ...]] = {str(place): (name,) for place, name in enumerate(HOSTILE)}
    curves = found([[0.5, 1.0]] * len(HOSTILE), holders=holders)
    section = classes_section([(Named(name, place), curves) for place, name in enumerate(HOSTILE)], HOSTILE)
    checked(section)
    rows = section.charts[0].views["s0|version"].traces[0]["y"]
    assert rows[:3] == ["0 · &lt;b&gt;bold&lt;/b&gt;", "1 · %&#123;x} &amp;", "2 · &#64;bad"]
    assert len(rows[3]) == 4 + 14


def test_many_classes_share_rows_and_many_strategies_have_fewer_columns() -> None:
    rows = [[place / 1000] * 150 for place in range(1000)]
    section = classes_section([(Named(f"S{place}", place), found(rows)) for place in range(22)], ["all"])
    checked(section)
    (heat,) = section.charts[0].views["s0|time"].traces
    cells = values(heat["z"])
    assert (len(cells), len(cells[0])) == (100, 40)
    assert cells[0] == [pytest.approx(0.0045)] * 40  # the mean of 0 to 9 thousandths
    assert heat["y"][:2] == ["0–9", "10–19"]
    assert size(section) < 1_600_000
    assert section.remarks == [
        "A heat map shows 40 of up to 150 evaluations, spread evenly over the axis.",
        "1,000 classes share 100 rows: a cell is the mean of neighbouring classes.",
    ]
