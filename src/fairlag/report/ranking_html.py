"""A ranking of strategies for a notebook: one row per strategy, with the metrics of every client group."""

from itertools import groupby

from fairlag.analyse.metrics import Better
from fairlag.report.ranking import Column, RankingTable, Row, about
from fairlag.text.markup import Markup, bar, cell, element, head, line, table


def ranking_html(shown: RankingTable) -> Markup:
    """The strategies, best first, with remarks and how to read the columns."""
    groups = [group for row in shown.rows for group in row.comparison.groups]
    most = max(max(group.influence.mean or 0.0, group.due) for group in groups)
    return element(
        "div",
        line(element("b", shown.title)),
        table(_heads(shown), [_row(shown, row, most) for row in shown.rows]),
        *(line(remark) for remark in shown.remarks),
        line(" · ".join(shown.reading), faint=True),
    )


def _heads(shown: RankingTable) -> list[list[Markup]]:
    above, below = [head("", over=2)], [head(""), head("strategy", words=True)]
    for group, block in groupby(shown.columns, key=lambda column: column.group):
        columns = list(block)
        above.append(head("all" if group is None else group, over=len(columns), rule=True))
        below += [head(column.marked, rule=not place) for place, column in enumerate(columns)]
    return [above, below]


def _row(shown: RankingTable, row: Row, most: float) -> list[Markup]:
    cells = [cell(row.rank), cell(row.comparison.label, line(about(row.comparison), faint=True), words=True)]
    before: Column | None = None
    for column, text in zip(shown.columns, row.cells, strict=True):
        first = before is None or before.group != column.group
        cells.append(cell(_bar(row, column, most), text, rule=first, bold=column.decides))
        before = column
    return cells


def _bar(row: Row, column: Column, most: float) -> Markup:
    """A bar for a metric that is compared with a fair share, which is marked."""
    group = row.comparison.group(column.group)
    if group is None or column.metric.better is not Better.FAIR:
        return Markup()
    return bar(group.metrics[column.metric.name].mean, most, group.due)
