"""A ranking of strategies for a terminal: one row each, as wide as the terminal allows."""

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from fairlag.report.labels import shortened
from fairlag.report.ranking import RankingTable

_LEAST_LABEL = 8


def ranking_terminal(shown: RankingTable) -> RenderableType:
    """The strategies, best first: the deciding column is marked, and a strategy without a number in it has no rank."""
    return Group(_Rows(shown), Text(), *(Text(line, style="dim") for line in shown.reading))


@dataclass(frozen=True, slots=True)
class _Rows:
    """The table alone. Its labels get the width that the numbers leave."""

    shown: RankingTable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns, rows, labels = self.shown.columns, self.shown.rows, self.shown.labels
        head = [column.marked for column in columns]
        ranks = [row.rank for row in rows]
        widths = [max(map(len, column)) for column in zip(head, *(row.cells for row in rows), strict=True)]
        room = options.max_width - max(map(len, ranks)) - sum(widths) - len(widths) - 1
        room, longest = max(_LEAST_LABEL, room), max(map(len, ("strategy", *labels)))
        gap = 2 if longest + len(widths) <= room else 1
        table = Table(box=None, show_header=False, pad_edge=False, padding=0)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(width=1 + min(longest, room), no_wrap=True, overflow="ellipsis")
        for column, width in zip(columns, widths, strict=True):
            table.add_column(width=gap + width, justify="right", no_wrap=True, style="bold" if column.decides else "")
        table.add_row("", " strategy", *head, style="dim")
        for rank, label, row in zip(ranks, shortened(labels, room), rows, strict=True):
            table.add_row(rank, Text(f" {label}"), *row.cells)
        yield table
