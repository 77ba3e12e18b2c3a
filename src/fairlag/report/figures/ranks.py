"""Mean ranks of strategies over experiments and seeds, with bars that join those that are not distinguishable."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairlag.analyse.ranks import Ranks, ranks
from fairlag.lab.run import Run
from fairlag.report.figures.identity import FAINT, Sheet, caption, drawing
from fairlag.report.labels import shortened
from fairlag.report.ranks import about_ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST = {"single": 20, "double": 40}
"""The longest label, by the size of the figure."""


def ranks_figure(runs: Sequence[Run], sheet: Sheet, size: str = "double") -> None:
    """One row per strategy, the best above, at its mean rank; right of it, bars that join equals."""
    found = ranks(runs)
    many = len(found.labels)
    with drawing(sheet, 1.15 + 0.2 * (many + 1.5), size) as figure:
        axes = figure.add_subplot()
        labels = shortened(list(found.labels), _LONGEST[size])
        for place, (label, mean) in enumerate(zip(labels, found.means, strict=True)):
            axes.plot([mean], [place], "o", color="#222222", markersize=4, label=label)
        _bars(axes, found)
        axes.set_yticks(range(many), labels)
        axes.set_ylim(many - 0.4, -2.0)
        axes.set_xlabel("mean rank; 1 is the best")
        axes.grid(visible=False, axis="y")
        caption(figure, about_ranks(found))


def _bars(axes: "Axes", found: Ranks) -> None:
    """The critical difference as a scale above, and the sets of equals at the right."""
    many = len(found.labels)
    axes.plot([1, 1 + found.critical], [-1, -1], color=FAINT, linewidth=1.6, marker="|", label="critical difference")
    axes.annotate(
        f"critical difference {found.critical:.2f}",
        (1, -1),
        xytext=(0, 4),
        textcoords="offset points",
        color=FAINT,
    )
    for number, (first, last) in enumerate(found.alike):
        where = many + 0.15 + 0.12 * (many - 1) / 5 * (number + 1)
        axes.plot([where] * 2, [first - 0.25, last + 0.25], color="#222222", linewidth=2.4, label="not distinguishable")
    axes.set_xlim(left=0.9)
    axes.set_xticks(range(1, many + 1, 1 if many <= 12 else 5))
