"""A ranking of strategies for a terminal: one row each, as wide as the terminal allows."""

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from fairlag.analyse.ranking import Ranking
from fairlag.report.cells import MARK, GroupCells, StrategyCells, group_cells, heads, reading, strategy_cells
from fairlag.report.labels import shortened

_COLUMNS = {
    "accuracy": "accuracy %",
    "group": "group %",
    "influence": "influence",
    "fair": "fair",
    "jain": "Jain",
    "time": "time",
}
"""What a ranking shows beside rank and label, and what stands above it."""

_LEAST_LABEL = 8


def ranking_table(ranking: Ranking) -> RenderableType:
    """The strategies, best first: the column that decides is marked, and what has no number there has no rank."""
    return Group(_Rows(ranking), Text(), *(Text(line, style="dim") for line in reading(ranking, _of_group(ranking))))


@dataclass(frozen=True, slots=True)
class _Rows:
    """The table alone, whose labels get what the numbers leave of the terminal's width."""

    ranking: Ranking

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        by, rows = self.ranking.by, self.ranking.rows
        titles = _COLUMNS | heads(row.comparison for row in rows)._asdict()
        head = [f"{MARK if name == by else ''}{titles[name]}" for name in _COLUMNS]
        own = [strategy_cells(row, by) for row in rows]
        numbers = [_numbers(each, group_cells(row.group)) for each, row in zip(own, rows, strict=True)]
        ranks = [each.rank for each in own]
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


def _numbers(own: StrategyCells, group: GroupCells) -> list[str]:
    return [own.accuracy, group.accuracy, group.influence, group.fair, own.jain, own.time]


def _of_group(ranking: Ranking) -> list[str]:
    if ranking.group is None:
        return []
    return [
        f"group: the same on the labels of {ranking.group}, whose clients send the fewest updates",
        heads(row.comparison for row in ranking.rows).of(ranking.group),
    ]
