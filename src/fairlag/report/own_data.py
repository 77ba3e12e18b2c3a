"""Clients' own test data in a terminal: how good the models of strategies are for each client."""

from collections.abc import Sequence
from textwrap import wrap

from rich.console import Group, RenderableType
from rich.text import Text

from fairlag.analyse.compare import Comparison
from fairlag.analyse.metrics import PERSONALISED, Scope, Shown, select
from fairlag.report.tables import titled

OWN = "own_data"
"""The metric that comparisons have if clients are tested on their own data."""


def own_data_table(strategies: Sequence[Comparison]) -> RenderableType:
    """One row per strategy, and one more if clients made local steps of their own."""
    judged = strategies[0].judged
    metrics = [each for each in select(Shown.DETAILS, Scope.OWN, judged=judged) if not each.name.endswith(PERSONALISED)]
    table = titled(f"{judged[0].words[:1].upper()}{judged[0].words[1:]} on clients' own test data", dense=True)
    table.add_column("strategy")
    for metric in metrics:
        table.add_column(metric.title, justify="right")
    for each in strategies:
        for end, name in (("", each.label), (PERSONALISED, "  after own local steps")):
            if OWN + end in each.metrics:
                spreads = [each.metrics[metric.name + end] for metric in metrics]
                cells = [
                    metric.written(spread.mean, spread.deviation)
                    for metric, spread in zip(metrics, spreads, strict=True)
                ]
                table.add_row(Text(name), *cells)
    lines = [line for metric in metrics for line in wrap(metric.reading, 80, subsequent_indent="  ")]
    return Group(table, *(Text(line, style="dim") for line in lines))
