"""What charts of several sections share: names for plotly, bands, panels, and the choice of a strategy."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fairlag.core.types import Floats
from fairlag.report.labels import shortened
from fairlag.report.page.spec import Chart, Json, Named, Section, Switch, View, numbers

Found = TypeVar("Found")

MOST_GROUPS = 12
"""The most client groups that are shown: the first ones."""

_LEGEND = 32
"""The longest name in a legend or a tooltip."""

_LISTED = 4
"""The most names in a list: more are counted instead."""

_TITLED, _TITLED_NARROW = 40, 18
"""The longest name in the title of a panel, and the same on a phone."""

_TITLE = 26
"""The height of a panel's title in pixels."""


def plain(name: str) -> str:
    """A name that plotly shows letter by letter: nothing in it is markup, a placeholder or a colour token.

    >>> plain("<b>fast</b> & %{x} @bad")
    '&lt;b&gt;fast&lt;/b&gt; &amp; %&#123;x} &#64;bad'
    """
    return escape(" ".join(name.split()), quote=False).replace("%{", "%&#123;").replace("@", "&#64;")


def plain_names(names: Sequence[str], width: int = _LEGEND) -> list[str]:
    """Names for a legend. Long ones are cut so that they still differ.

    >>> plain_names(["x" * 40, "<i>"], 8)
    ['xxxxxxx…', '&lt;i&gt;']
    """
    return [plain(name) for name in shortened([" ".join(name.split()) for name in names], width)]


def strategy_switch(shown: Sequence[Named]) -> Switch:
    """The choice of the strategy that a chart shows; keys are from `strategy_key`."""
    return Switch("Strategy", {strategy_key(place): named.label for place, named in enumerate(shown)})


def by_strategy(shown: Sequence[tuple[Named, Found]], view: Callable[[Named, Found], View], **chart: Any) -> Chart:
    """A chart that shows one strategy at a time, with a switch; `chart` has its other fields."""
    views = {strategy_key(place): view(named, found) for place, (named, found) in enumerate(shown)}
    return Chart(views=views, switches=[strategy_switch([named for named, _ in shown])], **chart)


def strategy_key(place: int) -> str:
    """The key of the strategy at that place.

    >>> strategy_key(0)
    's0'
    """
    return f"s{place}"


def axis(title: str, **more: Any) -> Json:
    """An axis with its title."""
    return {"title": {"text": title}, **more}


def shade(where: Floats, low: Floats, high: Floats, colour: str, key: str, **more: Any) -> list[Json]:
    """The band between two lines, which is shown and hidden with the legend entry of that key."""
    edge = {
        "type": "scatter",
        "mode": "lines",
        "x": numbers(where),
        "line": {"width": 0, "color": colour},
        "hoverinfo": "skip",
        "legendgroup": key,
        "showlegend": False,
        **more,
    }
    return [edge | {"y": numbers(low)}, edge | {"y": numbers(high), "fill": "tonexty", "fillcolor": f"{colour}/0.18"}]


ALONG = ("time", "version")
"""The horizontal axes that scores can be shown against."""


def along_words(along: str, clock: str) -> tuple[str, str]:
    """The title of the axis, and a point on it in a tooltip's words; `clock` names the time."""
    return {
        "time": (clock, f"at {clock} %{{x:,.2f}}"),
        "version": ("aggregations", "after %{x:,.0f} aggregations"),
    }[along]


def along_switch(clock: str) -> Switch:
    """The choice between time and aggregations."""
    return Switch("Against", {along: along_words(along, clock)[0] for along in ALONG})


class Room(NamedTuple):
    """The most items that a page shows: per strategy, and of all strategies together."""

    most: int
    altogether: int

    def of_each(self, strategies: int) -> int:
        """The most items of each strategy, given their number.

        >>> Room(3_000, 12_000).of_each(1), Room(3_000, 12_000).of_each(8), Room(3_000, 12_000).of_each(22)
        (3000, 1500, 545)
        """
        return min(self.most, self.altogether // max(1, strategies))


class Panels(NamedTuple):
    """Panels below one another on one horizontal axis: their positions, and their total height in pixels."""

    domains: list[list[float]]
    height: int

    @classmethod
    def of(cls, count: int, tall: int) -> "Panels":
        """`count` panels, each `tall` pixels high, with a title above each."""
        each = tall + _TITLE
        whole = count * each
        domains = [[1 - (place + 1) * each / whole, 1 - (place * each + _TITLE) / whole] for place in range(count)]
        return cls([[max(0.0, low), high] for low, high in domains], whole + 100)

    def title(self, place: int, names: Sequence[str], words: str) -> Json:
        """An annotation above a panel: its name and some words. On a phone the name is cut shorter."""
        wide, narrow = (f"<b>{plain_names(names, width)[place]}</b>  {words}" for width in (_TITLED, _TITLED_NARROW))
        where = {"x": 0, "xref": "paper", "xanchor": "left", "yref": "paper", "yanchor": "bottom"}
        look = {"showarrow": False, "align": "left"}
        return {"text": wide, "narrow": narrow, "y": self.domains[place][1], **look, **where}


def place_of_axis(place: int) -> str:
    """The number of an axis, as plotly counts them.

    >>> place_of_axis(0), place_of_axis(1)
    ('', '2')
    """
    return str(place + 1) if place else ""


def named_once(traces: Sequence[Json]) -> list[Json]:
    """The traces with each legend entry once, although every panel has it."""
    seen: set[str] = set()
    found = []
    for trace in traces:
        named = trace.get("showlegend", True)
        found.append({**trace, "showlegend": named and trace["legendgroup"] not in seen})
        seen |= {trace["legendgroup"]} if named else set()
    return found


def present(shown: Sequence[tuple[Named, Found | None]], why: str) -> tuple[list[tuple[Named, Found]], list[str]]:
    """The strategies with something to show, and a sentence about the others.

    >>> present([(Named("A", 0), 1), (Named("B", 1), None)], "nothing was evaluated yet")
    ([(Named(label='A', place=0, groups=()), 1)], ['For B, nothing was evaluated yet.'])
    """
    missing = [named.label for named, found in shown if found is None]
    names = f"{len(missing)} strategies" if len(missing) > _LISTED else " and ".join(shortened(missing, _LEGEND))
    return [(named, found) for named, found in shown if found is not None], [f"For {names}, {why}."] if missing else []


def empty(section: Section, why: str) -> Section:
    """An empty section that says why it is empty."""
    return Section(section.name, section.title, section.lead, remarks=[why])


def left_out(groups: int) -> list[str]:
    """A remark if there are more client groups than are shown."""
    return [f"The first {MOST_GROUPS} of {groups:,} client groups are shown."] if groups > MOST_GROUPS else []


def extent(values: Sequence[Floats]) -> tuple[float, float]:
    """The smallest and the largest of all values and 0."""
    together = np.concatenate([np.zeros(1), *values])
    return float(together.min()), float(together.max())
