"""The figure of a comparison: one panel per run, one line per quantity."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fairlag.report.figures import identity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from benchmarks.fidelity.compare import Comparison

_SIDE = 45.0
"""Errors beyond this many per cent are drawn at the edge, with their value."""


def drawn(found: "Sequence[Comparison]", file: Path) -> None:
    """Saves the figure as a PNG."""
    sheet, lines = BytesIO(), max(len(each.rows) + len(each.accuracy) for each in found)
    with identity.drawing(sheet, height=1.2 + 0.24 * lines) as figure:
        panels = np.atleast_1d(figure.subplots(1, len(found), sharey=True))
        for axes, each in zip(panels, found, strict=True):
            _panel(axes, each)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
        identity.caption(
            figure,
            "Simulated ÷ measured − 1. Bars: two sampling errors of a run of this length, from simulations with "
            "different seeds. Grey: ±2 %.",
        )
    file.write_bytes(sheet.getvalue())


def _panel(axes: "Axes", found: "Comparison") -> None:
    rows = [row for row in (*found.rows, *found.accuracy) if row.real > 0 and row.whole > 0]
    axes.axvspan(-2, 2, color="#dddddd", linewidth=0)
    for place, fleet in enumerate(rows[0].simulated):
        colour = identity.strategy_look(place).colour
        for line, row in enumerate(rows):
            error, width = row.error(fleet), 200 * row.simulated[fleet][1] / row.truth(fleet)
            height = line + 0.25 * (place - 1)
            if abs(error) <= _SIDE:
                axes.errorbar(error, height, xerr=width, color=colour, fmt="o", markersize=3, linewidth=1)
            else:
                side = float(np.sign(error))
                axes.plot(side * _SIDE, height, marker=">" if side > 0 else "<", color=colour, markersize=4)
                axes.annotate(
                    f"{error:+.0f} %", (side * (_SIDE - 2), height), ha="right" if side > 0 else "left", va="center",
                    fontsize=6, color=colour,
                )  # fmt: skip
        axes.plot([], [], "o", color=colour, markersize=3, label=fleet)
    axes.set_xlim(-_SIDE - 3, _SIDE + 3)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_title(found.name)
    axes.set_xlabel("error in per cent")
