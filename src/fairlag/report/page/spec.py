"""What a page is made of: sections of charts and tables, as data that its script draws in light or dark.

A colour in a chart is a token: "@s0", "@s1" … of strategies, "@g0", "@g1" … of client groups, and "@ink", "@faint",
"@grid", "@ground", "@panel", "@bad" of the page; "@s0/0.2" is the first at a fifth of its strength. The script puts in
what the reader's colour scheme makes of them. Titles, labels and cells are plain text: nothing in them is markup.
"""

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fairlag.report.colours import GROUPS, LINES, STRATEGIES

Json = dict[str, Any]

_SHORT = 16
"""Shorter arrays are written as numbers: that takes no more room, and people can read it."""


class Named(NamedTuple):
    """A strategy on a page: what it is called, and its place, which gives it its colour and line everywhere."""

    label: str
    place: int
    groups: tuple[int, ...] = ()
    """The places of its client groups among those of the page; none: as they come."""

    @property
    def colour(self) -> str:
        """The token of its colour."""
        return f"@s{self.place % len(STRATEGIES)}"

    @property
    def dash(self) -> str:
        """How its line is drawn."""
        return LINES[self.place // len(STRATEGIES) % len(LINES)]

    def place_of(self, group: int) -> int:
        """Where one of its client groups is among those of the page, by which it is the same in every chart.

        >>> Named("FedAvg", 0).place_of(1), Named("FedAvg", 0, (2, 0)).place_of(1)
        (1, 0)
        """
        return self.groups[group] if self.groups else group

    def group_colour(self, group: int) -> str:
        """The token of the colour of one of its client groups."""
        return group_colour(self.place_of(group))


def group_colour(place: int) -> str:
    """The token of the colour of the client group at that place.

    >>> group_colour(1), group_colour(9)
    ('@g1', '@g1')
    """
    return f"@g{place % len(GROUPS)}"


def numbers(values: ArrayLike, digits: int | None = None) -> Json | list[Any]:
    """An array for a chart, small: long ones as the bytes of 32-bit numbers, short ones rounded to so many digits.

    Whole numbers beyond 32 bits, and times that would lose more than they may, stay 64 bits wide.

    >>> numbers([1, 2]), numbers([0.5, float("nan")])
    ([1, 2], [0.5, None])
    >>> numbers(np.arange(100))["dtype"], numbers(np.linspace(0, 1, 100))["dtype"]
    ('i4', 'f4')
    """
    array = np.asarray(values)
    if array.size < _SHORT and array.ndim == 1:
        return [_plain(value, digits) for value in array.tolist()]
    if array.dtype.kind in "iub":
        kind = "i4" if not array.size or abs(array).max() < 2**31 else "f8"
    else:
        kind = "f8" if digits is not None and digits > 6 else "f4"
    data = np.ascontiguousarray(array, f"<{kind}")
    packed = {"dtype": kind, "bdata": b64encode(data.tobytes()).decode()}
    return packed if array.ndim == 1 else packed | {"shape": ", ".join(map(str, array.shape))}


def _plain(value: Any, digits: int | None) -> Any:
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return value if digits is None else float(f"{value:.{digits}g}")


@dataclass(frozen=True, slots=True)
class View:
    """One state of a chart: plotly's traces and layout, with tokens for colours."""

    traces: Sequence[Json]
    layout: Json = field(default_factory=dict)
    words: str = ""
    """What is to say of this view alone, below the chart: what was left out, a verdict."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A choice above a chart."""

    label: str
    options: Mapping[str, str]
    """What the page calls each key, the first being chosen; keys have no "|"."""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text; the first column names its row, the others are set to the right."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    marks: Sequence[str] = ()
    """A colour token a row, shown as a dot before its name; empty: none."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure: its views by the keys of its switches, joined by "|", in their order; the only one has the key ""."""

    name: str
    """Unique on the page, and what a downloaded file is called."""
    title: str
    reading: str
    """One sentence that says how to read it."""
    views: Mapping[str, View]
    switches: Sequence[Switch] = ()
    highlights: Mapping[str, str] = field(default_factory=dict)
    """What may be shown above others, where there are many: by the legend group of its traces, what it is called."""
    height: int = 380
    travels: bool = False
    """Has it buttons to go along its horizontal axis, and to zoom it?"""
    table: Table | None = None
    """The numbers in it, for who cannot see it."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page under one heading."""

    name: str
    title: str
    lead: str
    """What it answers, in a sentence or two."""
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    remarks: Sequence[str] = ()
    """What a reader must know: what was thinned, what is missing and why."""
    source: str = ""
    """A text to be shown as it is, folded, such as the resolved experiment."""


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page."""

    title: str
    lead: Sequence[str]
    """What was run, in plain words: a paragraph each."""
    facts: Mapping[str, str]
    """Short facts, such as how many clients; in a row at the top."""
    sections: Sequence[Section]
    status: str = ""
    """Of a page that follows runs: how far they are."""
