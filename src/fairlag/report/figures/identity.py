"""What all figures share: sizes, fonts, the colours of strategies and client groups, and writing a file."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

from fairlag.analyse.compare import Repeated
from fairlag.errors import InputError
from fairlag.files import save
from fairlag.report.colours import GROUPS, LINES, STRATEGIES, Shade, strategy_places
from fairlag.report.figures.numbers import beside, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

FORMATS = ("png", "pdf", "svg")

Sheet = Path | BytesIO
"""Where a figure is drawn: a file, in the format of its suffix, or memory, as PNG."""

SIZES = {"single": 3.4, "double": 7.0}
"""Inches: one column of a paper, or both. Nothing is scaled, so font sizes are exact."""

PANELS = 8
"""The most panels in a figure, one per strategy."""

_LINES: Any = {"solid": "-", "dash": "--", "dot": ":", "dashdot": (0, (5, 1.2, 1, 1.2))}

FAINT = "#666666"

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
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,  # text stays text: it can be searched, and journals accept it
    "svg.fonttype": "none",
    "svg.hashsalt": "fairlag",  # the same figure gives the same bytes
}
_SMALLER: Any = {"font.size": 7.0, "axes.titlesize": 7.5, "savefig.dpi": 300}
"""The style of a figure in one column, which has little room."""


FAIR: Any = {"color": "#222222", "linestyle": (0, (4, 2)), "linewidth": 0.9}
"""The line of the fair share."""


class Look(NamedTuple):
    """The colour and style of a line."""

    colour: str
    line: Any


def strategy_look(place: int) -> Look:
    """The look of the strategy at that place of a comparison, in every figure.

    >>> strategy_look(1)
    Look(colour='#D55E00', line='-')
    """
    return _look(STRATEGIES, place)


def strategy_looks(found: Sequence[Repeated]) -> list[Look]:
    """The looks of these strategies, in every figure."""
    return [strategy_look(place) for place in strategy_places(found)]


def group_look(place: int) -> Look:
    """The look of the client group at that place of an experiment, in every figure.

    >>> group_look(0)
    Look(colour='#3DA494', line='-')
    """
    return _look(GROUPS, place)


def _look(colours: Sequence[Shade], place: int) -> Look:
    line = LINES[place // len(colours) % len(LINES)]
    return Look(colours[place % len(colours)].light, _LINES[line])


def check_format(file: Path) -> None:
    """Refuses a file name with any other suffix than those of `FORMATS`."""
    if file.suffix[1:].lower() not in FORMATS:
        raise InputError(f"{str(file)!r} cannot be drawn: the name must end with .{', .'.join(FORMATS)}")


def check_size(size: str) -> None:
    """Refuses any size but those of `SIZES`."""
    if size not in SIZES:
        raise InputError(f"the size of a figure is {size!r}, it must be {' or '.join(SIZES)}")


def check_panels(count: int) -> None:
    """Refuses no strategies, or more than a figure has room for."""
    if not count:
        raise InputError("there are no runs to draw")
    if count > PANELS:
        raise InputError(f"there are {count} strategies, but a figure has room for {PANELS} panels: give fewer runs")


_style: ContextVar[str | None] = ContextVar("style", default=None)


@contextmanager
def styled(style: str | None) -> Iterator[None]:
    """Inside, figures are drawn with this matplotlib style on top of their own: a name, or a file (.mplstyle)."""
    if style is not None:
        from matplotlib import style as sheets

        try:
            with sheets.context(style):
                pass
        except (OSError, ValueError) as error:
            raise InputError(
                f"--style is {style!r}, it must be the name of a matplotlib style, such as "
                f"{', '.join(sorted(sheets.available)[-3:])}, or a file of one: {' '.join(str(error).split())}"
            ) from None
    before = _style.set(style)
    try:
        yield
    finally:
        _style.reset(before)


@contextmanager
def drawing(sheet: Sheet, height: float, size: str = "double") -> Iterator["Figure"]:
    """An empty figure, which is written at the end of the `with` block."""
    suffix = ".png"
    if isinstance(sheet, Path):
        check_format(sheet)
        suffix = sheet.suffix.lower()
    check_size(size)
    from matplotlib import rc_context, style
    from matplotlib.figure import Figure

    chosen, dates = _style.get(), {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    own = _STYLE | (_SMALLER if size == "single" else {})
    with rc_context(own), style.context([] if chosen is None else chosen):
        figure = Figure(figsize=(SIZES[size], height), layout="constrained")
        yield figure
        drawn = BytesIO() if isinstance(sheet, Path) else sheet
        figure.savefig(drawn, format=suffix[1:], metadata=dates.get(suffix))
    if isinstance(sheet, Path):
        save(sheet, drawn.getvalue())
        save(beside(sheet), numbers(figure).to_csv(index=False))


def columns(panels: int, size: str) -> int:
    """The number of panels beside one another.

    >>> [columns(panels, "double") for panels in range(1, 9)], columns(4, "single"), columns(5, "single")
    ([1, 2, 3, 2, 3, 3, 4, 4], 1, 2)
    """
    if size == "single":
        return 1 if panels <= 4 else 2
    return {1: 1, 2: 2, 3: 3, 4: 2, 5: 3, 6: 3}.get(panels, 4)


@contextmanager
def panels(
    sheet: Sheet, count: int, size: str, *, tall: float, around: float
) -> Iterator[tuple["Figure", list["Axes"]]]:
    """A figure of `count` panels with shared axes, each `tall` inches high, with `around` inches for the rest.

    Only the outer panels have numbers and labels at their axes.
    """
    check_panels(count)
    check_size(size)
    across = columns(count, size)
    down = -(-count // across)
    with drawing(sheet, tall * down + around, size) as figure:
        grid = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
        for spare in grid.flat[count:]:
            spare.remove()
        found = list(grid.flat[:count])
        for axes in found[max(0, count - across) :]:
            axes.tick_params(labelbottom=True)
        yield figure, found
        for place, axes in enumerate(found):
            axes.set_xlabel(axes.get_xlabel() if place >= count - across else "")
            axes.set_ylabel(axes.get_ylabel() if place % across == 0 else "")


def title_width(count: int, size: str) -> int:
    """The number of letters that fit above one of `count` panels.

    >>> title_width(3, "double"), title_width(8, "double"), title_width(8, "single")
    (28, 20, 20)
    """
    around, letters = (0.22, 13.6) if size == "double" else (0.4, 15.4)
    return int((SIZES[size] / columns(count, size) - around) * letters)


WIDE = 26
"""A panel whose title has room for this many letters has room for a fact beside it."""


def headline(axes: "Axes", look: Look, words: str, fact: str = "", *, narrow: bool = False) -> None:
    """The title of a strategy's panel and a fact, above a rule that looks like the strategy's line in other figures.

    In a narrow panel, the fact is on its own line.
    """
    axes.set_title(f"{words}\n" if narrow else words)
    axes.set_title(fact, loc="right", fontweight="normal", color=FAINT, fontsize="medium")
    axes.spines["top"].set(visible=True, color=look.colour, linestyle=look.line, linewidth=1.6)


def caption(figure: "Figure", words: str) -> None:
    """Writes below the figure how to read it."""
    figure.supxlabel(wrapped(words, figure), fontsize=caption_size(figure), color=FAINT, x=0.01, ha="left")


def wrapped(words: str, figure: "Figure") -> str:
    """A caption, wrapped to the width of the figure."""
    return fill(words, int(figure.get_figwidth() * 72 / (caption_size(figure) * 0.52)))


def caption_size(figure: "Figure") -> float:
    """The font size of a caption, in points."""
    return 6.5 if figure.get_figwidth() < SIZES["double"] else 7.0


def group_legend(figure: "Figure", names: Sequence[str], more: Sequence["Line2D"] = ()) -> None:
    """A legend above the figure: the colour of each client group, and other entries."""
    from matplotlib.lines import Line2D

    looks = [group_look(place) for place in range(len(names))]
    keys = [
        Line2D([], [], color=look.colour, linestyle=look.line, linewidth=2.5, label=name)
        for name, look in zip(names, looks, strict=True)
    ]
    legend(figure, [*keys, *more])


def fair_key(label: str = "fair share 1/n") -> "Line2D":
    """The legend entry of the fair share."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **FAIR, label=label)


