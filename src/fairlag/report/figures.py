"""Figures for papers: accuracy over a run, and who holds what. Nothing here keeps state between two figures."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlag.analyse.compare import repeated
from fairlag.errors import InputError
from fairlag.lab.run import Run, curve_of
from fairlag.report.words import shortened
from fairlag.types import Floats

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's, which people of every colour vision tell apart; the yellow is left out, too pale for a line."""

_LINES: Any = ("-", "--", ":", (0, (5, 1.2, 1, 1.2)))
"""One after the other, once all colours are used."""

_MANY = 8
"""More strategies than that get more room, fainter bands, and a legend below them in the order of the lines."""

_LONGEST = 30
"""How long a label may be in the legend of many."""

_WIDTH = 7.2
"""Inches: the text of a page, so that nothing is scaled and letters are as large as they say."""

_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": "#888888",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.0,
    "legend.frameon": False,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,  # letters stay letters: they can be searched, and journals accept them
    "svg.fonttype": "none",
    "svg.hashsalt": "fairlag",  # the same figure is the same bytes
}

_AXES = {"time": "virtual time", "version": "aggregations"}
_MOST_ROWS = 60
_MOST_CELLS = 240
"""More cells than that have no room for their numbers."""


def check_format(file: Path) -> None:
    """Refuses a file whose name does not end with a format that can be drawn."""
    if file.suffix[1:].lower() not in FORMATS:
        raise InputError(f"{str(file)!r} cannot be drawn: the name must end with .{', .'.join(FORMATS)}")


@contextmanager
def _figure(file: Path, height: float) -> Iterator["Figure"]:
    """An empty figure that is written when it is done, in the format that the file's name ends with."""
    check_format(file)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    dates = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        yield figure
        figure.savefig(file, metadata=dates.get(file.suffix.lower()))


