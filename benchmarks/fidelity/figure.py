"""The figure of a comparison: one panel per run, one line per quantity."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.fidelity.rows import FLEETS
from fairlag.report.figures import identity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from benchmarks.fidelity.rows import Comparison, Row

_SIDE = 30.0
"""Errors beyond this many per cent are drawn at the edge, with their value."""


def drawn(found: "Sequence[Comparison]", file: Path) -> None:
    """Saves the figure as a PNG."""
    sheet, names = BytesIO(), list(dict.fromkeys(row.name for each in found for row in _rows(each)))
    with identity.drawing(sheet, height=1.3 + 0.3 * len(names)) as figure:
        panels = np.atleast_1d(figure.subplots(1, len(found), sharey=True))
        for axes, each in zip(panels, found, strict=True):
            _panel(axes, each, names)
        most = max(range(len(found)), key=lambda place: len(found[place].fleets))
        figure.legend(*panels[most].get_legend_handles_labels(), loc="outside upper center", ncols=4)
        identity.caption(
            figure,
            "Simulated ÷ measured − 1. Bars: two sampling errors of a run of this length, from simulations with "
            "different seeds. Grey: ±2 %.",
        )
    file.write_bytes(sheet.getvalue())


def _rows(found: "Comparison") -> "list[Row]":
    """What is drawn: an error in per cent says little of a part that is near 0."""
    return [row for row in (*found.rows, *found.accuracy) if not row.is_part]


def _panel(axes: "Axes", found: "Comparison", names: Sequence[str]) -> None:
    axes.axvspan(-2, 2, color="#dddddd", linewidth=0)
    for fleet in found.fleets:
        place = FLEETS.index(fleet)
        colour = identity.strategy_look(place).colour
        for row in _rows(found):
            error, width = row.error(fleet), 2 * row.chance(fleet)
            height = names.index(row.name) + 0.2 * (place - 1.5)
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
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_title(found.name)
    axes.set_xlabel("error in per cent")
