"""What attacks did: one panel per strategy, a row per defence, a column per attack; the darker, the more was lost."""

from collections.abc import Sequence
from math import isnan
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from fairlag.analyse.siege import Assault
from fairlag.lab.attacks import HONEST
from fairlag.report.figures.identity import Sheet, caption, drawing
from fairlag.text.scored import Scored

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DARK = 0.4
"""From which part of the largest loss on a cell is dark."""
_WIDE = 13
"""About how many letters of an attack fit into one line."""


def siege_figure(rows: Sequence[Assault], sheet: Sheet, lead: Scored, size: str = "double") -> None:
    """Draws the leading metric of every case."""
    attacks = list(dict.fromkeys(row.attack for row in rows))
    strategies: dict[str, list[str]] = {}
    for row in rows:
        defences = strategies.setdefault(row.strategy, [])
        defences += [] if row.defence in defences else [row.defence]
    heights = [len(defences) for defences in strategies.values()]
    with drawing(sheet, 0.24 * sum(heights) + 0.35 * len(heights) + 1.3, size) as figure:
        ratios = {"height_ratios": heights}
        panels = figure.subplots(len(heights), 1, squeeze=False, sharex=True, gridspec_kw=ratios)[:, 0]
        for axes, (strategy, defences) in zip(panels, strategies.items(), strict=True):
            mine = {(row.defence, row.attack): row for row in rows if row.strategy == strategy}
            _draw(axes, mine, attacks, defences, lead)
            axes.set_title(strategy, loc="left")
        names = ["no attack" if each == HONEST else fill(each, _WIDE) for each in attacks]
        panels[-1].set_xticks(range(len(attacks)), names)
        caption(
            figure,
            f"Each cell: {lead.title} at the end. The darker, the more was lost against the strategy without defence "
            "and attack. *: a run ended early, because its model diverged or no further version could be made.",
        )


def _draw(
    axes: "Axes", found: dict[tuple[str, str], Assault], attacks: Sequence[str], defences: Sequence[str], lead: Scored
) -> None:
    most = max((each.lost for each in found.values() if each.lost > 0), default=1.0)
    lost = np.full((len(defences), len(attacks)), np.nan)
    for down, defence in enumerate(defences):
        for across, attack in enumerate(attacks):
            if (row := found.get((defence, attack))) is not None:
                # A model that diverged has lost everything.
                lost[down, across] = most if isnan(row.lost) else max(row.lost, 0.0)
                dark = lost[down, across] > _DARK * most
                text = lead.written(row.score)[:5].rstrip(".") + ("*" if row.failed else "")
                axes.text(across, down, text, ha="center", va="center", color="white" if dark else "black", fontsize=7)
    axes.imshow(np.ma.masked_invalid(lost), cmap="Reds", vmin=0.0, vmax=most, aspect="auto")
    axes.set_yticks(range(len(defences)), ["no defence" if each == "none" else each for each in defences])
    axes.grid(False)
    axes.tick_params(length=0)
