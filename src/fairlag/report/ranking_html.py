"""A ranking of strategies for a notebook: one row each, with what every client group got."""

from fairlag.analyse.ranking import Ranked, Ranking
from fairlag.report.cells import (
    MARK,
    STALENESS,
    Heads,
    about,
    group_cells,
    heads,
    reading,
    remarks,
    strategy_cells,
    title,
)
from fairlag.text.markup import Markup, bar, cell, element, head, line, table

_ALL = {"accuracy": "accuracy %", "jain": "Jain", "staleness": "staleness", "time": "time"}
_GROUP = {"group": "accuracy %", "influence": "influence", "fair": "fair", "staleness": "staleness"}
"""What is told of a strategy and of each group, in the order of their cells, and what stands above it.

What can be ranked by has the name of the criterion.
"""

_LABELS = "of a group: on the labels that it holds"


def ranking_html(ranking: Ranking) -> Markup:
    """The strategies, best first, what must be known before comparing them, and how the columns are to be read."""
    names = list(dict.fromkeys(group.name for row in ranking.rows for group in row.comparison.groups))
    groups = [group for row in ranking.rows for group in row.comparison.groups]
    most = max(max(group.influence.mean or 0.0, group.due) for group in groups)
    return element(
        "div",
        line(element("b", title(ranking))),
        table(_heads(ranking, names), [_row(ranking, row, names, most) for row in ranking.rows]),
        *(line(remark) for remark in remarks(ranking)),
        line(" · ".join(reading(ranking, [_LABELS, _named(ranking).words, STALENESS])), faint=True),
    )


def _heads(ranking: Ranking, names: list[str]) -> list[list[Markup]]:
    above = [head("", over=2), head("all", over=len(_ALL), rule=True)]
    above += [head(name, over=len(_GROUP), rule=True) for name in names]
    below, titles = [head(""), head("strategy", words=True)], _named(ranking)._asdict()
    for name, block in ((None, _ALL), *((name, _GROUP) for name in names)):
        for place, (by, words) in enumerate(block.items()):
            below.append(head(MARK * _decides(ranking, by, name) + titles.get(by, words), rule=not place))
    return [above, below]


def _named(ranking: Ranking) -> Heads:
    return heads(row.comparison for row in ranking.rows)


def _row(ranking: Ranking, row: Ranked, names: list[str], most: float) -> list[Markup]:
    found = row.comparison
    rank, *numbers = strategy_cells(row, ranking.by)
    cells = [cell(rank), cell(found.label, line(about(found), faint=True), words=True)]
    for place, (by, text) in enumerate(zip(_ALL, numbers, strict=True)):
        cells.append(cell(text, rule=not place, bold=_decides(ranking, by)))
    for name in names:
        group = next((each for each in found.groups if each.name == name), None)
        for place, (by, text) in enumerate(zip(_GROUP, group_cells(group), strict=True)):
            shown = bar(group.influence.mean, most, group.due) if group and by == "influence" else Markup()
            cells.append(cell(shown, text, rule=not place, bold=_decides(ranking, by, name)))
    return cells


def _decides(ranking: Ranking, by: str, group: str | None = None) -> bool:
    """Is this the column that is ranked by?"""
    return by == ranking.by and group in (None, ranking.group)
