"""Tables of data for a terminal: the data sets, and who holds which labels of one."""

from collections.abc import Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from fairlag.core.types import Integers
from fairlag.data.load import Known
from fairlag.data.shares import Holding, Shares
from fairlag.report.tables import titled


def data_table(rows: Sequence[Known]) -> RenderableType:
    """Every data set with a name: where it is, or how to get it."""
    table = titled("Data sets")
    table.add_column("name", no_wrap=True, style="bold")
    table.add_column("what it is")
    table.add_column("examples", justify="right", no_wrap=True)
    table.add_column("shape", no_wrap=True)
    table.add_column("where it is", overflow="fold")
    for row in rows:
        place = Text("not found", style="yellow") if row.found is None else Text(row.found)
        size = "varies" if row.examples is None else f"{row.examples:,}"
        table.add_row(row.name, row.what, size, "×".join(map(str, row.shape)), place)
    ways = (Text(f"Get {row.name} by {', or by '.join(row.ways)}.") for row in rows if row.found is None)
    return Group(table, *ways)


def holdings_table(
    name: str, groups: Sequence[Holding], shares: Shares, labels: Integers, classes: Sequence[str]
) -> RenderableType:
    """Per group of clients: the number of examples per client, and of each class; a regression has only one."""
    table = titled(f"Who holds what in {name}: {len(shares.order):,} training examples")
    table.add_column("group", style="bold")
    table.add_column("clients", justify="right", no_wrap=True)
    table.add_column("each has", justify="right", no_wrap=True)
    if len(classes) > 1:
        table.add_column("labels held, and how many examples of each")
    start = 0
    for group, counts in zip(groups, shares.group_counts(labels, len(classes), groups), strict=True):
        sizes = shares.sizes[start : start + group.count]
        start += group.count
        each = dict.fromkeys((f"{sizes.min():,}", f"{sizes.max():,}"))
        held = ", ".join(f"{classes[label]}: {counts[label]:,}" for label in np.flatnonzero(counts).tolist())
        table.add_row(group.name, f"{group.count:,}", "–".join(each), *([held] if len(classes) > 1 else []))
    return table
