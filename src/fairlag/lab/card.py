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
    score: float
    """The leading metric."""
    influence: float
    fair: float
    entitled: float
    """What its influence is compared with; it differs from `fair` if clients join and leave."""
    staleness: float


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
    score: float
    """The leading metric; NaN before the first evaluation."""
    groups: tuple[Group, ...]
    real_time: bool = False
    """Did its time really pass?"""
    lead: Scored = ACCURACY
    """The leading metric's name, and how it is written."""

    @property
    def done(self) -> float:
        """The part of the plan that is done."""
        if self.planned:
            return self.version / self.planned
        return self.time / self.until if self.until else 0.0

    @property
    def _scored(self) -> bool:
        """Are there scores for groups? A regression has none; before the first evaluation, there may be some."""
        return isnan(self.score) or not all(isnan(group.score) for group in self.groups)

    def _heads(self) -> list[str]:
        differs = any(abs(group.entitled - group.fair) > _SHOWN for group in self.groups)
        score = [self.lead.title] if self._scored else []
        return ["group", "clients", *score, "influence", "entitled" if differs else "fair", "staleness"]

    def _cells(self, group: Group) -> list[str]:
        """The row of a group, below the heads."""
        return [
            group.name,
            f"{group.clients:,}",
            *([self.lead.written(group.score)] if self._scored else []),
            number(group.influence, "{:.3f}"),
            number(group.entitled, "{:.3f}"),
            number(group.staleness, "{:.2f}"),
        ]

    def _facts(self) -> str:
        aggregations = f"{made_of(self.version, self.planned)} aggregations"
        until = f" of {self.until:,.1f}" if self.until else ""
        score = "not evaluated yet" if isnan(self.score) else f"{self.lead.words} {self.lead.told(self.score)}"
        return f"{aggregations}, {clock(self.real_time)} {self.time:,.1f}{until}, {score}"

    def _status(self) -> str:
        return f"{self.status}: {self.reason}" if self.reason else self.status

    def in_a_line(self) -> str:
        """One line, for a list of runs."""
        what = f"{self.label} on {self.experiment}, seed {self.seed}"
        return f"Run({self.folder!r}: {what}, {self.status}, {self._facts()})"

    def text(self) -> str:
        """For a terminal: the name of the run, its progress, and one row per group."""
        rows = [self._heads(), *(self._cells(group) for group in self.groups)]
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
            table([heads], [self._row(group, most) for group in self.groups]),
            line(self.folder, faint=True),
        )

    def _row(self, group: Group, most: float) -> list[Markup]:
        shown = {"influence": [bar(group.influence, most, group.entitled)]}
        cells = zip(self._heads(), self._cells(group), strict=True)
        return [cell(*shown.get(name, []), text, words=name == "group") for name, text in cells]
