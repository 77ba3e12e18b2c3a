"""How much settings matter: one row per strategy, a dot per trial, a box of their quartiles, the test of the best."""

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from fairlag.analyse.sweep import Sensitivity, Swept
from fairlag.core import seeds
from fairlag.errors import InputError
from fairlag.report.figures.identity import FAINT, Sheet, caption, drawing, legend, percent, strategy_look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TALL = 0.34
"""Inches per strategy."""


def sweep_figure(swept: Swept, sheet: Sheet, size: str = "double") -> None:
    """Draws the trials of every strategy, the one with the best setting on top."""
    shown = [row for row in swept.best_first if row.values]
    if not shown:
        raise InputError("there is nothing to draw: no trial of the sweep ended well")
    from matplotlib.lines import Line2D

    with drawing(sheet, _TALL * len(shown) + 1.4, size) as figure:
        axes = figure.subplots()
        colours = {row.label: strategy_look(place).colour for place, row in enumerate(swept.rows)}
        for place, row in enumerate(shown):
            _draw(axes, row, place, colours[row.label])
        axes.set_yticks(range(len(shown)), [row.label for row in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        scored = swept.objective.scored
        axes.set_xlabel(swept.objective.words)
        if scored.rate:
            axes.xaxis.set_major_formatter(percent)
        marks = {"o": "trial, on validation examples", "D": "best setting, on test examples: mean and deviation"}
        legend(
            figure,
            [
                Line2D([], [], color=FAINT, marker=mark, markersize=4, linestyle="", label=label)
                for mark, label in marks.items()
            ],
        )
        caption(figure, _reading(shown))


def _draw(axes: "Axes", row: Sensitivity, place: int, colour: str) -> None:
    low, middle, high = (row.quantile(part) or 0.0 for part in (0.25, 0.5, 0.75))
    axes.barh(place, high - low, left=low, height=0.5, color=colour, alpha=0.2, linewidth=0)
    axes.vlines(middle, place - 0.25, place + 0.25, color=colour, linewidth=1.5)
    # Dots are moved up and down a little, always by the same amount, so that equal values stay visible.
    aside = place + 0.3 * (seeds.uniforms(seeds.key(0, "sweep figure"), 0, len(row.values)) - 0.5)
    axes.plot(row.values, aside, linestyle="", marker="o", markersize=2.5, color=colour, alpha=0.7, markeredgewidth=0)
    if row.tested:
        deviation = stdev(row.tested) if len(row.tested) > 1 else None
        look = {
            "marker": "D",
            "markersize": 4.0,
            "color": "#222222",
            "capsize": 2.0,
            "linewidth": 0.9,
            "markeredgecolor": "white",
        }
        axes.errorbar(fmean(row.tested), place, xerr=deviation, zorder=3, **look)  # type: ignore[arg-type]


def _reading(rows: Sequence[Sensitivity]) -> str:
    words = "Box: the middle half of a strategy's trials; line: their median. The narrower, the less settings matter."
    lost = [f"{row.failed} of {row.trials} of {row.label}" for row in rows if row.failed]
    early = [f"{row.stopped} of {row.trials} of {row.label}" for row in rows if row.stopped]
    words += f" Not drawn, because they diverged or stalled: {', '.join(lost)}." if lost else ""
    return words + (f" Not drawn, because they were stopped early: {', '.join(early)}." if early else "")
