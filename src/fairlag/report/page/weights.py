"""The weights of updates: one point per update or, if there are many, one line per client group."""

from collections.abc import Sequence
from math import isnan

import numpy as np

from fairlag.analyse.weights import Weights
from fairlag.report.colours import SYMBOLS
from fairlag.report.page.charts import MOST_GROUPS, Room, by_strategy, left_out, plain_names, present
from fairlag.report.page.spec import Json, Named, Section, Table, View, group_colour, numbers
from fairlag.text.numerals import NONE

POINTS = Room(4_000, 32_000)
"""The most updates that are shown one by one."""

_LEAD = (
    "How much each update counted when it was merged. Slow clients send fewer updates: a strategy is fair to them if "
    "each of these weighs more than an update of a fast client."
)
_READING = (
    "One point per update, at the aggregation that merged it. If there are too many updates: one line per client group "
    "with their mean weight, and a band with the middle 80 %. On the dashed line, all updates of an aggregation weigh "
    "the same."
)


def weights_section(shown: Sequence[tuple[Named, Weights]]) -> Section:
    """The weights of updates, one strategy at a time."""
    weighed, remarks = present(
        [(named, each if each.updates else None) for named, each in shown], "no update has been aggregated yet"
    )
    if not weighed:
        return Section("weights", "Weights", _LEAD, remarks=["No update has been aggregated yet."])
    chart = by_strategy(
        weighed,
        _view,
        name="weights",
        title="What updates weigh",
        reading=_READING,
        travels=True,
        table=_table(weighed),
    )
    remarks += ["For each strategy, the run with its first seed is shown."]
    remarks += left_out(max(len(each.groups) for _, each in weighed))
    return Section("weights", "Weights", _LEAD, charts=[chart], remarks=remarks)


def _view(named: Named, shown: Weights) -> View:
    drawn = _bands if shown.single is None else _points
    names = plain_names(shown.groups)
    traces = [trace for group in _groups(shown) for trace in drawn(shown, group, names[group], named.place_of(group))]
    layout = {
        "xaxis": {"title": {"text": "aggregation"}, "tickformat": ",.0f", "zeroline": False},
        "yaxis": {"title": {"text": "weight of an update"}, "tickformat": "~g", "rangemode": "tozero"},
    }
    return View([*traces, _equal(shown)], layout, _words(shown))


def _groups(shown: Weights) -> list[int]:
    """The places of the first groups that sent updates."""
    return [group for group in np.unique(shown.binned.group_of).tolist() if group < MOST_GROUPS]


def _points(shown: Weights, group: int, name: str, place: int) -> list[Json]:
    single = shown.single
    assert single is not None
    mine = single.group_of == group
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": numbers(single.aggregation[mine]),
            "y": numbers(_finite(single.weight[mine]), 6),
            "customdata": numbers(np.stack([single.client[mine], single.staleness[mine]], axis=1)),
            "marker": {
                "color": group_colour(place),
                "symbol": SYMBOLS[place % len(SYMBOLS)],
                "size": 6 if mine.sum() < 800 else 4,
                "opacity": 0.75,
            },
            "name": name,
            "hovertemplate": (
                f"client %{{customdata[0]:,.0f}}, {name}<br>weight %{{y:.4~g}} in aggregation %{{x:,.0f}}"
                "<br>staleness %{customdata[1]:,.0f}<extra></extra>"
            ),
        }
    ]


def _bands(shown: Weights, group: int, name: str, place: int) -> list[Json]:
    mine, colour = shown.binned.of(group), group_colour(place)
    where = numbers((mine.first + mine.last) / 2)
    band = {"type": "scatter", "mode": "lines", "x": where, "legendgroup": f"g{group}", "line": {"width": 0}}
    silent = {"hoverinfo": "skip", "showlegend": False}
    edges = [_finite(edge) for edge in (mine.low, mine.high, mine.least, mine.most)]
    told = np.stack([mine.first, mine.last, mine.updates, *edges], axis=1)
    return [
        {**band, **silent, "y": numbers(_finite(mine.low), 6)},
        {**band, **silent, "y": numbers(_finite(mine.high), 6), "fill": "tonexty", "fillcolor": f"{colour}/0.22"},
        {
            **band,
            "mode": "lines+markers",
            "y": numbers(_finite(mine.mean), 6),
            "customdata": numbers(told),
            "line": {"color": colour, "width": 2},
            "marker": {"color": colour, "symbol": SYMBOLS[place % len(SYMBOLS)], "size": 6, "maxdisplayed": 12},
            "name": name,
            "hovertemplate": (
                f"{name}, aggregations %{{customdata[0]:,.0f}} to %{{customdata[1]:,.0f}}"
                "<br>mean weight %{y:.4~g} of %{customdata[2]:,.0f} updates"
                "<br>80 % of them from %{customdata[3]:.4~g} to %{customdata[4]:.4~g}"
                "<br>all from %{customdata[5]:.4~g} to %{customdata[6]:.4~g}<extra></extra>"
            ),
        },
    ]


def _equal(shown: Weights) -> Json:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [int(shown.binned.first.min()), int(shown.binned.last.max())],
        "y": [shown.equal] * 2,
        "line": {"color": "@ink", "dash": "dash", "width": 1.2},
        "name": "all the same",
        "hovertemplate": f"weight {shown.equal:.4g}: all updates of an aggregation weigh the same<extra></extra>",
    }


def _words(shown: Weights) -> str:
    buffer = shown.updates / shown.aggregations
    words = f"{shown.updates:,} updates in {shown.aggregations:,} aggregations, {buffer:.3g} in each on average."
    if shown.single is None:
        wide = max(1, int((shown.binned.last - shown.binned.first).max()) + 1)
        many = f"up to {wide:,} aggregations" if wide > 1 else "one aggregation"
        words += f" These are too many to show one by one: a point on a line covers {many}."
        words += f" Bands are computed from one in {shown.every} aggregations." if shown.every > 1 else ""
    if shown.kept:
        words += (
            " Here a client's last update acts in every version until its next one replaces it: influence counts it "
            "once per version, not once per update."
        )
    lacking = int((shown.binned.updates - shown.binned.weighed).sum())
    if lacking:
        words += f" {lacking:,} weights are not numbers and were left out."
    return words


def _table(shown: Sequence[tuple[Named, Weights]]) -> Table:
    rows, marks = [], []
    for named, each in shown:
        for group in _groups(each):
            mine = each.binned.of(group)
            weighed = int(mine.weighed.sum())
            mean = float(mine.total[mine.weighed > 0].sum()) / weighed if weighed else np.nan
            least, most = (np.fmin.reduce(mine.least), np.fmax.reduce(mine.most))
            row = [f"{named.label}, {each.groups[group]}", f"{mine.updates.sum():,}"]
            rows.append(row + [NONE if isnan(value) else f"{value:.4g}" for value in (mean, least, most)])
            marks.append(named.group_colour(group))
    head = ("strategy, group", "updates", "mean weight", "smallest", "largest")
    return Table("What updates weigh", head, rows, marks)


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)
