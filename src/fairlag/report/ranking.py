"""A ranking of strategies for a terminal: one row each, as wide as the terminal allows."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from fairlag.analyse.ranking import Ranked, Ranking
from fairlag.report.words import NONE, number, percent, shortened

_COLUMNS = {
    "accuracy": "accuracy %",
    "group": "group %",
    "influence": "influence",
    "fair": "fair",
    "jain": "Jain",
    "time": "time",
}
"""What a ranking shows beside rank and label, and what stands above it."""

_MARK = "▾"
_LEAST_LABEL = 8


def ranking_table(ranking: Ranking) -> RenderableType:
    """The strategies, best first: the column that decides is marked, and what has no number there has no rank."""
    return Group(_Rows(ranking), Text(), *(Text(line, style="dim") for line in _reading(ranking)))


@dataclass(frozen=True, slots=True)
class _Rows:
    """The table alone, whose labels get what the numbers leave of the terminal's width."""

    ranking: Ranking

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        by, rows = self.ranking.by, self.ranking.rows
        head = [f"{_MARK if name == by else ''}{title}" for name, title in _COLUMNS.items()]
        numbers = [_numbers(row) for row in rows]
        decisive = list(_COLUMNS).index(by)
        ranks = [NONE if cells[decisive] == NONE else str(row.rank) for row, cells in zip(rows, numbers, strict=True)]
        labels = [row.comparison.label for row in rows]
        widths = [max(map(len, column)) for column in zip(head, *numbers, strict=True)]
        room = options.max_width - max(map(len, ranks)) - sum(widths) - len(widths) - 1
        room, longest = max(_LEAST_LABEL, room), max(map(len, ("strategy", *labels)))
        gap = 2 if longest + len(widths) <= room else 1
        table = Table(box=None, show_header=False, pad_edge=False, padding=0)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(width=1 + min(longest, room), no_wrap=True, overflow="ellipsis")
        for name, width in zip(_COLUMNS, widths, strict=True):
            table.add_column(width=gap + width, justify="right", no_wrap=True, style="bold" if name == by else "")
        table.add_row("", " strategy", *head, style="dim")
        for rank, label, cells in zip(ranks, shortened(labels, room), numbers, strict=True):
            table.add_row(rank, Text(f" {label}"), *cells)
        yield table


def _numbers(row: Ranked) -> list[str]:
    found, group, goal = row.comparison, row.group, row.reached
    time = NONE if goal is None else number(goal.virtual_time, "{:,.0f}")
    if goal is not None and row.partly:
        time += f" ({goal.virtual_time.seeds}/{len(found.seeds)})"
    return [
        percent(found.accuracy.final),
        NONE if group is None else percent(group.accuracy.final),
        NONE if group is None else number(group.influence, "{:.3f}"),
        NONE if group is None else f"{group.fair:.3f}",
        number(found.jain, "{:.3f}"),
        time,
    ]


_ORDER = {"influence": f"{_MARK} the closest to fair first", "time": f"{_MARK} the shortest first"}


def _reading(ranking: Ranking) -> Iterator[str]:
    yield _ORDER.get(ranking.by, f"{_MARK} the highest first")
    yield "accuracy: final, on all test examples, mean ± deviation over finished seeds"
    if ranking.group is not None:
        yield f"group: the same on the labels of {ranking.group}, whose clients send the fewest updates"
        yield f"influence, fair: the part of {ranking.group} in all weight and in all clients"
    goal = next((row.reached for row in ranking.rows if row.reached), None)
    if goal is not None:
        after = "; (1/2): only one seed of two got there" if any(row.partly for row in ranking.rows) else ""
        yield f"time: virtual time to {100 * goal.target:g} % accuracy{after}"
