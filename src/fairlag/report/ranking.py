"""A ranking as shown: one record of columns, cells and words, which a terminal, a notebook and the page write."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fairlag.analyse.compare import Comparison, groups_have_labels
from fairlag.analyse.metrics import Metric, Scope, Shown, lead_of, select
from fairlag.analyse.ranking import Ranked, Ranking, spread_of
from fairlag.report.differences import CLEAR, why_unclear
from fairlag.report.labels import number
from fairlag.text import numerals
from fairlag.text.numerals import NONE

MARK = "▾"
"""At the head of the column that decides."""


@dataclass(frozen=True, slots=True)
class Column:
    """A metric of all clients, or of one group."""

    metric: Metric
    title: str
    decides: bool
    """Is it what the strategies are ranked by?"""
    group: str | None = None

    @property
    def marked(self) -> str:
        """Its title, with the mark of the column that decides."""
        return f"{MARK if self.decides else ''}{self.title}"


@dataclass(frozen=True, slots=True)
class Row:
    """A strategy."""

    rank: str
    """NONE if it has no value of the metric that is ranked by."""
    comparison: Comparison
    cells: tuple[str, ...]
    """One per column."""


@dataclass(frozen=True, slots=True)
class RankingTable:
    """The strategies of one experiment, the best first."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    reading: tuple[str, ...]
    """How to read the columns, and whether seeds tell the strategies apart."""
    remarks: tuple[str, ...]
    """What a reader must know before comparing them."""

    @property
    def labels(self) -> list[str]:
        """The labels of the strategies."""
        return [row.comparison.label for row in self.rows]


def with_least_served(ranking: Ranking) -> RankingTable:
    """A ranking with the metrics that a terminal has room for, and those of the least served group."""
    first, *others = _overall(ranking, Shown.RANKING)
    columns = [first, *_of_group(ranking, Shown.RANKING, ranking.group, alone=True), *others]
    return _table(ranking, columns, alone=True)


def with_all_groups(ranking: Ranking, where: Shown, *, known: bool = False) -> RankingTable:
    """A ranking with the metrics of every group; if `known`, without columns that are empty."""
    columns = _overall(ranking, where)
    for name in dict.fromkeys(group.name for row in ranking.rows for group in row.comparison.groups):
        columns += _of_group(ranking, where, name)
    if known:
        columns = [each for each in columns if any(_cell(row, each) != NONE for row in ranking.rows)]
    return _table(ranking, columns)


def _overall(ranking: Ranking, where: Shown) -> list[Column]:
    lead, *others = select(where, Scope.RUN, Scope.TARGET, uneven=ranking.uneven, judged=ranking.judged)
    if ranking.metric not in (lead, *others) and ranking.metric.scope is Scope.RUN:
        others.insert(0, ranking.metric)
    return [Column(metric, metric.title, metric is ranking.metric) for metric in (lead, *others)]


def _of_group(ranking: Ranking, where: Shown, name: str | None, *, alone: bool = False) -> list[Column]:
    return [
        Column(
            metric,
            (alone and metric.alone) or metric.title,
            metric is ranking.metric and name == ranking.group,
            name,
        )
        for metric in select(where, Scope.GROUP, uneven=ranking.uneven, judged=ranking.judged)
        if ranking.groups_scored or metric.name != ranking.judged[0].name
    ]


def _table(ranking: Ranking, columns: Sequence[Column], *, alone: bool = False) -> RankingTable:
    return RankingTable(
        title=f"Comparison of {ranking.experiment}, ranked by {_criterion(ranking.metric)}",
        columns=tuple(columns),
        rows=tuple(
            Row(
                str(row.rank) if ranking.knows(row) else NONE,
                row.comparison,
                tuple(_cell(row, column) for column in columns),
            )
            for row in ranking.rows
        ),
        reading=(*_reading(ranking, columns, alone=alone), *told_apart(ranking)),
        remarks=tuple(_remarks(ranking)),
    )


def _criterion(metric: Metric) -> str:
    words = metric.words or metric.title
    return f"the group's {words}" if metric.scope is Scope.GROUP else words


