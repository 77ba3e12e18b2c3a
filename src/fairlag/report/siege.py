"""What attacks did, as a table on a terminal."""

from collections.abc import Iterator, Sequence
from math import isnan

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fairlag.analyse.siege import Assault
from fairlag.lab.attacks import HONEST, NO_DEFENCE, Misfit
from fairlag.report.plain import PlainTable
from fairlag.text.numerals import number
from fairlag.text.scored import Scored

_READING = (
    "All in per cent. Lost: against the same strategy without defence and attack. Influence: the attackers' part of "
    "all influence. Refused: the part of honest updates that was refused. Unheard: the part of honest clients without "
    "any influence."
)
_NO_SCORE = "–*: a run ended before it was saved for the first time, so there is no score."


def _columns(lead: Scored) -> tuple[str, ...]:
    """The heads of the columns after the attack."""
    return ("strategy", "defence", lead.title, "lost", "influence", "refused", "unheard")


def _cells(row: Assault, lead: Scored) -> tuple[str, ...]:
    """One row of the table."""
    parts = (row.influence, row.refused, row.unheard)
    mark = "*" if row.failed else ""
    score, lost = lead.written(row.score), lead.written(row.lost)
    return (row.strategy, row.defence, score + mark, lost, *(number(each, "{:.1%}").rstrip("%") for each in parts))


def siege_table(rows: Sequence[Assault], misfits: Sequence[Misfit], lead: Scored) -> RenderableType:
    """One block per attack, one row per strategy and defence."""
    parts: list[RenderableType] = []
    for attack in dict.fromkeys(row.attack for row in rows):
        part = next(row.share for row in rows if row.attack == attack)
        title = "No attack" if attack == HONEST else f"Attack: {attack} ({number(part, '{:.0%}')} of all clients)"
        table = Table(title=Text(title), box=None, padding=(0, 1, 0, 0), title_justify="left", header_style="bold")
        for place, head in enumerate(_columns(lead)):
            table.add_column(head, justify="left" if place < 2 else "right", no_wrap=True)
        for row in rows:
            if row.attack == attack:
                table.add_row(*map(Text, _cells(row, lead)))
        parts += [table, Text()]
    return Group(*parts, *(Text(line, style="dim") for line in _notes(rows, misfits)))


def siege_plain(rows: Sequence[Assault], misfits: Sequence[Misfit], lead: Scored) -> PlainTable:
    """One row per attack, strategy and defence."""
    cells = tuple((row.attack, *_cells(row, lead)) for row in rows)
    return PlainTable("Attacks", ("attack", *_columns(lead)), cells, tuple(_notes(rows, misfits)), words=3)


def _notes(rows: Sequence[Assault], misfits: Sequence[Misfit]) -> Iterator[str]:
    yield _READING
    yield from (_early(row) for row in rows if row.failed)
    if any(row.failed and isnan(row.score) for row in rows):
        yield _NO_SCORE
    for misfit in misfits:
        yield f"{misfit.guarded.strategy} + {misfit.guarded.defence} was left out: {misfit.reason}"


def _early(row: Assault) -> str:
    who = row.strategy if row.defence == NO_DEFENCE else f"{row.strategy} + {row.defence}"
    where = "without an attack" if row.attack == HONEST else f"under {row.attack}"
    why = "; ".join(reason.partition(":")[0] for reason in row.reasons)
    return f"*: {who} {where}: {row.failed} of {row.seeds} runs ended early{f' ({why})' * bool(why)}."
