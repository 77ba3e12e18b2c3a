"""The timeline on the report page: which bars it has, where, in which colours, and what it says of itself."""

from math import inf
from pathlib import Path

import numpy as np

from fairlag.analyse.timeline import Bar, Timeline, timeline, timeline_if_any
from fairlag.report.page.lanes import rows_of
from fairlag.report.page.spec import Json, Named, View
from fairlag.report.page.timeline import BARS, timeline_section
from tests.support.page import checked, size, values
from tests.support.runs import bare, made, shuffled

FEDAVG = Named("FedAvg", 0)


def view_of(shown: Timeline) -> View:
    section = timeline_section([(FEDAVG, shown)])
    checked(section)
    return section.charts[0].views["s0"]


def bars(view: View, name: str) -> list[tuple[int, float, float]]:
    """The row, the beginning and the length of every bar of that name."""
    (trace,) = (trace for trace in view.traces if trace.get("name") == name)
    return list(zip(trace["y"], values(trace["base"]), values(trace["x"]), strict=True))


def trace_of(view: View, name: str) -> Json:
    (found,) = (trace for trace in view.traces if trace.get("name") == name)
    return found


def test_every_task_is_a_bar_in_the_lane_of_its_client(tmp_path: Path) -> None:
    view = view_of(timeline(made(tmp_path)))
    assert bars(view, "fast") == [(1, 0.0, 1.0), (2, 0.0, 2.0), (1, 2.0, 7.0)]
    assert bars(view, "slow") == [(4, 0.0, 8.0)]  # below the row with the name of its group
    assert bars(view, "refused") == [(2, 2.0, 1.0)]
    assert bars(view, "waiting to be merged") == [(1, 1.0, 1.0), (4, 8.0, 1.0)]
    assert view.layout["yaxis"]["tickvals"] == [1, 2, 4]
    assert view.layout["yaxis"]["ticktext"] == ["0", "1", "2"]
    assert [each["text"] for each in view.layout["annotations"]] == ["<b>fast</b>, 2 clients", "<b>slow</b>, 1 client"]
    assert [(each["fillcolor"], each["y0"], each["y1"]) for each in view.layout["shapes"]] == [
        ("@g0", 0.54, 2.46),
        ("@g1", 3.54, 4.46),
    ]


def test_bars_have_the_colour_of_the_version_at_their_start_and_tell_the_rest(tmp_path: Path) -> None:
    view = view_of(timeline(made(tmp_path)))
    fast = trace_of(view, "fast")
    assert fast["marker"]["color"] == ["#472d7b", "#472d7b", "#e4e419"]  # versions 0, 0 and 1 of two
    assert values(fast["customdata"]) == [[0, 0, 2, 0], [1, 0, 2, 0], [0, 1, 9, 0]]
    assert values(trace_of(view, "slow")["customdata"]) == [[2, 0, 9, 1]]
    assert trace_of(view, "refused")["text"] == ["refused: too old"]
    assert trace_of(view, "refused")["hovertext"] == ["fast"]
    colour_bar = view.traces[0]["marker"]
    assert (colour_bar["cmin"], colour_bar["cmax"]) == (0, 1)
    assert colour_bar["colorbar"]["title"]["text"] == "version at the start"


def test_aggregations_are_ticks_with_lines_where_there_are_few(tmp_path: Path) -> None:
    few = trace_of(view_of(timeline(made(tmp_path / "few"))), "aggregation")
    assert (values(few["x"]), values(few["customdata"]), few["error_y"]["visible"]) == ([2.0, 9.0], [1, 2], True)
    many = trace_of(view_of(timeline(shuffled(tmp_path / "many", clients=12, tasks=240))), "aggregation")
    assert (len(values(many["x"])), many["error_y"]["visible"]) == (108, False)


def test_the_first_view_is_a_part_that_can_be_moved_over_the_rest(tmp_path: Path) -> None:
    section = timeline_section([(FEDAVG, timeline(shuffled(tmp_path, clients=12, tasks=2400), room=1000))])
    (chart,) = section.charts
    axis = chart.views["s0"].layout["xaxis"]
    assert (axis["range"], axis["minallowed"], axis["maxallowed"]) == ([0.0, 9.0], 0.0, 83.0)
    assert chart.travels
    assert chart.views["s0"].layout["yaxis"]["fixedrange"]
    assert chart.views["s0"].words.startswith("Virtual time from 0 to 9; move or zoom to see all up to 83.")
    assert "All 12 clients." in chart.views["s0"].words
    assert "without a recorded end" not in chart.views["s0"].words


