"""A summary of a run: in one line, in a few lines for a terminal, and as HTML for a notebook."""

from dataclasses import dataclass
from math import isnan
from typing import NamedTuple

from fairlag.text.markup import Markup, bar, cell, element, head, line, table
from fairlag.text.numerals import clock, made_of, number
from fairlag.text.scored import ACCURACY, Scored


class Group(NamedTuple):
    """The results of a client group; NaN if not known."""

    name: str
    clients: int
    accuracy: float
    influence: float
    fair: float
    entitled: float
    """What its influence is compared with; it differs from `fair` if clients join and leave."""
    staleness: float
    lead: Scored = ACCURACY
    """The metric that `accuracy` is of."""

    def cells(self) -> tuple[str, ...]:
        """Its row, below `HEADS`."""
        return (
            self.name,
            f"{self.clients:,}",
            self.lead.written(self.accuracy),
            number(self.influence, "{:.3f}"),
            number(self.entitled, "{:.3f}"),
            number(self.staleness, "{:.2f}"),
        )


HEADS = ("group", "clients", ACCURACY.title, "influence", "fair", "staleness")
_SHOWN = 0.0005
"""Smaller differences are not visible in a card."""


@dataclass(frozen=True, slots=True)
class Card:
    """The main facts about a run."""

    folder: str
    experiment: str
    label: str
    seed: int
    status: str
    reason: str
    """Why it failed, if it did."""
    version: int
    planned: int | None
    time: float
    until: float | None
    """The time when it will end, if it ends at a time."""
    accuracy: float
    groups: tuple[Group, ...]
    real_time: bool = False
    """Did its time really pass?"""
    lead: Scored = ACCURACY
    """The metric that `accuracy` is of."""

    @property
    def done(self) -> float:
        """The part of the plan that is done."""
        if self.planned:
            return self.version / self.planned
        return self.time / self.until if self.until else 0.0

    def _heads(self) -> list[str]:
        differs = any(abs(group.entitled - group.fair) > _SHOWN for group in self.groups)
        names = {ACCURACY.title: self.lead.title, "fair": "entitled" if differs else "fair"}
        return [names.get(name, name) for name in HEADS]

    def _facts(self) -> str:
        aggregations = f"{made_of(self.version, self.planned)} aggregations"
        until = f" of {self.until:,.1f}" if self.until else ""
        score = "not evaluated yet" if isnan(self.accuracy) else f"{self.lead.words} {self.lead.told(self.accuracy)}"
        return f"{aggregations}, {clock(self.real_time)} {self.time:,.1f}{until}, {score}"

    def _status(self) -> str:
        return f"{self.status}: {self.reason}" if self.reason else self.status

    def in_a_line(self) -> str:
        """One line, for a list of runs."""
        what = f"{self.label} on {self.experiment}, seed {self.seed}"
        return f"Run({self.folder!r}: {what}, {self.status}, {self._facts()})"

    def text(self) -> str:
        """For a terminal: the name of the run, its progress, and one row per group."""
        rows = [self._heads(), *(group.cells() for group in self.groups)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"{self.label} on {self.experiment}, seed {self.seed}: {self._status()}", self._facts()]
        for name, *numbers in rows:
            aligned = (each.rjust(width) for each, width in zip(numbers, widths[1:], strict=True))
            lines.append("  ".join([name.ljust(widths[0]), *aligned]))
        return "\n".join([*lines, self.folder])

    def html(self) -> Markup:
        """For a notebook: the same, with bars of influence; a mark shows what a group is entitled to."""
        what = f" on {self.experiment}, seed {self.seed}: {self._status()}"
        progress = Markup() if self.status == "finished" else bar(self.done)
        heads = [head(name, words=name == "group") for name in self._heads()]
        most = max((max(group.entitled, group.influence) for group in self.groups), default=1.0)
        return element(
            "div",
            line(element("b", self.label), what, progress),
            line(self._facts()),
            table([heads], [_row(group, most) for group in self.groups]),
            line(self.folder, faint=True),
        )


def _row(group: Group, most: float) -> list[Markup]:
    name, clients, accuracy, influence, *others = group.cells()
    shown = bar(group.influence, most, group.entitled)
    return [cell(name, words=True), cell(clients), cell(accuracy), cell(shown, influence), *map(cell, others)]