def accuracy_figure(runs: Sequence[Run], file: Path) -> None:
    """Accuracy against virtual time and aggregations, a line a strategy; below, on the labels of each client group."""
    if not runs:
        raise InputError("there are no runs to draw")
    strategies = _strategies(runs)
    names = dict.fromkeys(name for run in runs for name in run.groups)
    groups = [name for name in names if any(each.curves("group", name) for each in strategies)]
    across = next(columns for most, columns in ((1, 1), (4, 2), (9, 3), (len(groups), 4)) if len(groups) <= most)
    down = -(-len(groups) // across)
    with _figure(file, height=_height(strategies, down)) as figure:
        grid = figure.add_gridspec(1 + down, 12, height_ratios=[1.0] + [0.85] * down)
        upper = [figure.add_subplot(grid[0, :6])]
        upper.append(figure.add_subplot(grid[0, 6:], sharey=upper[0]))
        for axes, along in zip(upper, _AXES, strict=True):
            _draw(axes, strategies, along, "all", None)
            axes.set_title("All labels")
        lower: list[Axes] = []
        for place, name in enumerate(groups):
            row, column = divmod(place, across)
            cell = grid[1 + row, column * 12 // across : (column + 1) * 12 // across]
            lower.append(figure.add_subplot(cell, sharey=lower[0] if lower else None))
            _draw(lower[-1], strategies, "time", "group", name)
            lower[-1].set_title(f"Labels of group {name}")
        for axes in (*upper[1:], *(each for place, each in enumerate(lower) if place % across)):
            axes.tick_params(labelleft=False)
            axes.set_ylabel("")
        _legend(figure, upper[0], strategies)


class _Strategy(NamedTuple):
    """What a line is called, and the evaluations of its seeds."""

    label: str
    seeds: list["pd.DataFrame"]

    def curves(self, scope: str = "all", name: str | None = None) -> list["pd.DataFrame"]:
        """The curves of the seeds that have one."""
        curves = (curve_of(frame, scope, name).dropna(subset="accuracy") for frame in self.seeds)
        return [curve for curve in curves if len(curve)]


def _strategies(runs: Sequence[Run]) -> list[_Strategy]:
    found = repeated(runs)
    several = len({each.experiment for each in found}) > 1
    labels = [f"{each.label}, {each.experiment}" if several else each.label for each in found]
    if len(labels) > _MANY:
        labels = shortened(labels, _LONGEST)
    return [_Strategy(label, [run.evaluations for run in each.runs]) for label, each in zip(labels, found, strict=True)]


def _height(strategies: Sequence[_Strategy], down: int) -> float:
    """Inches, for so many rows of groups."""
    rows = 1 + 0.85 * down
    if len(strategies) <= _MANY:
        return 0.75 + 2.35 * rows
    return 0.75 + 3.2 * rows + 0.155 * -(-len(strategies) // _fitting([each.label for each in strategies]))


def _draw(axes: "Axes", strategies: Sequence[_Strategy], along: str, scope: str, name: str | None) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    for place, strategy in enumerate(strategies):
        if not (curves := strategy.curves(scope, name)):
            continue
        colour, line = _COLOURS[place % len(_COLOURS)], _LINES[place // len(_COLOURS) % len(_LINES)]
        where, mean, spread = _band(curves, along)
        marker = "o" if len(where) == 1 else ""
        alpha = 0.08 if len(strategies) > _MANY else 0.25
        low, high = np.clip(mean - spread, 0, 1), np.clip(mean + spread, 0, 1)  # no accuracy is outside
        axes.fill_between(where, low, high, color=colour, alpha=alpha, linewidth=0)
        axes.plot(where, mean, linestyle=line, color=colour, label=strategy.label, marker=marker, markersize=3)
    axes.set_xlabel(_AXES[along])
    axes.set_ylabel("accuracy")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.margins(x=0.01)
    axes.set_xlim(left=0)


def _band(curves: Sequence["pd.DataFrame"], along: str) -> tuple[Floats, Floats, Floats]:
    """The places where any curve has a point, the mean there of the curves that go so far, and the width of its band.

    With several seeds that is their sample standard deviation, not a number where less than two are; with one, the
    standard error of the evaluation.
    """
    places = [curve[along].to_numpy(np.float64) for curve in curves]
    if len(curves) == 1:
        return places[0], curves[0]["accuracy"].to_numpy(), curves[0]["standard_error"].to_numpy()
    where = np.unique(np.concatenate(places))
    values = np.array(
        [
            np.interp(where, place, curve["accuracy"], left=np.nan, right=np.nan)
            for place, curve in zip(places, curves, strict=True)
        ]
    )
    several = np.isfinite(values).sum(axis=0) > 1
    spread = np.full(len(where), np.nan)
    spread[several] = np.nanstd(values[:, several], axis=0, ddof=1)
    return where, np.nanmean(values, axis=0), spread


def _legend(figure: "Figure", axes: "Axes", strategies: Sequence[_Strategy]) -> None:
    handles, labels = axes.get_legend_handles_labels()
    seeds = sorted({len(each.curves()) for each in strategies} - {0})
    several = " or ".join(str(count) for count in seeds if count > 1)
    words = [f"mean and standard deviation over {several} seeds, as far as each goes"] * bool(several)
    words += ["one seed, with the standard error of the test sample"] * (1 in seeds)
    reading = f"Lines and bands: {'; '.join(words)}." if words else ""
    rows = -(-len(labels) // _fitting(labels))
    columns = -(-len(labels) // rows) if rows else 1
    if len(strategies) > _MANY and handles:
        named = (line for line in axes.get_lines() if line.get_label() in labels)
        lines = sorted(named, key=lambda line: -np.asarray(line.get_ydata())[-1])
        legend = figure.legend(
            lines,
            [str(line.get_label()) for line in lines],
            loc="outside lower left",
            ncols=columns,
            title=f"{reading} The one that ends highest is named first.",
            title_fontsize=7,
            alignment="left",
        )
        legend.get_title().set_color("#666666")
        return
    figure.legend(handles, labels, loc="outside upper left", ncols=columns)
    if reading:
        figure.supxlabel(reading, fontsize=7, color="#666666", x=0.01, ha="left")


def _fitting(labels: Sequence[str]) -> int:
    """How many of these labels fit beside one another."""
    return max(1, int(_WIDTH * 15 / (max(map(len, labels), default=1) + 6)))


def holdings_figure(counts: NDArray[Any], row_names: Sequence[str], title: str, file: Path) -> None:
    """Who holds what: a row a client or group, a column a label, darker the more examples; the first rows, if many."""
    table = np.asarray(counts)
    if table.ndim != 2 or len(row_names) != len(table) or not table.size:
        raise InputError(f"counts has shape {table.shape} for {len(row_names)} rows, it must be [rows, labels]")
    shown, hidden = table[:_MOST_ROWS], len(table) - _MOST_ROWS
    rows, columns = shown.shape
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    with _figure(file, height=1.1 + max(1.0, rows * (0.22 if rows <= 25 else 0.14))) as figure:
        axes = figure.add_subplot()
        mesh = axes.pcolormesh(np.ma.masked_equal(shown, 0), cmap=_blues(), vmin=0, edgecolors="white", linewidth=1.0)
        axes.set_facecolor("#f4f4f4")
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.invert_yaxis()
        axes.set_xticks(np.arange(columns) + 0.5, map(str, range(columns)))
        axes.set_yticks(np.arange(rows) + 0.5, row_names[:rows], fontsize=7 if rows <= 25 else 6)
        axes.tick_params(length=0)
        axes.set_xlabel("label")
        axes.set_title(title + (f" (the first {rows} of {len(table):,})" if hidden > 0 else ""))
        if table.size <= _MOST_CELLS:
            _write_numbers(axes, shown)
        bar = figure.colorbar(mesh, ax=axes, label="examples", anchor=(0, 1), shrink=min(1.0, 10 / rows), pad=0.02)
        bar.locator, bar.formatter = MaxNLocator(5, integer=True), StrMethodFormatter("{x:,.0f}")
        bar.outline.set_visible(False)


def _blues() -> "Colormap":
    """From a blue that differs from the empty cells to one on which white letters are read."""
    from matplotlib import colormaps
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("holdings", colormaps["Blues"](np.linspace(0.15, 0.9, 64)))


def _write_numbers(axes: "Axes", counts: NDArray[Any]) -> None:
    dark = counts.max() * 0.7
    for (row, column), count in np.ndenumerate(counts):
        if count:
            colour = "white" if count > dark else "#222222"
            axes.text(column + 0.5, row + 0.5, f"{count:,}", ha="center", va="center", fontsize=6.5, color=colour)
