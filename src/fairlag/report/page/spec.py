"""The parts of a page: sections with charts and tables, as data that the page's script draws in light or dark.

A colour in a chart is a token: "@s0", "@s1" … of strategies, "@g0", "@g1" … of client groups, and "@ink", "@faint",
"@grid", "@ground", "@panel", "@bad" of the page; "@s0/0.2" is the first at a fifth of its strength. The script
replaces tokens by colours of the reader's scheme. Titles, labels and cells are plain text: nothing in them is markup.
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
"""Shorter arrays are written as numbers, which is as small and can be read by people."""


class Named(NamedTuple):
    """A strategy on a page: its label, and its place, which sets its colour and line in every chart."""

    label: str
    place: int
    groups: tuple[int, ...] = ()
    """The places of its client groups among those of the page; empty if the order is the same."""

    @property
    def colour(self) -> str:
        """The token of the strategy's colour."""
        return f"@s{self.place % len(STRATEGIES)}"

    @property
    def dash(self) -> str:
        """The style of the strategy's line."""
        return LINES[self.place // len(STRATEGIES) % len(LINES)]

    def place_of(self, group: int) -> int:
        """The place of one of its client groups among those of the page, which is the same in every chart.

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
    """A compact array for a chart: long ones as the bytes of 32-bit numbers, short ones rounded to `digits`.

    Whole numbers beyond 32 bits, and times with more than six digits, stay 64 bits wide.

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
    """Text below the chart about this view only: what was left out, or a verdict."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A choice above a chart."""

    label: str
    options: Mapping[str, str]
    """The text of each key; the first is chosen at the start. Keys contain no "|"."""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text. The first column names the row; the others are aligned right."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    marks: Sequence[str] = ()
    """One colour token per row, shown as a dot before its name; an empty token shows no dot."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure. Its views are by the keys of its switches, joined by "|" in their order; without switches, by ""."""

    name: str
    """Unique on the page; also the name of a downloaded file."""
    title: str
    reading: str
    """How to read it, in a sentence or two."""
    views: Mapping[str, View]
    switches: Sequence[Switch] = ()
    highlights: Mapping[str, str] = field(default_factory=dict)
    """The names of what can be highlighted if there are many lines, by the legend group of the traces."""
    height: int = 380
    travels: bool = False
    """Does it have buttons to move along its horizontal axis and to zoom?"""
    table: Table | None = None
    """Its numbers, for readers who cannot see the figure."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page under one heading."""

    name: str
    title: str
    lead: str
    """The question that it answers, in a sentence or two."""
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    remarks: Sequence[str] = ()
    """What a reader must know, such as what was thinned out, and what is missing and why."""
    source: str = ""
    """A text that is shown unchanged and folded, such as the resolved experiment."""


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page."""

    title: str
    lead: Sequence[str]
    """What was run and found, in words: one paragraph each."""
    facts: Mapping[str, str]
    """Short facts, such as the number of clients, in a row at the top."""
    sections: Sequence[Section]
    status: str = ""
    """The progress of the runs, if the page follows them."""
