"""The page's accuracy: exact lines and bands, every choice, and all that strategies may lack or have too much of."""

import numpy as np
import pytest

from fairlag.analyse.curves import Curves, ScoreCurves
from fairlag.analyse.spread import Spread
from fairlag.report.page.score import score_section
from fairlag.report.page.spec import Named
from tests.support.page import HOSTILE, checked, named, size, values
from tests.support.runs import curve

NOTHING = ScoreCurves((), Spread.of([]), Spread.of([]))


def scored(*seeds: list[float], step: float = 5.0) -> ScoreCurves:
    """A curve a seed, with an evaluation every so many seconds; what it ends with is final."""
    curves = tuple(curve([step * place for place in range(len(seed))], seed) for seed in seeds)
    return ScoreCurves(curves, Spread.of(seed[-1] for seed in seeds), Spread.of(max(seed) for seed in seeds))


def test_lines_and_bands_against_time_and_aggregations() -> None:
    found = Curves(scored([0.0, 0.4], [0.2, 0.6]), {"slow": scored([0.0, 0.2], [0.0, 0.2])})
    section = score_section([(Named("FedAvg", 0), found)], ["fast", "slow"])
    checked(section)
    (chart,) = section.charts
    assert [*chart.views] == ["time|all", "time|g0", "version|all", "version|g0"]
    assert chart.switches[1].options == {"all": "all labels", "g0": "labels of slow"}
    low, high, line = chart.views["time|all"].traces
    assert values(line["x"]) == [0, 5]
    assert values(line["y"]) == pytest.approx([0.1, 0.5])
    assert values(low["y"]) == pytest.approx([0.0, 0.4])
    assert values(high["y"]) == pytest.approx([0.2, 0.6])
    assert line["text"] == ["±10.00"] * 2
    assert "±: half the range of 2 seeds" in line["hovertemplate"]
    assert line["line"]["color"] == "@s0"
    assert values(chart.views["version|g0"].traces[2]["x"]) == [0, 10]
    assert "on labels of slow" in chart.views["version|g0"].traces[2]["hovertemplate"]
    assert "mean and range of 2 seeds" in chart.views["time|all"].words
    assert chart.table is not None
    assert chart.table.head[:4] == ["strategy", "seeds", "final", "best"]
    assert chart.table.rows == [["FedAvg", "2", "50.00 ±14.14", "50.00 ±14.14", "20.00 ±0.00", "20.00 ±0.00"]]


def test_several_seeds_have_the_interval_of_their_mean() -> None:
    section = score_section([(Named("FedAvg", 0), Curves(scored([0.0, 0.4], [0.1, 0.5], [0.2, 0.6]), {}))], [])
    chart = section.charts[0]
    low, high, line = chart.views["time|all"].traces
    margin = 4.302653 * 0.1 / np.sqrt(3)
    assert values(low["y"]) == pytest.approx([0.0, 0.5 - margin])  # no accuracy is below 0
    assert values(high["y"]) == pytest.approx([0.1 + margin, 0.5 + margin])
    assert "±: 95 % interval of the mean over 3 seeds" in line["hovertemplate"]
    assert "mean over 3 seeds and its 95 % interval" in chart.views["time|all"].words


def test_one_seed_has_the_standard_error_of_its_sample() -> None:
    section = score_section([(Named("FedAvg", 0), Curves(scored([0.5]), {}))], [])
    checked(section)
    low, high, line = section.charts[0].views["time|all"].traces
    assert [*values(low["y"]), *values(high["y"])] == pytest.approx([0.49, 0.51])
    assert (line["text"], line["mode"]) == (["±1.00"], "markers")
    assert "±: standard error of the test sample" in line["hovertemplate"]


def test_the_line_ends_with_the_first_of_its_seeds() -> None:
    section = score_section([(Named("FedAvg", 0), Curves(scored([0.2, 0.6], [0.4]), {}))], [])
    _, _, line = section.charts[0].views["time|all"].traces
    assert values(line["y"]) == pytest.approx([0.3])
    assert line["text"] == ["±10.00"]


def test_strategies_that_were_not_evaluated_are_named() -> None:
    shown = [(Named("A", 0), Curves(NOTHING, {})), (Named("B", 1), Curves(scored([0.5, 0.6]), {}))]
    section = score_section(shown, ["fast"])
    checked(section)
    assert section.remarks == ["For A, nothing has been evaluated yet."]
    nothing = score_section(shown[:1], ["fast"])
    checked(nothing)
    assert not nothing.charts
    assert nothing.remarks[0].startswith("No version has been evaluated")


def test_a_group_that_one_strategy_lacks_is_left_out_there() -> None:
    with_slow = Curves(scored([0.1, 0.2]), {"slow": scored([0.0, 0.1])})
    shown = [(Named("A", 0), with_slow), (Named("B", 1), Curves(scored([0.1, 0.3]), {}))]
    section = score_section(shown, ["slow"])
    checked(section)
    assert [*named(section.charts[0].views["time|g0"])] == ["A"]
    assert section.charts[0].table is not None
    assert section.charts[0].table.rows[1][-2:] == ["–", "–"]


def test_names_are_shown_letter_by_letter_and_cut_where_they_are_long() -> None:
    found = Curves(scored([0.1, 0.2]), {name: scored([0.1, 0.2]) for name in HOSTILE})
    section = score_section([(Named(name, place), found) for place, name in enumerate(HOSTILE)], HOSTILE)
    checked(section)
    chart = section.charts[0]
    names = [*named(chart.views["time|all"])]
    assert names[:3] == ["&lt;b&gt;bold&lt;/b&gt;", "%&#123;x} &amp;", "&#64;bad"]
    assert len(names[3]) == 32
    assert "%{x} &" not in chart.views["time|g1"].traces[2]["hovertemplate"]
    assert chart.switches[1].options["g0"] == "labels of <b>bold</b>"


def test_many_strategies_and_evaluations_stay_light() -> None:
    rising = np.linspace(0, 1, 4000).tolist()
    groups = [f"group {place}" for place in range(5)]
    found = Curves(scored(rising, rising, rising), {name: scored(rising) for name in groups})
    section = score_section([(Named(f"S{place}", place), found) for place in range(22)], groups)
    checked(section)
    assert size(section) < 1_200_000
    assert section.remarks == ["Each line shows 90 of up to 4,000 evaluations, spread evenly over the axis."]
    _, _, line = section.charts[0].views["time|all"].traces[:3]
    assert (values(line["y"])[0], values(line["y"])[-1], len(values(line["y"]))) == (0, 1, 90)
    alone = score_section([(Named("S", 0), found)], groups)
    assert len(values(alone.charts[0].views["time|all"].traces[2]["x"])) == 300


def test_of_many_groups_the_first_are_shown() -> None:
    groups = [f"group {place}" for place in range(40)]
    found = Curves(scored([0.1, 0.2]), {name: scored([0.1, 0.2]) for name in groups})
    section = score_section([(Named("A", 0), found)], groups)
    checked(section)
    assert len(section.charts[0].views) == 26
    assert section.remarks == ["The first 12 of 40 client groups are shown."]
