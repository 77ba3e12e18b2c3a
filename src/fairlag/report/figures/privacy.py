"""Who pays how much privacy: the ε of clients over the versions of a run, one panel per strategy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairlag.analyse.compare import repeated
from fairlag.analyse.spending import Spending, spending
from fairlag.errors import InputError
from fairlag.lab.run import Run
from fairlag.report.figures import identity
from fairlag.report.figures.identity import Sheet
from fairlag.report.labels import labels_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def privacy_figure(runs: Sequence[Run], sheet: Sheet, size: str = "double") -> None:
    """One line per client group: the mean ε of its clients, with a band from the smallest to the largest."""
    found = repeated(runs)
    identity.check_panels(len(found))
    shown = [_spent(each.runs[0]) for each in found]
    with identity.panels(sheet, len(shown), size, tall=1.6, around=1.0) as (figure, axes):
        labels = labels_of(found, identity.title_width(len(shown), size))
        for panel, look, label, each in zip(axes, identity.strategy_looks(found), labels, shown, strict=True):
            _draw(panel, each)
            identity.headline(panel, look, label)
        budget = [identity.fair_key("budget")] if any(each.budget is not None for each in shown) else []
        identity.group_legend(figure, list(dict.fromkeys(name for each in shown for name in each.groups)), budget)
        deltas = " or ".join(dict.fromkeys(f"{each.delta:g}" for each in shown))
        seed = ", with the first seed" if max(len(each.runs) for each in found) > 1 else ""
        words = f"Mean ε of a group's clients at δ = {deltas}{seed}; bands from the smallest to the largest."
        identity.caption(figure, words)


def _spent(run: Run) -> Spending:
    if (found := spending(run)) is None:
        raise InputError(
            f"{run.label} in {str(run.folder)!r} has no ε to draw: it has no version yet, or no noise in [privacy]"
        )
    return found


def _draw(axes: "Axes", found: Spending) -> None:
    for group in np.unique(found.group_of).tolist():
        mine, look = found.of(group), identity.group_look(group)
        axes.fill_between(
            found.versions, mine.min(axis=1), mine.max(axis=1), color=look.colour, alpha=0.25, linewidth=0
        )
        axes.plot(found.versions, mine.mean(axis=1), color=look.colour, linestyle=look.line, linewidth=1.4)
    if found.budget is not None:
        axes.axhline(found.budget, **identity.FAIR)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("aggregations")
    axes.set_ylabel("ε")
