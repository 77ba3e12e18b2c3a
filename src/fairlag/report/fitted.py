"""A fitted fleet as a table for a terminal: the measured durations of each group beside the fitted ones."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from fairlag.analyse.fit.fitted import PARTS, GroupFit, Summary
from fairlag.analyse.fit.fleet import FleetFit
from fairlag.report.tables import titled
from fairlag.text.numerals import NONE

_READING = """\
Two rows per group: the seconds that its tasks took, and the fitted distribution.
updates: updates received; used: updates that the other numbers are based on
10, 50, 90 %: this share took no longer; lost: tasks without an update
KS: the Kolmogorov–Smirnov distance, 0 if both rows agree everywhere"""


def fit_table(found: FleetFit) -> RenderableType:
    """The measured and the fitted durations, with remarks."""
    table = titled(f"The fleet of {found.experiment.name.removesuffix('-fitted')}, as measured", dense=True)
    for name in ("group", "clients", "updates", "used", "lost", "mean", *(f"{100 * part:g} %" for part in PARTS), "KS"):
        table.add_column(name, justify="left" if name == "group" else "right", no_wrap=name != "group")
    for group in found.groups:
        for row in _rows(group):
            table.add_row(*(Text(cell) for cell in row))
    remarks = [*(remark for group in found.groups for remark in group.remarks), *found.remarks]
    return Group(table, Text(_READING, style="dim"), *(Text(each) for each in remarks))


def _rows(group: GroupFit) -> Iterator[list[str]]:
    counts = [f"{each:,}" for each in (group.clients, group.updates, group.counted, group.lost)]
    yield [group.name, *counts, *_cells(group.seen), ""]
    if group.fitted is None:
        yield [f"  {group.table['delay']}, unchanged", *[""] * (len(PARTS) + 6)]
    else:
        yield [
            f"  {group.family}",
            "",
            "",
            "",
            "",
            *_cells(group.fitted),
            f"{group.distance:.3f}" if group.seen else NONE,
        ]


def _cells(summary: Summary | None) -> list[str]:
    if summary is None:
        return [NONE] * (len(PARTS) + 1)
    return [f"{value:.4g}" for value in (summary.mean, *summary.quantiles)]
