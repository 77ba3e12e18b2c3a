"""A fleet before anything runs: who is there when, and how long tasks take."""

from typing import TYPE_CHECKING

import numpy as np

from fairlag.analyse.presence import FleetPresence
from fairlag.report.figures import identity
from fairlag.report.figures.identity import Sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROWS = 60
"""With more clients than that, a figure shows how many are there instead of who."""
_UNITS = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def fleet_figure(found: FleetPresence, title: str, sheet: Sheet) -> None:
    """On the left who is there when, a row per client or a line per group; on the right the durations of tasks."""
    clients = sum(group.clients for group in found.groups)
    rows = clients <= _ROWS
    with identity.drawing(sheet, height=2.6 + (min(clients, _ROWS) * 0.05 if rows else 0.6)) as figure:
        there, long = figure.subplots(1, 2, width_ratios=[1.7, 1])
        (_rows if rows else _lines)(there, found)
        there.set_title(title)
        _durations(long, found)
        identity.group_legend(figure, [group.name for group in found.groups])
        left = "one row per client, filled while it is there" if rows else "the part of a group's clients that is there"
        identity.caption(
            figure,
            f"Left: {left}. Right: the part of a group's tasks that takes at most that long, transfers included.",
        )


def _unit(until: float) -> tuple[float, str]:
    return next((unit for unit in _UNITS if until >= 2 * unit[0]), _UNITS[-1])


def _rows(axes: "Axes", found: FleetPresence) -> None:
    unit, name = _unit(found.until)
    first = 0
    for place, group in enumerate(found.groups):
        look = identity.group_look(place)
        long = (group.ends - group.starts) / unit
        axes.barh(first + group.who, long, left=group.starts / unit, height=0.8, color=look.colour, linewidth=0)
        first += group.clients
    axes.set_ylim(first - 0.5, -0.5)
    axes.set_yticks([])
    axes.set_ylabel("clients")
    _time(axes, found.until / unit, name)


def _lines(axes: "Axes", found: FleetPresence) -> None:
    unit, name = _unit(found.until)
    for place, group in enumerate(found.groups):
        look = identity.group_look(place)
        axes.plot(found.moments / unit, group.present / group.clients, color=look.colour, linestyle=look.line)
    axes.set_ylim(0, 1.03)
    axes.yaxis.set_major_formatter(identity.percent)
    axes.set_ylabel("clients there")
    _time(axes, found.until / unit, name)


def _time(axes: "Axes", until: float, name: str) -> None:
    axes.set_xlim(0, until)
    axes.set_xlabel(f"time, in {name}")


def _durations(axes: "Axes", found: FleetPresence) -> None:
    shortest = min(float(group.durations[0]) for group in found.groups)
    longest = max(float(group.durations[-1]) for group in found.groups)
    for place, group in enumerate(found.groups):
        look = identity.group_look(place)
        parts = np.arange(1, len(group.durations) + 1) / len(group.durations)
        edges = np.concatenate([[shortest / 2], group.durations, [longest * 2]])
        axes.step(edges, [0.0, *parts, 1.0], where="post", color=look.colour, linestyle=look.line, linewidth=1.4)
    if shortest > 0 and longest > 20 * shortest:
        axes.set_xscale("log")
        axes.set_xlim(shortest / 1.3, longest * 1.3)
    else:
        axes.set_xlim(0, longest * 1.1)
    axes.set_ylim(0, 1.03)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.yaxis.set_major_formatter(identity.percent)
    axes.set_xlabel("duration of a task, in seconds")
    axes.set_ylabel("tasks")