def _cell(row: Ranked, column: Column) -> str:
    metric = column.metric
    spread = spread_of(metric, row.comparison, row.comparison.group(column.group))
    text = metric.written(spread.mean, spread.deviation)
    if metric.scope is Scope.TARGET and row.partly:
        text += f" ({spread.seeds}/{len(row.comparison.seeds)})"
    return text


def _reading(ranking: Ranking, columns: Sequence[Column], *, alone: bool) -> Iterator[str]:
    """How to read the columns: first the leading metric, then those of groups, then the others."""
    if ranking.metric.better is not None:
        yield f"{MARK} {ranking.metric.better.value}"
    metrics = list(dict.fromkeys(column.metric for column in columns))
    lead, labels = lead_of(ranking.judged), groups_have_labels(row.comparison for row in ranking.rows)
    for metric in sorted(metrics, key=lambda each: (each is not lead) + (each.scope is not Scope.GROUP)):
        if metric.scope is Scope.TARGET:
            yield from _to_target(ranking)
        elif metric.scope is Scope.GROUP and alone:
            yield from _of_one(metric, ranking.group, lead, labels=labels)
        elif metric.reading:
            yield metric.reading if labels else metric.reading.replace(_LABELS, _OWN_TESTS)


_LABELS, _OWN_TESTS = "on the labels that it holds", "on its clients' own test data"


def _of_one(metric: Metric, group: str | None, lead: Metric, *, labels: bool) -> Iterator[str]:
    """How to read a column about one group; `labels`: is it scored on labels?"""
    if group is not None and metric.name == lead.name:
        what = "the labels" if labels else "clients' own test data"
        yield f"group: the same on {what} of {group}, whose clients send the fewest updates"
    elif group is not None and metric.reading:
        yield metric.reading.replace("the group's", f"group {group}'s")


def _to_target(ranking: Ranking) -> Iterator[str]:
    goal = next((row.reached for row in ranking.rows if row.reached), None)
    if goal is not None:
        after = "; (1/2): only one of two seeds reached it" if any(row.partly for row in ranking.rows) else ""
        time = numerals.clock(*(row.comparison.real_time for row in ranking.rows))
        chosen = f" ({goal.chosen})" if goal.chosen else ""
        yield f"time: {time} to {ranking.judged[0].level(goal.target)}{chosen}{after}"


def told_apart(ranking: Ranking) -> Iterator[str]:
    """Whether seeds tell the first strategy from the others, if there are any."""
    rivals = ranking.rivals()
    unclear = [(row.comparison.label, test) for row, test in rivals if not test.clear]
    if unclear:
        labels = several([label for label, _ in unclear])
        yield f"not distinguishable from the first: {labels} ({why_unclear([test for _, test in unclear])})"
    elif rivals:
        yield f"the first is distinguishable from all others ({CLEAR})"


def _remarks(ranking: Ranking) -> list[str]:
    """Each remark once, with the strategies it is about."""
    together: dict[str, list[str]] = {}
    for row in ranking.rows:
        for remark in row.comparison.remarks:
            together.setdefault(remark, []).append(row.comparison.label)
    return [f"{several(labels)}: {remark}." for remark, labels in together.items()]


def several(labels: list[str]) -> str:
    """Labels in a line; of many, the first three.

    >>> several(["A", "B"]), several(["A", "B", "C", "D", "E"])
    ('A, B', 'A, B, C and 2 more')
    """
    rest = len(labels) - 3
    return ", ".join(labels) if rest <= 1 else f"{', '.join(labels[:3])} and {rest} more"


def about(comparison: Comparison) -> str:
    """The number of seeds and aggregations of a strategy."""
    finished, seeds = comparison.finished, len(comparison.seeds)
    words = f"{finished} of {seeds}" if finished < seeds else f"{seeds}"
    words += f" seed{'s' if seeds > 1 else ''}{' finished' if finished < seeds else ''}"
    return f"{words}, {number(comparison.aggregations, '{:,.0f}')} aggregations"
