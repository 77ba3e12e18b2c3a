"""The page's differences between strategies: intervals, tests, ranks, and when there are none."""

from pathlib import Path

import pytest

from fairlag.analyse.compare import compare, repeated
from fairlag.analyse.ranking import ranked
from fairlag.analyse.ranks import ranks_if_any
from fairlag.lab.run import Run
from fairlag.report.page.differences import differences_section
from fairlag.report.page.spec import Named, Section
from tests.support.page import checked, values
from tests.support.runs import strategies

APART = {"A": [93, 91, 90, 94, 92], "B": [91, 92, 92, 91, 93], "C": [60, 58, 59, 61, 57]}


def sections(runs: list[Run]) -> list[Section]:
    named = [Named(each.label, place) for place, each in enumerate(repeated(runs))]
    found = differences_section(ranked(compare(runs)), ranks_if_any(runs), named)
    for each in found:
        checked(each)
    return found


def test_intervals_tests_and_their_correction(tmp_path: Path) -> None:
    (section,) = sections(strategies(tmp_path, **APART))
    forest, _ = section.charts
    near, far = forest.views[""].traces
    assert values(near["x"]) == pytest.approx([-0.2]) and values(far["x"]) == pytest.approx([-33])
    assert values(far["error_x"]["array"]) == pytest.approx([1.756], abs=1e-3)  # 2.776·√2/√5
    assert (near["marker"]["color"], far["marker"]["color"]) == ("@panel", "@s2")  # only C is distinguishable
    assert "interval -34.76 to -31.24<br>p &lt; 0.001" in far["hovertemplate"].replace("p <", "p &lt;")
    layout = forest.views[""].layout
    assert layout["yaxis"]["ticktext"] == ["B", "C"]
    assert layout["xaxis"]["title"]["text"] == "difference in accuracy, points"
    low, high = layout["xaxis"]["range"]
    assert low < -34.76 and high > 1  # the intervals and 0 are inside
    (table,) = section.tables
    assert table.head[1:4] == ("difference", "95 % interval", "p")
    assert [row[-1] for row in table.rows] == ["no", "yes"]
    (remark,) = section.remarks
    assert "t-test paired over seeds, p corrected for all 3 pairs (Holm)" in remark


def test_ranks_with_their_critical_difference(tmp_path: Path) -> None:
    (section,) = sections(strategies(tmp_path, **APART))
    _, chart = section.charts
    *points, scale = chart.views[""].traces
    assert [(trace["name"], values(trace["x"])) for trace in points] == [("B", [1.4]), ("A", [1.6]), ("C", [3])]
    assert values(scale["x"]) == pytest.approx([1, 1 + 1.482], abs=1e-3)  # 2.343·√(3·4/(6·5))
    bars = [(bar["y0"], bar["y1"]) for bar in chart.views[""].layout["shapes"]]
    assert bars == [(-0.25, 1.25), (0.75, 2.25)]  # B and A, and A and C, are closer than the critical difference
    assert "Mean over 5 pairs of experiment and seed" in chart.reading
    assert chart.table is not None and chart.table.rows[2] == ["C", "3.00"]


def test_two_strategies_have_no_ranks_and_two_seeds_no_differences(tmp_path: Path) -> None:
    (section,) = sections(strategies(tmp_path / "two", A=[93, 91, 90], B=[91, 92, 92]))
    assert [chart.name for chart in section.charts] == ["differences"]
    assert sections(strategies(tmp_path / "few", A=[93, 91], B=[91, 92], C=[60, 58])) == []
    assert sections(strategies(tmp_path / "alone", A=[93, 91, 90])) == []


def test_equal_strategies_have_an_axis(tmp_path: Path) -> None:
    (section,) = sections(strategies(tmp_path, A=[90, 90, 90], B=[90, 90, 90]))
    low, high = section.charts[0].views[""].layout["xaxis"]["range"]
    assert low == -high < 0  # scores are rounded to examples, so the interval is not a point
    assert section.tables[0].rows[0][-1] == "no"
