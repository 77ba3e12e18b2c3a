"""Who holds what: the number of examples per client and label, as shades of blue."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairlag.errors import InputError
from fairlag.report.figures.identity import Sheet, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

_MOST_ROWS = 60
_MOST_CELLS = 240
"""The most cells that have room for their numbers."""


def holdings_figure(counts: NDArray[Any], row_names: Sequence[str], title: str, sheet: Sheet) -> None:
    """Who holds what: one row per client or group, one column per label, darker for more examples; the first rows.

    Without classes there is one column.
    """
    table = np.asarray(counts)
    if table.ndim != 2 or len(row_names) != len(table) or not table.size:
        raise InputError(f"counts has shape {table.shape} for {len(row_names)} rows, it must be [rows, labels]")
    shown, hidden = table[:_MOST_ROWS], len(table) - _MOST_ROWS
    rows, columns = shown.shape
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    with drawing(sheet, height=1.1 + max(1.0, rows * (0.22 if rows <= 25 else 0.14))) as figure:
        axes = figure.add_subplot()
        mesh = axes.pcolormesh(np.ma.masked_equal(shown, 0), cmap=_blues(), vmin=0, edgecolors="white", linewidth=1.0)
        axes.set_facecolor("#f4f4f4")
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.invert_yaxis()
        axes.set_xticks(np.arange(columns) + 0.5, map(str, range(columns)) if columns > 1 else [""])
        axes.set_yticks(np.arange(rows) + 0.5, row_names[:rows], fontsize=7 if rows <= 25 else 6)
        axes.tick_params(length=0)
        axes.set_xlabel("label" if columns > 1 else "")
        axes.set_title(title + (f" (first {rows} of {len(table):,})" if hidden > 0 else ""))
        if table.size <= _MOST_CELLS:
            _write_numbers(axes, shown)
        bar = figure.colorbar(mesh, ax=axes, label="examples", anchor=(0, 1), shrink=min(1.0, 10 / rows), pad=0.02)
        bar.locator, bar.formatter = MaxNLocator(5, integer=True), StrMethodFormatter("{x:,.0f}")
        bar.outline.set_visible(False)


def _blues() -> "Colormap":
    """From a blue that differs from empty cells to one on which white letters are readable."""
    from matplotlib import colormaps
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("holdings", colormaps["Blues"](np.linspace(0.15, 0.9, 64)))


def _write_numbers(axes: "Axes", counts: NDArray[Any]) -> None:
    dark = counts.max() * 0.7
    for (row, column), count in np.ndenumerate(counts):
        if count:
            colour = "white" if count > dark else "#222222"
            axes.text(column + 0.5, row + 0.5, f"{count:,}", ha="center", va="center", fontsize=6.5, color=colour)
