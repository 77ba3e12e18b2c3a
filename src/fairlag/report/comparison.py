"""Tables of runs for a terminal: which there are, and how strategies compare over their seeds."""

import sqlite3
from collections.abc import Sequence
from itertools import groupby
from math import isnan
from os.path import commonpath
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fairlag.analyse.compare import Accuracy, Comparison, GroupComparison, Spread
from fairlag.errors import InputError
from fairlag.lab.run import Run
from fairlag.report.tables import block, titled

_COLUMNS = {"group": 13, "clients": 9, "final %": 14, "best %": 14, "influence": 11, "fair": 7, "staleness": 10}
"""What a comparison shows, and how wide: 78 in all, so that a terminal of 80 holds it."""

_STATUS = {"finished": "green", "running": "cyan", "interrupted": "yellow"}
_NONE = "–"


def runs_table(folders: Sequence[Path]) -> RenderableType:
    """The runs in these folders, one a row: what each is, how far it came, and how good its model is."""
    above = Path(commonpath([folder.parent for folder in folders])) if folders else Path()
    table = titled(f"Runs in {above}", dense=True)
    for name in ("run", "strategy", "seed", "status", "versions", "time", "accuracy"):
        wide = name in ("run", "strategy")
        table.add_column(
            name, justify="left" if wide or name == "status" else "right", no_wrap=not wide, overflow="fold"
        )
    reasons = []
    for folder in folders:
        where = Text(str(folder.relative_to(above)))
        try:
            table.add_row(where, *_run_row(Run(folder)))
        except (InputError, OSError, sqlite3.Error) as error:
            table.add_row(where, "", "", Text("unreadable", style="red"))
            reasons.append(Text.assemble(where, f": {error}.", style="yellow"))
    return Group(table, *reasons)


def _run_row(run: Run) -> list[Text]:
    status, accuracy = run.status, run.accuracy()
    return [
        Text(run.label),
        Text(str(run.seed)),
        Text(status, style=_STATUS[status]),
        Text(f"{run.version:,}" + (f"/{run.planned:,}" if run.planned else "")),
        Text(f"{run.virtual_time:,.0f}"),
        Text(_NONE if isnan(accuracy) else f"{100 * accuracy:.2f} %"),
    ]


def compare_table(comparisons: Sequence[Comparison]) -> RenderableType:
    """Strategies side by side, one block each, one row a group; then how long each took to an accuracy."""
    parts: list[RenderableType] = []
    for experiment, found in groupby(comparisons, key=lambda comparison: comparison.experiment):
        strategies = list(found)
        parts += [Text(f"Comparison of {experiment}", style="bold"), Text()]
        parts.append(block(_COLUMNS, [[Text(name, style="dim") for name in _COLUMNS]]))
        for each in strategies:
            parts.append(Text.assemble((each.label, "bold"), (f"  {_about(each)}", "dim")))
            parts.append(block(_COLUMNS, [_all_row(each), *(_group_row(group) for group in each.groups)]))
        if any(each.accuracy.reached for each in strategies):
            parts += [Text(), _targets_table(strategies)]
        parts += [Text(), *(Text(line, style="dim") for line in _READING)]
        parts += [Text(f"{each.label}: {remark}.", style="yellow") for each in strategies for remark in each.remarks]
    return Group(*parts)


_READING = (
    "final: the last version on all test examples, over the seeds that finished",
    "best: the highest point of the curve, on the sample of them that it is drawn on",
    "  both mean ± standard deviation, for a group on the labels that it holds",
    "influence, fair: the group's part of all weight and of all clients",
    "staleness: how many versions late its updates are on average",
)


def _about(comparison: Comparison) -> str:
    finished, seeds = comparison.finished, len(comparison.seeds)
    words = f"{finished} of {seeds}" if finished < seeds else f"{seeds}"
    words += f" seed{'s' if seeds > 1 else ''}{' finished' if finished < seeds else ''}"
    made = _number(comparison.aggregations, "{:,.0f}")
    return f"{words}, {made} aggregations, Jain index {_number(comparison.jain, '{:.3f}')}"


def _all_row(comparison: Comparison) -> list[Text]:
    clients = sum(group.clients for group in comparison.groups)
    late = _number(comparison.staleness, "{:.2f}")
    return [Text("  all"), Text(f"{clients:,}"), *_accuracies(comparison.accuracy), Text(), Text(), Text(late)]


def _group_row(group: GroupComparison) -> list[Text]:
    return [
        Text(f"  {group.name}"),
        Text(f"{group.clients:,}"),
        *_accuracies(group.accuracy),
        Text(_number(group.influence, "{:.3f}")),
        Text(f"{group.fair:.3f}"),
        Text(_number(group.staleness, "{:.2f}")),
    ]


def _accuracies(accuracy: Accuracy) -> list[Text]:
    return [Text(_percent(accuracy.final)), Text(_percent(accuracy.best))]


def _percent(spread: Spread) -> str:
    if spread.mean is None:
        return _NONE
    return f"{100 * spread.mean:.2f}" + (f" ±{100 * spread.deviation:.2f}" if spread.deviation is not None else "")


def _number(spread: Spread, form: str) -> str:
    return _NONE if spread.mean is None else form.format(spread.mean)


def _targets_table(comparisons: Sequence[Comparison]) -> Table:
    """When each strategy first reached each accuracy."""
    table = titled("Time to an accuracy", dense=True)
    table.add_column("strategy")
    for name in ("accuracy", "virtual time", "aggregations", "seeds"):
        table.add_column(name, justify="right")
    for each in comparisons:
        for goal in each.accuracy.reached:
            table.add_row(
                Text(each.label),  # as it is: brackets in a plain string would be a style
                f"{100 * goal.target:g} %",
                _number(goal.virtual_time, "{:,.0f}"),
                _number(goal.aggregations, "{:,.0f}"),
                f"{goal.virtual_time.seeds} of {len(each.seeds)}",
            )
    return table
