"""What charts of several sections share: names as plotly shows them, and the choice of a strategy."""

from collections.abc import Sequence
from html import escape
from typing import TypeVar

from fairlag.report.page.spec import Named, Switch
from fairlag.report.words import shortened

Found = TypeVar("Found")

MOST_GROUPS = 12
"""Of more client groups than that the first are shown."""

_LEGEND = 32
"""How long a name may be in a legend or a tooltip."""

_LISTED = 4
"""More names than that are counted instead."""


def plain(name: str) -> str:
    """A name as plotly shows it letter by letter: nothing in it is markup, a place to fill, or the token of a colour.

    >>> plain("<b>fast</b> & %{x} @bad")
    '&lt;b&gt;fast&lt;/b&gt; &amp; %&#123;x} &#64;bad'
    """
    return escape(" ".join(name.split()), quote=False).replace("%{", "%&#123;").replace("@", "&#64;")


def plain_names(names: Sequence[str], width: int = _LEGEND) -> list[str]:
    """Names for a legend: cut where they are long, such that they still differ.

    >>> plain_names(["x" * 40, "<i>"], 8)
    ['xxxxxxx…', '&lt;i&gt;']
    """
    return [plain(name) for name in shortened([" ".join(name.split()) for name in names], width)]


def strategy_switch(shown: Sequence[Named]) -> Switch:
    """Which strategy a chart shows; its key is that of `strategy_key`."""
    return Switch("Strategy", {strategy_key(place): named.label for place, named in enumerate(shown)})


def strategy_key(place: int) -> str:
    """Of the strategy that is shown at that place.

    >>> strategy_key(0)
    's0'
    """
    return f"s{place}"


def present(shown: Sequence[tuple[Named, Found | None]], why: str) -> tuple[list[tuple[Named, Found]], list[str]]:
    """Those of whom there is something to show, and a sentence about the others.

    >>> present([(Named("A", 0), 1), (Named("B", 1), None)], "nothing was evaluated yet")
    ([(Named(label='A', place=0), 1)], ['Of B nothing was evaluated yet.'])
    """
    missing = [named.label for named, found in shown if found is None]
    names = f"{len(missing)} strategies" if len(missing) > _LISTED else ", ".join(shortened(missing, _LEGEND))
    return [(named, found) for named, found in shown if found is not None], [f"Of {names} {why}."] if missing else []


def left_out(groups: int) -> list[str]:
    """What is to say where there are more client groups than are shown."""
    return [f"The first {MOST_GROUPS} of {groups:,} client groups are shown."] if groups > MOST_GROUPS else []
