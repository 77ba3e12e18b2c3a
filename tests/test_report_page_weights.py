"""The weights of aggregations: exact numbers of small runs, one by one and in bins, and what the page says of them."""

from math import inf, isnan, nan
from pathlib import Path

import numpy as np
import pytest

from fairlag.analyse.weights import weights
from fairlag.core.types import Aggregation, Dispatch, Parts
from fairlag.lab.run import Run
from fairlag.lab.store import Store
from fairlag.report.page.spec import Named, View
from fairlag.report.page.weights import POINTS, weights_section
from tests.support.page import checked, named, values
from tests.support.runs import bare, made, shuffled

FEDAVG = Named("FedAvg", 0)


def view_of(folder: Path, room: int) -> View:
    section = weights_section([(FEDAVG, weights(made(folder), room))])
    checked(section)
    return section.charts[0].views["s0"]


def test_weights_of_a_short_run_one_by_one(tmp_path: Path) -> None:
    found = weights(made(tmp_path), 4)
    assert (found.groups, found.aggregations, found.updates, found.equal) == (("fast", "slow"), 2, 4, 0.5)
    assert found.single is not None
    single = found.single
    assert single.aggregation.tolist() == [1, 1, 2, 2]
    assert single.client.tolist() == [0, 1, 2, 0]
    assert single.group_of.tolist() == [0, 0, 1, 0]
    assert single.staleness.tolist() == [0, 0, 1, 0]
    assert single.weight.tolist() == [0.5, 0.5, 0.75, 0.25]


def test_weights_of_a_long_run_in_bins(tmp_path: Path) -> None:
    found = weights(shuffled(tmp_path, tasks=40), 39, bins=4)
    assert found.single is None
    even = found.binned.of(0)
    assert even.first.tolist() == [1, 11, 21, 31]
    assert even.last.tolist() == [9, 19, 29, 39]
    assert even.updates.tolist() == [5, 5, 5, 5]
    assert even.mean.tolist() == [1.0] * 4
    assert (even.least.tolist(), even.most.tolist()) == ([1.0] * 4, [1.0] * 4)
    assert (even.low.tolist(), even.high.tolist(), found.every) == ([1.0] * 4, [1.0] * 4, 1)


def weighted(folder: Path, *values: float) -> Run:
    """Of one client whose updates had these weights."""
    one = np.array([0])
    with Store.create(folder, {}, experiment="", groups=["all"], group_of=one, examples=one) as store:
        for place, value in enumerate(values):
            task = (Dispatch(place, 0, place, place, float(place)),)
            store.record(Aggregation(place + 1, place + 1.0, task, [1.0], np.array([0]), np.array([value]), False))
        store.commit({}, "", len(values))
    return Run(folder)


def test_updates_that_are_kept_are_said_to_be(tmp_path: Path) -> None:
    one = np.array([0])
    with Store.create(tmp_path / "kept", {}, experiment="", groups=["all"], group_of=one, examples=one) as store:
        task, parts = (Dispatch(0, 0, 0, 0, 0.0),), Parts(one, np.array([0.5]), 1.0)
        store.record(Aggregation(1, 1.0, task, [1.0], one, np.array([0.5]), False, "", parts, 1.0))
        store.commit({}, "", 1)
    found = weights(Run(tmp_path / "kept"), 10)
    assert found.kept and not weights(weighted(tmp_path / "plain", 0.5), 10).kept
    words = weights_section([(FEDAVG, found)]).charts[0].views["s0"].words
    assert "a client's last update acts in every version until its next one replaces it" in words


def test_eight_tenths_of_the_weights_are_between_low_and_high(tmp_path: Path) -> None:
    found = weights(weighted(tmp_path, *[0.01 * (7 * place % 101) for place in range(101)]), 0, bins=1).binned
    assert [*found.low, *found.high, *found.mean] == pytest.approx([0.1, 0.9, 0.5])  # the 11th and the 91st of 0 to 1


def test_the_middle_is_looked_for_in_some_of_very_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlag.analyse.weights._SORTED", 5)
    run = weighted(tmp_path, *[0.5, 0.1] * 5)
    found = weights(run, 0, bins=1)
    assert (found.every, found.binned.low.tolist(), found.binned.high.tolist()) == (2, [0.1], [0.1])
    assert (found.binned.least.tolist(), found.binned.most.tolist()) == ([0.1], [0.5])
    assert (
        weights_section([(FEDAVG, found)])
        .charts[0]
        .views["s0"]
        .words.endswith("Bands are computed from one in 2 aggregations.")
    )


