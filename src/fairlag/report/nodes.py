"""The nodes of a deployment as a table in a terminal: how often each was admitted, refused and bounded."""

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from fairlag.lab.nodelog import NodeState
from fairlag.report.tables import titled
from fairlag.runtime.decisions import ADMITTED, BOUNDED, REFUSED
from fairlag.text.numerals import NONE


def nodes_table(title: str, nodes: Iterable[NodeState]) -> Table:
    """One row per node."""
    table = titled(title, dense=True)
    for name in ("node", "client", ADMITTED, REFUSED, BOUNDED, "quarantine"):
        wide = name in ("node", "quarantine")
        table.add_column(name, justify="left" if wide else "right", no_wrap=not wide, overflow="fold")
    for each in nodes:
        counts = [f"{each.counts.get(kind, 0):,}" for kind in (ADMITTED, REFUSED, BOUNDED)]
        client = NONE if each.client is None else f"{each.client}"
        table.add_row(Text(each.node), client, *counts, Text(each.quarantine or ""))
    return table
