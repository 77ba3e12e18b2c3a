"""The page's staleness: exact bars, means simulated and predicted, and long tails on a logarithmic axis."""

from math import log10, nan

import numpy as np
import pytest

from fairlag.analyse.evidence import GroupStaleness
from fairlag.report.page.spec import Named
from fairlag.report.page.staleness import staleness_section
from tests.support.page import HOSTILE, checked, named, size, values


def late(name: str, *counts: int, predicted: float = nan) -> GroupStaleness:
    return GroupStaleness(name, np.array(counts, np.int64), predicted)


def test_bars_are_parts_of_a_groups_updates() -> None:
    groups = [late("fast", 3, 1, predicted=0.5), late("slow", 0, 1, 1, 2, predicted=2.25)]
    section = staleness_section([(Named("FedAvg", 0), groups)])
    checked(section)
    (chart,) = section.charts
    view = chart.views["s0"]
    assert [trace["yaxis"] for trace in view.traces] == ["y"] * 3 + ["y2"] * 3
    fast, predicted, mean, slow = view.traces[:4]
    assert (values(fast["x"]), values(fast["y"])) == ([0, 1], [0.75, 0.25])
    assert fast["hovertext"] == ["0 versions", "1 version"]
    assert (predicted["x"], mean["x"]) == ([0.5, 0.5], [0.25, 0.25])
    assert predicted["line"]["dash"] != mean["line"]["dash"]
    assert (values(slow["x"]), values(slow["y"])) == ([1, 2, 3], [0.25, 0.25, 0.5])
    assert [*named(view)] == ["mean, predicted", "mean, simulated"]
    assert view.layout["annotations"][1]["text"] == "<b>slow</b>  mean 2.25, predicted 2.25"
    assert chart.table is not None
    assert chart.table.rows == [
        ["fast", "FedAvg", "4", "0.25", "0.50", "0", "1", "1"],
        ["slow", "FedAvg", "4", "2.25", "2.25", "2", "3", "3"],
    ]
    assert chart.table.marks == ["@g0", "@g1"]


def test_a_group_that_sent_nothing_and_a_mean_that_nobody_predicts() -> None:
    section = staleness_section([(Named("FedAvg", 0), [late("fast", 2), late("slow")])])
    checked(section)
    view = section.charts[0].views["s0"]
    assert [*named(view)] == ["mean, simulated"]
    assert view.layout["annotations"][1]["text"] == "<b>slow</b>  sent no update"
    assert section.charts[0].table is not None
    assert section.charts[0].table.rows[1][2:] == ["0", "–", "–", "–", "–", "–"]


def test_long_tails_are_spans_on_a_logarithmic_axis() -> None:
    counts = [1] * 1000
    section = staleness_section([(Named("FedAvg", 0), [late("slow", *counts, predicted=99.0)])])
    checked(section)
    view = section.charts[0].views["s0"]
    bars, predicted, _ = view.traces
    assert sum(values(bars["y"])) == pytest.approx(1)
    assert len(values(bars["y"])) <= 60
    assert bars["hovertext"][:2] == ["0 versions", "1 version"]
    wide = np.round(1000 * np.array(values(bars["y"]))[:-1]).astype(int)
    assert (np.diff(wide) >= 0).all()  # all are as likely, so a bar is as high as its span is wide
    assert bars["hovertext"][len(wide) - 1].startswith(f"{wide[:-1].sum()} to {wide.sum() - 1} versions")
    assert predicted["x"] == [pytest.approx(2.0)] * 2  # that of 99 versions: log10(1 + 99)
    assert view.layout["xaxis"]["tickvals"][:2] == [0.0, pytest.approx(log10(2))]
    assert section.remarks == [
        "The axis of staleness is logarithmic. Each bar covers a range, which its tooltip shows."
    ]


def test_all_strategies_have_one_axis() -> None:
    shown = [(Named("A", 0), [late("all", 5)]), (Named("B", 1), [late("all", 1, 1, 1)])]
    section = staleness_section(shown)
    checked(section)
    ranges = [view.layout["xaxis"]["range"] for view in section.charts[0].views.values()]
    assert ranges == [[-0.6, 2.6]] * 2


def test_nothing_aggregated() -> None:
    section = staleness_section([(Named("A", 0), None), (Named("B", 1), [late("all", 5)])])
    checked(section)
    assert section.remarks == ["For A, no update has been aggregated yet."]
    assert section.charts[0].switches[0].options == {"s0": "B"}
    nothing = staleness_section([(Named("A", 0), None)])
    checked(nothing)
    assert not nothing.charts


def test_hostile_names_are_no_markup() -> None:
    groups = [late(name, 1, 2, predicted=0.5) for name in HOSTILE]
    section = staleness_section([(Named(name, place), groups) for place, name in enumerate(HOSTILE)])
    checked(section)
    view = section.charts[0].views["s0"]
    assert [each["text"].split("  ")[0] for each in view.layout["annotations"]][:3] == [
        "<b>&lt;b&gt;bold&lt;/b&gt;</b>",
        "<b>%&#123;x} &amp;</b>",
        "<b>&#64;bad</b>",
    ]
    assert not any("%{x}" in trace["hovertemplate"] for trace in view.traces)


def test_many_strategies_and_groups_with_long_tails_stay_light() -> None:
    groups = [late(f"group {place}", *[1] * 100_000, predicted=5.0) for place in range(30)]
    section = staleness_section([(Named(f"S{place}", place), groups) for place in range(22)])
    checked(section)
    assert size(section) < 1_200_000
    assert "The first 12 of 30 client groups are shown." in section.remarks
