"""The traces of a timeline: tasks, updates that wait to be merged, wasted tasks, and aggregations."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fairlag.analyse.timeline import Bar, Timeline
from fairlag.core.types import Integers, Outcome
from fairlag.report.page.charts import plain_names
from fairlag.report.page.spec import Json, numbers

_FEW_LINES = 80
"""If the first view has more aggregations, only ticks are drawn: lines would hide the bars."""

_REASON = 60
"""The longest reason in a tooltip."""

_DIGITS = 9
"""Digits of times: enough to tell neighbours apart at the end of a long run."""

_VIRIDIS = ("#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#e4e419")
"""From the oldest version to the newest, without the darkest colours, which vanish on a dark background."""

_SILENT: Json = {"hoverinfo": "skip", "showlegend": False}

SPOILT: dict[str, Json] = {
    Outcome.REFUSED: {"color": "@bad/0.2", "line": "@bad", "shape": "/"},
    Outcome.LOST: {"color": "@bad/0.2", "line": "@bad", "shape": "x"},
    Outcome.CANCELLED: {"color": "@faint/0.2", "line": "@faint", "shape": "."},
}
"""The look of wasted tasks, by outcome."""


class Rows(NamedTuple):
    """The rows of lanes from the top: those of a group together, below a row for its name."""

    of_lane: Integers
    heads: dict[int, int]
    """The row of each group's name, by the place of the group."""
    many: int


def rows_of(shown: Timeline) -> Rows:
    """The rows of a timeline's lanes; its clients are sorted by group."""
    present, begins = np.unique(shown.group_of, return_index=True)
    rows = np.arange(len(shown.group_of)) + np.searchsorted(present, shown.group_of, "right")
    heads = {int(group): int(rows[begin]) - 1 for group, begin in zip(present, begins, strict=True)}
    return Rows(rows, heads, len(rows) + len(present))


def _bars(bars: Sequence[Bar], rows: Rows) -> Json:
    return {
        "type": "bar",
        "orientation": "h",
        "y": rows.of_lane[[bar.lane for bar in bars]].tolist(),
        "offset": -0.42,
        "width": 0.7,
    }


def _spans(begins: Sequence[float], ends: Sequence[float]) -> Json:
    lasting = np.subtract(ends, begins)
    return {"base": numbers(begins, _DIGITS), "x": numbers(lasting, 6)}


def _colours(bars: Sequence[Bar], period: int) -> list[str]:
    """Colours as text: plotly would warn about each bar whose colour is a number."""
    anchors = np.array([[int(colour[place : place + 2], 16) for place in (1, 3, 5)] for colour in _VIRIDIS])
    where = np.linspace(0, len(_VIRIDIS) - 1, max(2, period))
    parts = [np.interp(where, range(len(_VIRIDIS)), anchors[:, part]).round().astype(int) for part in range(3)]
    scale = [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in zip(*parts, strict=True)]
    return [scale[bar.version % period] for bar in bars]


def colour_bar(period: int) -> Json:
    """An invisible point that only brings its colour bar."""
    bar = {"title": {"text": "version at the start", "side": "right"}, "tickformat": ",.0f", "nticks": 6}
    scale = {"cmin": 0, "cmax": max(1, period - 1), "colorscale": _colour_scale(), "showscale": True}
    marker = {"color": [0], **scale, "colorbar": {**bar, "thickness": 12, "outlinewidth": 0}}
    return {"type": "scatter", "mode": "markers", "x": [None], "y": [None], "marker": marker, **_SILENT}


def _colour_scale() -> list[list[float | str]]:
    return [[place / (len(_VIRIDIS) - 1), colour] for place, colour in enumerate(_VIRIDIS)]


def tasks(bars: Sequence[Bar], shown: Timeline, rows: Rows, group: int, period: int) -> Json:
    """Bars of a group's merged tasks."""
    name = plain_names(shown.groups)[group]
    told = np.array([(shown.clients[bar.lane], bar.version, bar.merged, bar.staleness or 0) for bar in bars])
    return {
        **_bars(bars, rows),
        **_spans([bar.begin for bar in bars], [bar.end for bar in bars]),
        "marker": {"color": _colours(bars, period), "line": {"width": 0.6, "color": "@faint"}},
        "customdata": numbers(np.where(np.isfinite(told), told, np.nan)),
        "name": name,
        "showlegend": False,
        "hovertemplate": (
            f"client %{{customdata[0]:,.0f}}, {name}"
            "<br>worked from %{base:,.6~g} to %{x:,.6~g}"
            "<br>started from version %{customdata[1]:,.0f}"
            "<br>merged at %{customdata[2]:,.6~g} with staleness %{customdata[3]:,.0f}<extra></extra>"
        ),
    }


def waits_of(bars: Sequence[Bar], rows: Rows) -> Json:
    """Thin lines below the ends of bars, until the updates are merged."""
    return {
        **_bars(bars, rows),
        **_spans([bar.end for bar in bars], [bar.merged for bar in bars]),
        "offset": 0.3,
        "width": 0.12,
        "marker": {"color": "@faint/0.75", "line": {"width": 0}},
        "name": "waiting to be merged",
        "hovertemplate": "an update waits from %{base:,.6~g} until it is merged at %{x:,.6~g}<extra></extra>",
    }


def spoilt(bars: Sequence[Bar], shown: Timeline, rows: Rows, outcome: str, look: Json) -> Json:
    """Bars of tasks that were not merged."""
    groups, reasons = plain_names(shown.groups), [plain_names([bar.reason], _REASON)[0] for bar in bars]
    return {
        **_bars(bars, rows),
        **_spans([bar.begin for bar in bars], [bar.end for bar in bars]),
        "marker": {
            "color": look["color"],
            "line": {"width": 1, "color": look["line"]},
            "pattern": {"shape": look["shape"], "fgcolor": look["line"], "fillmode": "overlay", "size": 6},
        },
        "customdata": numbers(np.array([(shown.clients[bar.lane], bar.version) for bar in bars])),
        "hovertext": [groups[shown.group_of[bar.lane]] for bar in bars],
        "text": [f"{outcome}: {reason}" if reason else outcome for reason in reasons],
        "textposition": "none",
        "name": outcome,
        "hovertemplate": (
            "client %{customdata[0]:,.0f}, %{hovertext}<br>worked from %{base:,.6~g} to %{x:,.6~g}"
            "<br>started from version %{customdata[1]:,.0f}<br>%{text}<extra></extra>"
        ),
    }


def aggregations(shown: Timeline, rows: Rows) -> Json:
    """Ticks at the top. If they are few, also lines down through the lanes, drawn as error bars: one number each."""
    lines = np.count_nonzero(shown.aggregations <= shown.end) <= _FEW_LINES
    downwards = {"type": "constant", "symmetric": False, "value": rows.many + 1, "valueminus": 0, "width": 0}
    return {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(shown.aggregations, _DIGITS),
        "y": numbers(np.full(len(shown.aggregations), -1)),
        "customdata": numbers(shown.versions),
        "marker": {"symbol": "line-ns-open", "size": 10, "color": "@ink", "line": {"width": 1.2, "color": "@ink"}},
        "error_y": downwards | {"color": "@faint/0.3", "thickness": 1, "visible": bool(lines)},
        "zorder": -1,
        "name": "aggregation",
        "hovertemplate": "version %{customdata:,.0f} was made at %{x:,.6~g}<extra></extra>",
    }