def test_each_update_is_a_point(tmp_path: Path) -> None:
    view = view_of(tmp_path, 4)
    fast, slow, equal = (named(view)[name] for name in ("fast", "slow", "all the same"))
    assert (values(fast["x"]), values(fast["y"])) == ([1, 1, 2], [0.5, 0.5, 0.25])
    assert values(fast["customdata"]) == [[0, 0], [1, 0], [0, 0]]
    assert (values(slow["x"]), values(slow["y"]), values(slow["customdata"])) == ([2], [0.75], [[2, 1]])
    assert (equal["x"], equal["y"]) == ([1, 2], [0.5, 0.5])
    assert (fast["marker"]["color"], slow["marker"]["color"]) == ("@g0", "@g1")
    assert fast["marker"]["symbol"] != slow["marker"]["symbol"]
    assert view.words == "4 updates in 2 aggregations, 2 in each on average."


def test_many_updates_are_lines_with_bands(tmp_path: Path) -> None:
    view = view_of(tmp_path, 3)
    fast = named(view)["fast"]
    assert (values(fast["x"]), values(fast["y"])) == ([1, 2], [0.5, 0.25])
    assert values(fast["customdata"]) == [[1, 1, 2, *[0.5] * 4], [2, 2, 1, *[0.25] * 4]]
    assert [values(trace["y"]) for trace in view.traces[:2]] == [[0.5, 0.25]] * 2
    assert view.traces[1]["fill"] == "tonexty"
    assert view.words.endswith("These are too many to show one by one: a point on a line covers one aggregation.")


def test_the_table_is_of_all_updates(tmp_path: Path) -> None:
    for room in (3, 4):
        table = weights_section([(FEDAVG, weights(made(tmp_path / str(room)), room))]).charts[0].table
        assert table is not None
        assert table.rows == [
            ["FedAvg, fast", "3", "0.4167", "0.25", "0.5"],
            ["FedAvg, slow", "1", "0.75", "0.75", "0.75"],
        ]


@pytest.mark.parametrize(("weight", "shown", "mean"), [(-0.5, -0.5, "-0.5"), (7.0, 7.0, "7"), (nan, None, "–")])
@pytest.mark.parametrize("room", [0, 10])
def test_weights_of_any_kind(tmp_path: Path, weight: float, shown: float | None, mean: str, room: int) -> None:
    section = weights_section([(FEDAVG, weights(bare(tmp_path, weight=weight), room))])
    checked(section)
    (chart,) = section.charts
    assert values(named(chart.views["s0"])["slow"]["y"]) == [shown]
    assert chart.table is not None
    assert chart.table.rows[1][:3] == ["FedAvg, slow", "1", mean]
    assert ("1 weights are not numbers" in chart.views["s0"].words) == isnan(weight)


def test_an_endless_weight_is_a_gap(tmp_path: Path) -> None:
    for room in (0, 10):
        section = weights_section([(FEDAVG, weights(bare(tmp_path / str(room), weight=inf), room))])
        checked(section)
        assert values(named(section.charts[0].views["s0"])["slow"]["y"]) == [None]


def test_names_are_no_markup(tmp_path: Path) -> None:
    run = bare(tmp_path, weight=1.0, groups=("<b>", "%{x}"))
    for room in (0, 10):
        section = weights_section([(Named("@s0 <i>", 0), weights(run, room))])
        checked(section)
        assert {"&lt;b&gt;", "%&#123;x}"} <= set(named(section.charts[0].views["s0"]))


def test_a_run_without_updates_is_a_sentence(tmp_path: Path) -> None:
    nothing = weights(bare(tmp_path / "bare"), 10)
    section = weights_section([(FEDAVG, nothing)])
    checked(section)
    assert (section.charts, section.remarks) == ((), ["No update has been aggregated yet."])
    some = weights_section([(FEDAVG, nothing), (Named("Mine", 1), weights(made(tmp_path / "made"), 10))])
    checked(some)
    assert some.remarks[0] == "For FedAvg, no update has been aggregated yet."


def test_of_many_groups_the_first_are_shown(tmp_path: Path) -> None:
    names = tuple(f"group {place}" for place in range(20))
    section = weights_section([(FEDAVG, weights(bare(tmp_path, weight=1.0, groups=names), POINTS.of_each(1)))])
    checked(section)
    assert "The first 12 of 20 client groups are shown." in section.remarks
    assert set(named(section.charts[0].views["s0"])) == {"group 0", "all the same"}  # the other client is of group 19
