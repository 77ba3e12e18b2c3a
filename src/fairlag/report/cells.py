"""What the cells of a comparison say, and the words around them: the same in a terminal and in a notebook."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fairlag.analyse.compare import Comparison, GroupComparison
from fairlag.analyse.ranking import CRITERIA, Ranked, Ranking
from fairlag.analyse.significance import LEVEL
from fairlag.report.labels import number, percent
from fairlag.text import numerals
from fairlag.text.numerals import NONE

MARK = "▾"
"""At the head of the column that decides."""

STALENESS = "staleness: how many versions late its updates are on average"

_BY = {
    "accuracy": "accuracy",
    "group": "the group's accuracy",
    "influence": "the group's influence",
    "jain": "Jain index",
    "time": "time",
}

UNCLEAR = f"t-test over seeds, paired over those that both have, p ≥ {LEVEL:g}"
"""Why two strategies are not told apart, if each has seeds enough."""

_ORDER = {"influence": "the closest to fair first", "time": "the shortest first"}


class Heads(NamedTuple):
    """What stands above the cells that are compared with what is fair, and how they are to be read."""

    fair: str = "fair"
    jain: str = "Jain"
    words: str = "influence, fair: the group's part of all weight and of all clients"

    def of(self, group: str) -> str:
        """How the cells of that group alone are to be read."""
        return self.words.replace("the group's part of", f"the part of {group} in").replace(" and of", " and in")


_COMING = Heads(
    "entitled",
    "Jain÷",
    "influence, entitled: the group's part of all weight and of all versions, each shared by the clients there",
)
EVENNESS = "Jain÷: Jain index of influence ÷ entitlement"


def heads(comparisons: Iterable[Comparison]) -> Heads:
    """Of a fleet that comes and goes: its clients are not entitled alike."""
    return _COMING if any(each.comes_and_goes for each in comparisons) else Heads()


class StrategyCells(NamedTuple):
    """What a row says of a strategy."""

    rank: str
    accuracy: str
    jain: str
    staleness: str
    time: str
    """To the first target."""


def strategy_cells(row: Ranked, by: str) -> StrategyCells:
    """What lacks the number that is ranked by has no rank."""
    found, goal = row.comparison, row.reached
    time = NONE if goal is None else number(goal.virtual_time, "{:,.0f}")
    if goal is not None and row.partly:
        time += f" ({goal.virtual_time.seeds}/{len(found.seeds)})"
    return StrategyCells(
        rank=NONE if CRITERIA[by](found, row.group) is None else str(row.rank),
        accuracy=percent(found.accuracy.final),
        jain=number(found.evenness, "{:.3f}"),
        staleness=number(found.staleness, "{:.2f}"),
        time=time,
    )


class GroupCells(NamedTuple):
    """What a row says of a client group."""

    accuracy: str = NONE
    influence: str = NONE
    fair: str = NONE
    staleness: str = NONE


def group_cells(group: GroupComparison | None) -> GroupCells:
    """Nothing of a group that the strategy's fleet does not have."""
    if group is None:
        return GroupCells()
    return GroupCells(
        accuracy=percent(group.accuracy.final),
        influence=number(group.influence, "{:.3f}"),
        fair=f"{group.due:.3f}",
        staleness=number(group.staleness, "{:.2f}"),
    )


def title(ranking: Ranking) -> str:
    """What is compared, and who comes first."""
    return f"Comparison of {ranking.experiment}, ranked by {_BY[ranking.by]}"


def reading(ranking: Ranking, groups: Sequence[str]) -> Iterator[str]:
    """How the columns are to be read; between accuracy and time those of groups."""
    yield f"{MARK} {_ORDER.get(ranking.by, 'the highest first')}"
    yield "accuracy: final, on all test examples, mean ± deviation over finished seeds"
    yield from groups
    if any(row.comparison.comes_and_goes for row in ranking.rows):
        yield EVENNESS
    goal = next((row.reached for row in ranking.rows if row.reached), None)
    if goal is not None:
        after = "; (1/2): only one seed of two got there" if any(row.partly for row in ranking.rows) else ""
        time = numerals.clock(*(row.comparison.real_time for row in ranking.rows))
        chosen = f" ({goal.chosen})" if goal.chosen else ""
        yield f"time: {time} to {100 * goal.target:g} % accuracy{chosen}{after}"
    yield from told_apart(ranking)


def told_apart(ranking: Ranking) -> Iterator[str]:
    """Whether seeds tell the first from the others; nothing if there are no others."""
    rivals = ranking.rivals()
    unclear = [(row.comparison.label, test) for row, test in rivals if not test.clear]
    if unclear:
        labels = several([label for label, _ in unclear])
        why = unclear[0][1].words if len({test.words for _, test in unclear}) == 1 else UNCLEAR
        yield f"not distinguishable from the first: {labels} ({why})"
    elif rivals:
        yield f"the first is distinguishable from all others ({UNCLEAR.replace('≥', '<')})"


def remarks(ranking: Ranking) -> list[str]:
    """What must be known before comparing: each remark once, with the strategies that it is made of."""
    together: dict[str, list[str]] = {}
    for row in ranking.rows:
        for remark in row.comparison.remarks:
            together.setdefault(remark, []).append(row.comparison.label)
    return [f"{several(labels)}: {remark}." for remark, labels in together.items()]


def several(labels: list[str]) -> str:
    """Labels in a line, the first ones of many.

    >>> several(["A", "B"]), several(["A", "B", "C", "D", "E"])
    ('A, B', 'A, B, C and 2 more')
    """
    rest = len(labels) - 3
    return ", ".join(labels) if rest <= 1 else f"{', '.join(labels[:3])} and {rest} more"


def about(comparison: Comparison) -> str:
    """How much there is of a strategy."""
    finished, seeds = comparison.finished, len(comparison.seeds)
    words = f"{finished} of {seeds}" if finished < seeds else f"{seeds}"
    words += f" seed{'s' if seeds > 1 else ''}{' finished' if finished < seeds else ''}"
    return f"{words}, {number(comparison.aggregations, '{:,.0f}')} aggregations"
