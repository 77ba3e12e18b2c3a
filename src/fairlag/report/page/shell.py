"""The page as one file with its data, style and script, and plotly's script. It fetches nothing."""

import json
from dataclasses import asdict
from html import escape
from importlib import resources
from typing import Any

import fairlag
from fairlag.report.colours import GROUPS, STRATEGIES, Shade
from fairlag.report.page.spec import Page

_OTHERS = {
    "ink": Shade("#1b1f24", "#e8eaed"),
    "faint": Shade("#5c6570", "#a3abb5"),
    "grid": Shade("#e4e7eb", "#2c3238"),
    "edge": Shade("#858e98", "#69727c"),
    "ground": Shade("#f7f8fa", "#111417"),
    "panel": Shade("#ffffff", "#191d21"),
    "link": Shade("#0b62a4", "#6db5f2"),
    "bad": Shade("#b3261e", "#ff8a80"),
}
"""The colours of everything but strategies and groups: text, lines, backgrounds."""


def html(page: Page) -> str:
    """The whole page as text. Saved as a file, it opens in a browser."""
    return _filled(_data(page), page.title, f"<script>{plotly()}</script>")


def shell(title: str, follow: str, script: str) -> str:
    """A page without data, which requests it from the address `follow`; `script` is the address of plotly's script."""
    return _filled(_embedded({"follow": follow}), title, f'<script src="{escape(script)}"></script>')


def data(page: Page) -> str:
    """The data of a page, as JSON."""
    return json.dumps(asdict(page), allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def plotly() -> str:
    """Plotly's script."""
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    return str(get_plotlyjs())


def _data(page: Page) -> str:
    return data(page).replace("</", "<\\/").replace("<!--", "<\\u0021--")


def _embedded(value: Any) -> str:
    return json.dumps(value).replace("</", "<\\/")


def _filled(page: str, title: str, script: str) -> str:
    parts = {
        "title": escape(title),
        "style": _text("style.css").replace("{{colours}}", _colours()),
        "footer": escape(f"Made by fairlag {fairlag.__version__}. Times are virtual unless stated otherwise."),
        "plotly": script,
        "page": page,
        "script": _text("script.js"),
    }
    before, *pieces = _text("page.html").split("{{")
    filled = [before]
    for piece in pieces:
        name, _, after = piece.partition("}}")
        filled += [parts[name], after]
    return "".join(filled)


def _text(name: str) -> str:
    return (resources.files(__package__) / name).read_text("utf-8")


def _colours() -> str:
    """Every token as a CSS property, in both colour schemes."""
    shades = {f"s{place}": shade for place, shade in enumerate(STRATEGIES)}
    shades |= {f"g{place}": shade for place, shade in enumerate(GROUPS)} | _OTHERS
    light = "".join(f"--{name}:{shade.light};" for name, shade in shades.items()) + "color-scheme:light;"
    dark = "".join(f"--{name}:{shade.dark};" for name, shade in shades.items()) + "color-scheme:dark;"
    return (
        f":root{{{light}}}\n@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
        f":root[data-theme=dark]{{{dark}}}"
    )