def legend(figure: "Figure", handles: Sequence[Any]) -> None:
    """A legend above the figure, in as many columns as fit."""
    labels = [str(handle.get_label()) for handle in handles]
    across = fitting(labels, figure.get_figwidth())
    figure.legend(handles, labels, loc="outside upper left", ncols=min(across, len(labels)) or 1)


def fitting(labels: Sequence[str], width: float) -> int:
    """The number of columns for these labels in a legend of `width` inches, each as wide as its longest label.

    >>> fitting(["FedBuff", "FedAvg", "FairShare"], 3.4), fitting(["FedStaleWeight (buffer=10)"] * 3, 3.4)
    (3, 1)
    """
    room = width * (17 if width < SIZES["double"] else 15)
    for across in range(len(labels), 1, -1):
        down = -(-len(labels) // across)
        letters = [max(map(len, labels[first : first + down])) + 6 for first in range(0, len(labels), down)]
        if sum(letters) <= room:
            return across
    return 1


def percent(value: float, _: object = None) -> str:
    """A share as written at an axis.

    >>> percent(0.1), percent(0.025)
    ('10%', '2.5%')
    """
    return f"{100 * value:.4g}%"


def seeds_in_words(counts: Sequence[int]) -> str:
    """The number of seeds of strategies.

    >>> seeds_in_words([1]), seeds_in_words([2, 2]), seeds_in_words([3, 2])
    ('1 seed', '2 seeds', '2 to 3 seeds')
    """
    few, many = min(counts), max(counts)
    return f"{few} {'seed' if many == 1 else 'seeds'}" if few == many else f"{few} to {many} seeds"
