"""Who the model listens to: every client's share of all weight beside its fair share, one panel per strategy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairlag.analyse.compare import repeated
from fairlag.analyse.evidence import Influence, influence
from fairlag.lab.run import Run
from fairlag.report.figures import identity
from fairlag.report.figures.identity import Sheet
from fairlag.report.labels import labels_of, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MANY = 200
"""The most clients with one bar each. More bars would be too thin: the clients of a group are sorted into a curve."""


def influence_figure(runs: Sequence[Run], sheet: Sheet, size: str = "double") -> None:
    """One bar per client or, if there are many, one curve per group: mean and standard deviation over seeds."""
    found = repeated(runs)
    identity.check_panels(len(found))
    shown = [influence(each) for each in found]
    many = max(len(each.clients) for each in shown) > MANY
    looks = identity.strategy_looks(found)
    with identity.panels(sheet, len(shown), size, tall=1.65, around=0.95) as (figure, axes):
        room = identity.title_width(len(shown), size)
        narrow = room < identity.WIDE or not _is_steady(shown)  # two indices need their own line
        labels = labels_of(found, room if narrow else room - 12)
        for panel, look, label, each in zip(axes, looks, labels, shown, strict=True):
            (_draw_curves if many else _draw_bars)(panel, each)
            identity.headline(panel, look, label, _indices(each), narrow=narrow)
        _set_heights(axes[0], shown, many=many)
        due = [identity.fair_key() if _is_steady(shown) else identity.fair_key("entitled to")]
        identity.group_legend(figure, list(dict.fromkeys(name for each in shown for name in each.groups)), due)
        identity.caption(figure, _reading(shown, many=many))


def _draw_bars(axes: "Axes", shown: Influence) -> None:
    places, mean, deviation = np.arange(len(shown.clients)), shown.mean, shown.deviation
    wide = len(places) <= 60
    colours = [identity.group_look(int(group)).colour for group in shown.group_of]
    axes.bar(places, mean, width=0.78 if wide else 1.0, color=colours, linewidth=0)
    if deviation is not None:
        axes.errorbar(places, mean, deviation, fmt="none", ecolor="#222222", elinewidth=0.7 if wide else 0.4)
    if shown.entitlements is None:
        axes.axhline(shown.fair, **identity.FAIR)
    else:
        axes.stairs(shown.entitled, np.arange(-0.5, len(places)), baseline=None, **identity.FAIR)
    axes.set_xlim(-0.8, len(places) - 0.2)
    axes.grid(visible=False, axis="x")
    middles = [float(places[shown.group_of == group].mean()) for group in np.unique(shown.group_of)]
    names = [f"{shown.groups[group]}\n({(shown.group_of == group).sum():,})" for group in np.unique(shown.group_of)]
    axes.set_xticks(middles, names if len(names) <= 4 else [""] * len(names))
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel("clients, by group")
    axes.set_ylabel("share of all weight")
    axes.yaxis.set_major_formatter(identity.percent)
    if shown.entitlements is not None:
        for group, middle in zip(np.unique(shown.group_of), middles, strict=True):
            times = number(shown.per_presence[group], "{:.2f}")
            axes.annotate(times, (middle, 0.97), xycoords=("data", "axes fraction"), ha="center", va="top")


def _draw_curves(axes: "Axes", shown: Influence) -> None:
    for group in np.unique(shown.group_of):
        look = identity.group_look(int(group))
        where, times = shown.quantiles(int(group))
        mean = times.mean(axis=0)
        if len(times) > 1:
            spread = times.std(axis=0, ddof=1)
            axes.fill_between(where, mean - spread, mean + spread, color=look.colour, alpha=0.25, linewidth=0)
        axes.plot(where, mean, color=look.colour, linestyle=look.line, linewidth=1.4)
    axes.axhline(1.0, **identity.FAIR)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(identity.percent)
    axes.set_xlabel("clients of a group, sorted")
    axes.set_ylabel("times its fair share" if shown.entitlements is None else "times its entitlement")


def _set_heights(axes: "Axes", shown: Sequence[Influence], *, many: bool) -> None:
    """From 0, or below if weights are. With many clients, the few with by far the most influence are cut off."""
    axes.set_ylim(bottom=min(0.0, min(float(each.mean.min() / (each.fair if many else 1)) for each in shown)))
    if not many and not _is_steady(shown):  # room for the numbers above the groups
        axes.set_ylim(top=1.15 * axes.get_ylim()[1])
    if many:
        axes.set_ylim(top=min(axes.get_ylim()[1], 1.2 * max(each.heard_by(0.95) for each in shown)))


def _reading(shown: Sequence[Influence], *, many: bool) -> str:
    seeds = identity.seeds_in_words([len(each.shares) for each in shown])
    several = max(len(each.shares) for each in shown) > 1
    means = f"mean and standard deviation over {seeds}" if several else "one seed"
    if many:
        clients = max(len(each.clients) for each in shown)
        words = "are too many for one bar each: those of a group are sorted, the least influence first"
        highest, most = (max(each.heard_by(part) for each in shown) for part in (1.0, 0.95))
        cut = f" The highest values, up to {highest:.1f}, are cut off." if highest > 1.2 * most else ""
        return f"{clients:,} clients {words}; {means}.{cut}{_presence(shown)}"
    times = "" if _is_steady(shown) else " Above a group: its influence per unit of time present; 1 is the mean of all."
    return f"One bar per client: its share of the weight of all updates; {means}.{_presence(shown)}{times}"


def _presence(shown: Sequence[Influence]) -> str:
    return (
        ""
        if _is_steady(shown)
        else " Each version entitles the clients that are present, equally. The second Jain index is of influence ÷ "
        "entitlement."
    )


def _is_steady(shown: Sequence[Influence]) -> bool:
    return all(each.entitlements is None for each in shown)


def _indices(shown: Influence) -> str:
    words = f"Jain {number(shown.jain, '{:.3f}')}"
    return words if shown.entitlements is None else f"{words}, {number(shown.jain_entitled, '{:.3f}')}"
