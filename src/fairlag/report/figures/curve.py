"""The leading metric over runs: lines with bands, one colour per strategy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairlag.analyse.compare import lead_of_all, repeated
from fairlag.analyse.curves import Curves, curves
from fairlag.errors import InputError
from fairlag.lab.run import Run
from fairlag.report.figures.identity import (
    FAINT,
    SIZES,
    Look,
    Sheet,
    caption,
    caption_size,
    check_size,
    drawing,
    fitting,
    group_look,
    legend,
    strategy_looks,
    wrapped,
)
from fairlag.report.labels import bands_in_words, labels_of
from fairlag.text.numerals import clock

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MANY = 8
"""If there are more strategies: a taller figure, fainter bands, and a legend below in the order of the lines."""

_LONGEST = 30
"""The longest label in the legend of many strategies."""


def curve_figure(runs: Sequence[Run], sheet: Sheet, size: str = "double") -> None:
    """The leading metric against time and aggregations, one line per strategy; below, on the labels of each group."""
    if not runs:
        raise InputError("there are no runs to draw")
    check_size(size)
    lead_of_all(runs, "these runs", "draw")
    strategies = _strategies(runs)
    titles = {"time": clock(*(run.real_time for run in runs)), "version": "aggregations"}
    names = dict.fromkeys(name for run in runs for name in run.groups)
    groups = {name: place for place, name in enumerate(names) if any(each.curves.of(name) for each in strategies)}
    across = _across(len(groups), size)
    down = -(-len(groups) // across)
    above = 1 if size == "double" else 2
    with drawing(sheet, _height(strategies, above, down, size), size) as figure:
        grid = figure.add_gridspec(above + down, 12, height_ratios=[1.0] * above + [0.85] * down)
        upper: list[Axes] = []
        for place, along in enumerate(titles):
            cell = grid[0, 6 * place : 6 * place + 6] if above == 1 else grid[place, :]
            upper.append(figure.add_subplot(cell, sharey=upper[0] if upper else None))
            _draw(upper[-1], strategies, along, None)
            upper[-1].set_xlabel(titles[along])
            upper[-1].set_title("All labels" if groups else "All test examples")
        lower: list[Axes] = []
        for place, (name, number) in enumerate(groups.items()):
            row, column = divmod(place, across)
            cell = grid[above + row, column * 12 // across : (column + 1) * 12 // across]
            lower.append(figure.add_subplot(cell, sharey=lower[0] if lower else None))
            _draw(lower[-1], strategies, "time", name)
            lower[-1].set_xlabel(titles["time"])
            lower[-1].set_title(f"Labels of group {name}" if size == "double" else f"Labels of {name}")
            lower[-1].spines["top"].set(visible=True, color=group_look(number).colour, linewidth=1.6)
        inner = upper[1:] if above == 1 else []
        for axes in (*inner, *(each for place, each in enumerate(lower) if place % across)):
            axes.tick_params(labelleft=False)
            axes.set_ylabel("")
        _legend(figure, upper[0], strategies)


def _across(groups: int, size: str) -> int:
    """The number of groups beside one another."""
    if size == "single":
        return 1 if groups <= 1 else 2
    return next(columns for most, columns in ((1, 1), (4, 2), (9, 3), (groups, 4)) if groups <= most)


class _Strategy(NamedTuple):
    """The label, the look and the points of a line."""

    label: str
    look: Look
    curves: Curves


def _strategies(runs: Sequence[Run]) -> list[_Strategy]:
    found = repeated(runs)
    labels = labels_of(found, _LONGEST if len(found) > _MANY else None)
    return [
        _Strategy(label, look, curves(each))
        for label, look, each in zip(labels, strategy_looks(found), found, strict=True)
    ]


def _height(strategies: Sequence[_Strategy], above: int, down: int, size: str) -> float:
    """Inches, for `above` rows of all labels and `down` rows of groups."""
    rows = above + 0.85 * down
    labels = [each.label for each in strategies]
    lines = -(-len(strategies) // fitting(labels, SIZES[size]))
    if size == "single":
        return 0.3 + (1.55 if len(strategies) <= _MANY else 1.9) * rows + 0.16 * lines
    if len(strategies) <= _MANY:
        return 0.75 + 2.35 * rows
    return 0.75 + 3.2 * rows + 0.155 * lines


def _draw(axes: "Axes", strategies: Sequence[_Strategy], along: str, group: str | None) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    for strategy in strategies:
        if (found := strategy.curves.of(group)) is None:
            continue
        colour, line = strategy.look
        band = found.band(along)
        marker = "o" if len(band.where) == 1 else ""
        alpha = 0.08 if len(strategies) > _MANY else 0.25
        axes.fill_between(band.where, band.low, band.high, color=colour, alpha=alpha, linewidth=0)
        axes.plot(
            band.where, band.mean, linestyle=line, color=colour, label=strategy.label, marker=marker, markersize=3
        )
    lead = strategies[0].curves.overall.lead
    axes.set_ylabel(lead.words)
    if lead.rate:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.margins(x=0.01)
    axes.set_xlim(left=0)


def _legend(figure: "Figure", axes: "Axes", strategies: Sequence[_Strategy]) -> None:
    handles, labels = axes.get_legend_handles_labels()
    rate = strategies[0].curves.overall.lead.rate
    reading = bands_in_words([len(each.curves.overall.curves) for each in strategies], rate=rate)
    if len(strategies) > _MANY and handles:
        named = (line for line in axes.get_lines() if line.get_label() in labels)
        lines = sorted(named, key=lambda line: -np.asarray(line.get_ydata())[-1])
        rows = -(-len(labels) // fitting(labels, figure.get_figwidth()))
        below = figure.legend(
            lines,
            [str(line.get_label()) for line in lines],
            loc="outside lower left",
            ncols=-(-len(labels) // rows),
            title=wrapped(f"{reading} Listed by the ends of the lines, the highest first.", figure),
            title_fontsize=caption_size(figure),
            alignment="left",
        )
        below.get_title().set_color(FAINT)
        return
    legend(figure, handles)
    if reading:
        caption(figure, reading)