def test_colours_begin_anew_where_the_first_view_has_few_of_all_versions(tmp_path: Path) -> None:
    view = view_of(timeline(shuffled(tmp_path, clients=12, tasks=2400), room=1000))
    assert "Colours repeat every 90 versions" in view.words  # 54 at first, but a task may be 497 versions late
    even = trace_of(view, "even")
    versions = [int(row[1]) for row in values(even["customdata"])]
    assert max(versions) == 497
    by_colour: dict[str, set[int]] = {}
    for colour, version in zip(even["marker"]["color"], versions, strict=True):
        by_colour.setdefault(colour, set()).add(version % 90)
    assert all(len(alike) == 1 for alike in by_colour.values())
    assert view.traces[0]["marker"]["cmax"] == 89


def test_some_of_many_clients_and_ticks_are_said_to_be_some(tmp_path: Path) -> None:
    words = view_of(timeline(shuffled(tmp_path, clients=200, tasks=2400), lanes=10)).words
    assert "10 of 200 clients that worked, chosen evenly over the groups." in words
    assert "One tick per 6 aggregations." in words


def test_the_numbers_are_in_a_table(tmp_path: Path) -> None:
    table = timeline_section([(FEDAVG, timeline(made(tmp_path)))]).charts[0].table
    assert table is not None
    assert table.rows == [
        ["FedAvg, fast", "2", "4", "2.75", "0.333", "0", "1"],
        ["FedAvg, slow", "1", "1", "8", "1", "1", "0"],
    ]
    assert table.marks == ["@g0", "@g1"]


def by_hand(*bars: Bar, groups: tuple[str, ...] = ("a",)) -> Timeline:
    return Timeline(
        begin=0.0,
        end=1.0,
        reach=1.0,
        groups=groups,
        clients=np.arange(len(groups)),
        group_of=np.arange(len(groups)),
        sizes=(1,) * len(groups),
        bars=bars,
        aggregations=np.empty(0),
        versions=np.empty(0, np.int64),
        every=1,
        whole=True,
    )


def test_what_users_wrote_is_no_markup() -> None:
    lost = Bar(0, 0.0, 1.0, 0, "lost", inf, None, "<i>%{y}</i>")
    merged = Bar(1, 0.0, 1.0, 0, "aggregated", 1.0, 0)
    section = timeline_section([(Named("<b>@s0", 0), by_hand(lost, merged, groups=("<b>%{x}", "@bad")))])
    checked(section)
    view = section.charts[0].views["s0"]
    assert trace_of(view, "lost")["text"] == ["lost: &lt;i&gt;%&#123;y}&lt;/i&gt;"]
    assert trace_of(view, "lost")["hovertext"] == ["&lt;b&gt;%&#123;x}"]
    assert trace_of(view, "&#64;bad")["hovertemplate"].startswith("client %{customdata[0]:,.0f}, &#64;bad<br>")
    assert view.layout["annotations"][0]["text"] == "<b>&lt;b&gt;%&#123;x}</b>, 1 client"
    assert section.charts[0].switches[0].options == {"s0": "<b>@s0"}


def test_tasks_that_came_to_nothing_are_drawn_without_any_that_were_merged() -> None:
    cancelled = Bar(0, 0.0, 1.0, 3, "cancelled", inf)
    view = view_of(by_hand(cancelled))
    assert trace_of(view, "cancelled")["text"] == ["cancelled"]
    assert {trace.get("name") for trace in view.traces} == {None, "aggregation", "cancelled"}


def test_groups_without_a_lane_have_no_row() -> None:
    shown = by_hand(Bar(0, 0.0, 1.0, 0, "aggregated", 1.0, 0), groups=("a", "b", "c"))
    rows = rows_of(shown)
    assert (rows.of_lane.tolist(), rows.heads, rows.many) == ([1, 3, 5], {0: 0, 1: 2, 2: 4}, 6)


def test_a_run_in_which_no_task_has_ended_is_a_sentence(tmp_path: Path) -> None:
    nothing = timeline_if_any(bare(tmp_path / "bare"), BARS.of_each(1))
    section = timeline_section([(FEDAVG, nothing)])
    checked(section)
    assert (section.charts, section.remarks) == ((), ["No task has ended yet."])
    some = timeline_section([(FEDAVG, nothing), (Named("Mine", 1), timeline(made(tmp_path / "made")))])
    checked(some)
    assert some.remarks[0] == "For FedAvg, no task has ended yet."
    assert some.charts[0].switches[0].options == {"s0": "Mine"}


def test_many_strategies_stay_light(tmp_path: Path) -> None:
    shown = timeline(shuffled(tmp_path, clients=40, tasks=4000), room=BARS.of_each(22))
    section = timeline_section([(Named(f"S{place}", place), shown) for place in range(22)])
    checked(section)
    assert len(shown.bars) == 520
    assert size(section) < 1_200_000
