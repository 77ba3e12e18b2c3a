"""A table as one record of texts, which a terminal, the page and exports for papers write in their own way."""

from dataclasses import dataclass

from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table of texts. Its first columns are words, which are aligned left; the others are numbers."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    """How to read it, and what a reader must know."""
    words: int = 1
    """The number of columns of words."""


def sheet_terminal(sheet: Sheet) -> Table:
    """The rows of a table for a terminal."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for place, name in enumerate(sheet.head):
        wide = place < sheet.words
        table.add_column(
            Text(name),
            justify="left" if wide else "right",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if wide else None,
        )
    for row in sheet.rows:
        table.add_row(*map(Text, row))
    return table
