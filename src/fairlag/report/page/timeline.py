"""The timeline: one lane per client, one bar per task in the colour of the version that it started from."""

from collections.abc import Sequence
from math import ceil, inf, isfinite, log10
from statistics import fmean

import numpy as np

from fairlag.analyse.timeline import Timeline
from fairlag.core.types import Outcome
from fairlag.report.page.charts import Room, by_strategy, plain_names, present
from fairlag.report.page.lanes import SPOILT, Rows, aggregations, colour_bar, rows_of, spoilt, tasks, waits_of
from fairlag.report.page.spec import Json, Named, Section, Table, View
from fairlag.text.numerals import NONE, VIRTUAL

BARS = Room(3_000, 12_000)

_LEAD = (
    "When each client works, and from which version. Asynchronous learning does not wait for slow clients: while a "
    "slow client trains on an old version, updates of fast clients make many new ones."
)
_READING = (
    "One lane per client, one bar per task in the colour of the version that it started from. The thin line below "
    "the end of a bar lasts until its update is merged. Ticks at the top are aggregations. Hatched tasks are wasted."
)


def timeline_section(shown: Sequence[tuple[Named, Timeline | None]], clock: str = VIRTUAL) -> Section:
    """The timelines of strategies, one at a time. None means that no task has ended."""
    ended, missing = present(shown, "no task has ended yet")
    if not ended:
        return Section("timeline", "Timeline", _LEAD, remarks=["No task has ended yet."])
    chart = by_strategy(
        ended,
        lambda named, found: _view(named, found, clock),
        name="timeline",
        title="When each client works, and from which version",
        reading=_READING,
        height=max(_height(each) for _, each in ended),
        travels=True,
        table=_table(ended, clock),
    )
    remarks = [*missing, "For each strategy, the run with its first seed is shown, from the start."]
    return Section("timeline", "Timeline", _LEAD, charts=[chart], remarks=remarks)


def _height(shown: Timeline) -> int:
    count = rows_of(shown).many
    return 150 + count * (20 if count <= 24 else 16)


def _view(named: Named, shown: Timeline, clock: str) -> View:
    rows, period = rows_of(shown), _period(shown)
    merged = [bar for bar in shown.bars if bar.outcome == Outcome.AGGREGATED]
    traces = [colour_bar(period), aggregations(shown, rows)]
    if waits := [bar for bar in merged if bar.end < bar.merged < inf]:
        traces.append(waits_of(waits, rows))
    for group in rows.heads:
        if mine := [bar for bar in merged if shown.group_of[bar.lane] == group]:
            traces.append(tasks(mine, shown, rows, group, period))
    for outcome, look in SPOILT.items():
        if mine := [bar for bar in shown.bars if bar.outcome == outcome]:
            traces.append(spoilt(mine, shown, rows, outcome, look))
    return View(traces, _layout(named, shown, rows, clock), _words(shown, period, clock))


def _period(shown: Timeline) -> int:
    """The number of versions after which colours repeat: enough to differ within a window, or all versions if few."""
    versions = [bar.version for bar in shown.bars]
    first = [bar.version for bar in shown.bars if bar.begin < shown.end]
    wide = max(first) - min(first) + 1
    late = max((bar.staleness or 0 for bar in shown.bars), default=0) + 1
    wanted = max(wide, min(late, wide * 3 // 2))
    if max(versions) + 1 <= 2 * wanted:
        return max(versions) + 1
    step = int(10 ** int(log10(max(wanted, 10))))
    return ceil(wanted / step) * step


def _layout(named: Named, shown: Timeline, rows: Rows, clock: str) -> Json:
    return {
        "barmode": "overlay",
        "xaxis": {
            "title": {"text": clock},
            "tickformat": ",~g",
            "range": [shown.begin, shown.end],
            "minallowed": shown.begin,
            "maxallowed": shown.reach,
            "showgrid": False,
            "zeroline": False,
        },
        "yaxis": {
            "range": [rows.many - 0.4, -1.6],
            "fixedrange": True,
            "tickvals": rows.of_lane.tolist(),
            "ticktext": [f"{client:,}" for client in shown.clients.tolist()],
            "showgrid": False,
            "zeroline": False,
            "ticks": "outside",
            "ticklen": 12,
            "tickcolor": "rgba(0,0,0,0)",
        },
        "shapes": [_rule(shown, rows, group, named.group_colour(group)) for group in rows.heads],
        "annotations": [_head(shown, rows, group) for group in rows.heads],
    }


def _rule(shown: Timeline, rows: Rows, group: int, colour: str) -> Json:
    """The line beside the lanes of a group, in its colour."""
    mine = rows.of_lane[shown.group_of == group]
    across = {"xref": "paper", "xsizemode": "pixel", "xanchor": 0, "x0": -9, "x1": -4}
    look = {"type": "rect", "line": {"width": 0}, "fillcolor": colour}
    return {**look, **across, "y0": int(mine[0]) - 0.46, "y1": int(mine[-1]) + 0.46}


def _head(shown: Timeline, rows: Rows, group: int) -> Json:
    here, all_of_it = int(np.count_nonzero(shown.group_of == group)), shown.sizes[group]
    many = f"{here:,} of {all_of_it:,}" if here < all_of_it else f"{here:,}"
    return {
        "text": f"<b>{plain_names(shown.groups)[group]}</b>, {many} {'client' if all_of_it == 1 else 'clients'}",
        "xref": "paper",
        "x": 0,
        "xanchor": "left",
        "xshift": -9,
        "y": rows.heads[group] + 0.05,
        "yanchor": "middle",
        "showarrow": False,
        "bgcolor": "@panel",
        "borderpad": 1,
    }


def _words(shown: Timeline, period: int, clock: str) -> str:
    words = f"{clock.capitalize()} from {shown.begin:,.4g} to {shown.end:,.4g}"
    words += f"; move or zoom to see all up to {shown.reach:,.4g}." if shown.reach > shown.end else "."
    if len(shown.clients) < shown.population:
        words += f" {len(shown.clients)} of {shown.population:,} clients that worked, chosen evenly over the groups."
    else:
        words += f" All {shown.population} clients." if shown.population > 1 else ""
    if shown.every > 1:
        words += f" One tick per {shown.every} aggregations."
    if period <= max(bar.version for bar in shown.bars):
        words += f" Colours repeat every {period:,} versions; the tooltip shows the exact version."
    if not shown.whole:
        words += " Tasks without a recorded end are not shown."
    return words


def _table(shown: Sequence[tuple[Named, Timeline]], clock: str) -> Table:
    rows, marks = [], []
    for named, each in shown:
        for group in rows_of(each).heads:
            rows.append([f"{named.label}, {each.groups[group]}", *_numbers(each, group)])
            marks.append(named.group_colour(group))
    head = ("strategy, group", "clients", "tasks", "mean duration", "mean wait", "mean staleness", "wasted")
    return Table(f"The tasks in these lanes; durations and waits in {clock}", head, rows, marks)


def _numbers(shown: Timeline, group: int) -> list[str]:
    bars = [bar for bar in shown.bars if shown.group_of[bar.lane] == group]
    merged = [bar for bar in bars if bar.outcome == Outcome.AGGREGATED]
    means = (
        [bar.end - bar.begin for bar in bars],
        [bar.merged - bar.end for bar in merged if isfinite(bar.merged)],
        [float(bar.staleness or 0) for bar in merged],
    )
    return [
        f"{np.count_nonzero(shown.group_of == group):,}",
        f"{len(bars):,}",
        *(f"{fmean(values):,.3g}" if values else NONE for values in means),
        f"{len(bars) - len(merged):,}",
    ]
