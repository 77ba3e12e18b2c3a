"""How late updates are: their staleness per client group as a cumulative curve, one panel per strategy."""

from collections.abc import Sequence
from math import ceil, isfinite
from typing import TYPE_CHECKING

import numpy as np

from fairlag.analyse.compare import repeated
from fairlag.analyse.evidence import GroupStaleness, staleness
from fairlag.lab.run import Run
from fairlag.report.figures import identity
from fairlag.report.figures.identity import Sheet
from fairlag.report.labels import labels_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_LONG = 60
"""If any staleness is larger, the axis is logarithmic beyond 1, so that fast clients are visible too."""


def staleness_figure(runs: Sequence[Run], sheet: Sheet, size: str = "double") -> None:
    """The share of a group's updates up to each staleness, their mean, and the mean that theory predicts."""
    found = repeated(runs)
    identity.check_panels(len(found))
    shown = [staleness(each) for each in found]
    predicted = [group.predicted for groups in shown for group in groups if isfinite(group.predicted)]
    seen = max(len(group.counts) for groups in shown for group in groups) - 1
    longest = max(seen, *(ceil(mean) for mean in predicted), 0)
    theory = bool(predicted)
    with identity.panels(sheet, len(shown), size, tall=1.6, around=1.0) as (figure, axes):
        labels = labels_of(found, identity.title_width(len(shown), size))
        for panel, look, label, groups in zip(axes, identity.strategy_looks(found), labels, shown, strict=True):
            _draw(panel, groups, longest)
            identity.headline(panel, look, label)
        names = list(dict.fromkeys(group.name for groups in shown for group in groups))
        identity.group_legend(figure, names, _keys(theory=theory))
        seeds = [len(each.runs) for each in found]
        together = "" if max(seeds) == 1 else f", {identity.seeds_in_words(seeds)} together"
        closed = " Predicted: by the closed form for clients that never wait." if theory else ""
        identity.caption(figure, f"Lines: share of a group's updates with at most this staleness{together}.{closed}")


def _keys(*, theory: bool) -> list["Line2D"]:
    from matplotlib.lines import Line2D

    keys = [Line2D([], [], color="#222222", marker="o", markersize=4, linestyle="", label="mean")]
    if theory:
        keys.append(Line2D([], [], color="#222222", linestyle=(0, (3, 1.5)), linewidth=0.9, label="mean, predicted"))
    return keys


def _draw(axes: "Axes", groups: Sequence[GroupStaleness], longest: int) -> None:
    from matplotlib.ticker import MaxNLocator

    for place, group in enumerate(groups):
        look = identity.group_look(place)
        if isfinite(group.predicted):
            axes.axvline(group.predicted, color=look.colour, linestyle=(0, (3, 1.5)), linewidth=0.9)
        if not group.counts.any():
            continue
        late = np.array([-1, *range(len(group.counts)), 2 * longest + 2])
        part = np.array([0.0, *group.cumulative, 1.0])
        axes.step(late, part, where="post", color=look.colour, linestyle=look.line, linewidth=1.4)
        if isfinite(group.mean):
            height = float(part[1 + int(group.mean)])
            axes.plot(group.mean, height, "o", color=look.colour, markersize=4.5, markeredgecolor="white", zorder=4)
    if longest > _LONG:
        axes.set_xscale("symlog", linthresh=1.0)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlim(-0.04 * max(longest, 5) if longest <= _LONG else -0.1, longest * 1.02 + 0.5)
    axes.set_ylim(0, 1.03)
    axes.yaxis.set_major_formatter(identity.percent)
    axes.set_xlabel("staleness, in versions")
    axes.set_ylabel("updates")
