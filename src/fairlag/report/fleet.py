"""A table of a fleet for a terminal: how long tasks take, and who is there when."""

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from fairlag.analyse.presence import CLIENTS, FleetPresence
from fairlag.core.types import Floats
from fairlag.report.tables import titled

_BARS = " ▁▂▃▄▅▆▇█"
_WIDE = 16


def fleet_table(name: str, found: FleetPresence) -> RenderableType:
    """One row per group: its clients, the seconds of a task, and how many are there over time."""
    table = titled(f"The fleet of {name}: {sum(group.clients for group in found.groups):,} clients")
    table.add_column("group", style="bold", overflow="fold", min_width=8)
    for heading in ("clients", "mean", "median", "90 %", "duty", "there"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("over time", no_wrap=True)
    for group in found.groups:
        median, late = np.quantile(group.durations, [0.5, 0.9])
        least, most = (_count(float(each)) for each in (group.present.min(), group.present.max()))
        table.add_row(
            group.name,
            _count(group.clients),
            *(f"{each:.3g}" for each in (group.durations.mean(), median, late)),
            f"{group.duty(found.until):.0%}",
            least if least == most else f"{least}–{most}",
            bars(group.present / group.clients),
        )
    lines = [
        "mean, median, 90 %: seconds of a task, transfers included",
        f"duty: the part of the time in which a client is there, up to {found.until:,.6g} s (--until)",
        "there: how many clients are there, least and most; over time: the part of the group from 0 to that time",
    ]
    if any(group.seen < group.clients for group in found.groups):
        lines.append(f"Of a group, {CLIENTS:,} clients are looked at.")
    return Group(table, Text("\n".join(lines), style="dim"))


def _count(clients: float) -> str:
    return f"{clients:,.0f}" if clients < 10_000 else f"{clients / 1000:,.0f}k"


def bars(parts: Floats) -> str:
    """Parts from 0 to 1 over time as a row of bars.

    >>> bars(np.array([0.0, 0.5, 1.0] * 80))[:3], bars(np.linspace(0, 1, 240))
    ('▄▄▄', ' ▁▁▂▂▃▃▄▄▅▅▆▆▇▇█')
    """
    means = parts.reshape(_WIDE, -1).mean(axis=1)
    return "".join(_BARS[round(float(mean) * (len(_BARS) - 1))] for mean in means)
