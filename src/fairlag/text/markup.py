"""HTML for notebooks: elements with escaped text, tables and bars in the reader's own colours, light or dark."""

from collections.abc import Iterable, Sequence
from html import escape
from math import isnan

_WIDE, _HIGH = 72, 10
"""The size of a bar, in pixels."""

_NUMBERS = "text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums"
_WORDS = "text-align:left"
_RULE = ";border-left:1px solid rgba(128,128,128,.5)"
"""The line to the left of a block of columns: a grey that is visible on white and on black."""


class Markup(str):
    """HTML that is not escaped; any other text is."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str | int) -> Markup:
    """An element; attributes without a value are left out.

    >>> element("div", "a < b", element("b", "c"), title='"', style="")
    '<div title="&quot;">a &lt; b<b>c</b></div>'
    """
    words = "".join(f' {key}="{escape(str(value))}"' for key, value in attributes.items() if value != "")
    inner = "".join(each if isinstance(each, Markup) else escape(each) for each in content)
    return Markup(f"<{name}{words}>{inner}</{name}>")


def table(heads: Sequence[Sequence[Markup]], rows: Iterable[Sequence[Markup]]) -> Markup:
    """A table with heads; if it is too wide for the page, it scrolls sideways."""
    head = element("thead", *(element("tr", *cells) for cells in heads))
    body = element("tbody", *(element("tr", *cells) for cells in rows))
    whole = element("table", head, body, style="margin:.4em 0;border-collapse:collapse")
    return element("div", whole, style="overflow-x:auto")


def head(text: str, *, words: bool = False, rule: bool = False, over: int = 1) -> Markup:
    """The head of a column of numbers or words, or a centred head over several columns."""
    style = f"{_WORDS if words else _NUMBERS};font-weight:normal;opacity:.75" + _RULE * rule
    if over == 1:
        return element("th", text, style=style)
    return element("th", text, colspan=over, style=f"{style};text-align:center")


def cell(*content: str, words: bool = False, rule: bool = False, bold: bool = False) -> Markup:
    """A cell with a number or words."""
    return element("td", *content, style=(_WORDS if words else _NUMBERS) + _RULE * rule + ";font-weight:bold" * bold)


def line(*content: str, faint: bool = False) -> Markup:
    """A line of text."""
    return element("div", *content, style="opacity:.75;font-size:90%" if faint else "")


def bar(part: float | None, most: float = 1.0, mark: float | None = None) -> Markup:
    """A bar of length `part` out of `most`, with an optional mark; empty without a number."""
    if part is None or isnan(part):
        return Markup()

    def along(value: float) -> str:
        return f"{_WIDE * min(max(value / most, 0.0), 1.0):.1f}"

    parts = [
        element("rect", width=_WIDE, height=_HIGH, opacity=".12"),
        element("rect", width=along(part), height=_HIGH, opacity=".5"),
    ]
    if mark is not None:
        parts.append(element("path", d=f"M{along(mark)} -2V{_HIGH + 2}", stroke="currentColor"))
    style = "vertical-align:middle;overflow:visible;margin:0 .5em"
    return element("svg", *parts, width=_WIDE, height=_HIGH, fill="currentColor", style=style)
