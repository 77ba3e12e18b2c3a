"""When clients work: one lane per client, one bar per task in the colour of the version that it started from."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairlag.analyse.compare import repeated
from fairlag.analyse.timeline import LANES, Bar, Timeline, timeline
from fairlag.core.types import Outcome
from fairlag.errors import InputError
from fairlag.lab.run import Run
from fairlag.report.figures.identity import (
    Sheet,
    caption,
    check_size,
    drawing,
    group_look,
    headline,
    legend,
    strategy_looks,
    title_width,
)
from fairlag.report.labels import labels_of
from fairlag.text.numerals import clock

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure

PANELS = 4
"""The most strategies: more would have too few lanes each."""

_FEW_LINES = 60
"""If there are more aggregations, only ticks are drawn: lines would hide the bars."""

_TOGETHER = 48
"""The most lanes of several strategies together."""

_TALL = 8
"""With more lanes, there is room for a longer label beside them."""

_THICK = 0.74
_SPOILT: Any = {"facecolor": "#f2f2f2", "edgecolor": "#777777", "hatch": "//////", "linewidth": 0.5}
"""The look of wasted tasks."""


def timeline_figure(
    runs: Sequence[Run], sheet: Sheet, size: str = "double", begin: float | None = None, until: float | None = None
) -> None:
    """The first seed of each strategy in a window of time, the same for all of them."""
    found = repeated(runs)
    check_size(size)
    if not found:
        raise InputError("there are no runs to draw")
    if len(found) > PANELS:
        raise InputError(f"there are {len(found)} strategies, but a timeline has room for {PANELS}: give fewer runs")
    time = clock(*(run.real_time for run in runs))
    lanes = LANES if len(found) == 1 else _TOGETHER // len(found)
    shown = [timeline(each.runs[0], begin, until, lanes) for each in found]
    most = max(len(each.clients) for each in shown)
    lane = 0.155 if most <= 20 else 0.115
    height = sum(len(each.clients) * lane + 0.3 for each in shown) + (1.2 if size == "double" else 1.6)
    with drawing(sheet, height, size) as figure:
        grid = figure.subplots(len(shown), 1, squeeze=False, height_ratios=[len(each.clients) for each in shown])
        looks = strategy_looks(found)
        labels = labels_of(found, title_width(1, size) - 12)
        for place, (axes, label, each) in enumerate(zip(grid[:, 0], labels, shown, strict=True)):
            norm, colours = _scale(each)
            _draw(axes, each, norm, colours, numbers=most <= 20)
            _colour_bar(figure, axes, norm, colours)
            headline(axes, looks[place], label, f"seed {found[place].runs[0].seed}")
        grid[-1, 0].set_xlabel(time)
        legend(figure, _keys(shown))
        caption(figure, _reading(shown, time))


def _scale(shown: Timeline) -> tuple["Normalize", "Colormap"]:
    """From the oldest version in the window to the newest: dark to light, without the ends that print badly."""
    from matplotlib import colormaps
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    versions = [bar.version for bar in shown.bars]
    colours = LinearSegmentedColormap.from_list("versions", colormaps["viridis"](np.linspace(0.0, 0.93, 128)))
    return Normalize(min(versions), max(max(versions), min(versions) + 1)), colours


def _draw(axes: "Axes", shown: Timeline, norm: "Normalize", colours: "Colormap", *, numbers: bool) -> None:
    axes.grid(visible=False)
    lines = len(shown.aggregations) <= _FEW_LINES
    if lines:
        axes.vlines(shown.aggregations, -0.6, len(shown.clients) - 0.4, color="#bbbbbb", linewidth=0.5, zorder=0.5)
    mark: Any = {"marker": 7, "markersize": 3.5} if lines else {"marker": "|", "markersize": 4, "markeredgewidth": 0.3}
    at_the_top: Any = {"transform": axes.get_xaxis_transform(), "clip_on": False, "zorder": 3}
    axes.plot(shown.aggregations, np.ones(len(shown.aggregations)), linestyle="", color="#222222", **mark, **at_the_top)
    merged = [bar for bar in shown.bars if bar.outcome == Outcome.AGGREGATED]
    _draw_bars(axes, merged, color=[colours(norm(bar.version)) for bar in merged], edgecolor="white", linewidth=0.4)
    _draw_bars(axes, [bar for bar in shown.bars if bar.outcome != Outcome.AGGREGATED], **_SPOILT)
    for bar in merged:
        if np.isfinite(bar.merged):
            colour = colours(norm(bar.version))
            axes.plot(
                [bar.end, bar.merged], [bar.lane] * 2, color=colour, linewidth=0.8, zorder=1.5, solid_capstyle="butt"
            )
    axes.set_xlim(shown.begin, shown.end)
    axes.set_ylim(len(shown.clients) - 0.4, -0.6)
    _name_lanes(axes, shown, numbers=numbers)


def _draw_bars(axes: "Axes", bars: Sequence[Bar], **look: Any) -> None:
    if bars:
        widths = [bar.end - bar.begin for bar in bars]
        lanes, begins = [bar.lane for bar in bars], [bar.begin for bar in bars]
        axes.barh(lanes, widths, _THICK, begins, zorder=2, **look)


def _name_lanes(axes: "Axes", shown: Timeline, *, numbers: bool) -> None:
    """Every client's number if there is room, and the groups beside a rule in their colour."""
    from matplotlib.transforms import ScaledTranslation

    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0, pad=6)
    names = [f"{client:,}" if numbers else "" for client in shown.clients]
    axes.set_yticks(range(len(names)), names, fontsize=6)
    for group in np.unique(shown.group_of):
        lanes = np.flatnonzero(shown.group_of == group)
        axes.plot(
            [0, 0],
            [lanes[0] - 0.4, lanes[-1] + 0.4],
            color=group_look(int(group)).colour,
            linewidth=3,
            solid_capstyle="butt",
            transform=axes.get_yaxis_transform() + ScaledTranslation(-4 / 72, 0, axes.figure.dpi_scale_trans),
            clip_on=False,
            zorder=3,
        )
        axes.annotate(
            shown.groups[group],
            (0, float(lanes.mean())),
            (-26 if numbers else -8, 0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            rotation=90 if len(lanes) > 2 else 0,
            ha="right",
            va="center",
        )


def _colour_bar(figure: "Figure", axes: "Axes", norm: "Normalize", colours: "Colormap") -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    label = "version at the start" if axes.get_ylim()[0] > _TALL else "version"
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes, aspect=30, pad=0.015, label=label)
    bar.locator, bar.formatter = MaxNLocator(5, integer=True), StrMethodFormatter("{x:,.0f}")
    bar.outline.set_visible(False)


def _keys(shown: Sequence[Timeline]) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    mark: Any = 7 if any(len(each.aggregations) <= _FEW_LINES for each in shown) else "|"
    keys: list[Any] = [
        Patch(facecolor="#21918c", label="task"),
        Line2D([], [], color="#21918c", linewidth=0.9, label="waiting to be merged"),
        Line2D([], [], color="#222222", marker=mark, markersize=4, linestyle="", label="aggregation"),
    ]
    spoilt = {bar.outcome for each in shown for bar in each.bars} - {Outcome.AGGREGATED}
    if spoilt:
        keys.append(Patch(**_SPOILT, label=", ".join(each for each in Outcome if each in spoilt)))
    return keys


def _reading(shown: Sequence[Timeline], time: str) -> str:
    words = f"{time.capitalize()} from {shown[0].begin:,.4g} to {shown[0].end:,.4g}."
    if len({(each.begin, each.end) for each in shown}) > 1:
        words = f"Each panel shows its own window of {time}."
    for drawn, population in dict.fromkeys((len(each.clients), each.population) for each in shown):
        if drawn < population:
            words += f" {drawn} of {population:,} clients that worked, chosen evenly over the groups."
            break
    if (most := max(each.every for each in shown)) > 1:
        words += f" One mark per up to {most} aggregations."
    if not all(each.whole for each in shown):
        words += " Tasks without a recorded end are not shown."
    return words
