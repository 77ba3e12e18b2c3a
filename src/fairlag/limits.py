"""Bounds for input from outside: how deep it may be nested, how much is read, and how messages show it.

A file may come from anyone. Reading it here never takes more memory or time than its bound, whatever it contains.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DEPTH = 32
"""The largest nesting depth of tables, lists and calls."""

TEXT = 64_000_000
"""The most bytes of a text file that is read as a whole."""

_VALUE, _SENTENCE = 120, 1_000
"""The most characters of a value, and of a whole message, that are shown."""

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""What a terminal interprets instead of showing: control characters, and marks that change the writing direction; and
halves of characters, which JSON may hold but no file can."""


class TooMuchError(ValueError):
    """Something is larger, or nested deeper, than its bound."""


def printable(text: str) -> str:
    """The text without characters that a terminal would interpret; newlines and tabs stay.

    >>> printable("fed\\x1b[31mavg\\x07")
    'fed[31mavg'
    """
    return _UNPRINTABLE.sub("", text)


def shown(value: object) -> str:
    """A value as a message quotes it: its repr, shortened if it is long.

    >>> shown("fedbuff"), len(shown("x" * 66_000))
    ("'fedbuff'", 120)
    """
    try:
        return clipped(repr(value[:_SENTENCE] if isinstance(value, str | bytes) else value))
    except (RecursionError, ValueError):  # nested too deep, or a number with too many digits
        return f"a {type(value).__name__} that is too large to be shown"


def clipped(text: str) -> str:
    """A text as a message contains it: shortened if it is long."""
    return _cut(text, _VALUE)


def sentence(text: str) -> str:
    """A message that can be printed anywhere; a long one keeps its beginning (what is wrong) and its end (what helps).

    >>> len(sentence("x" * 66_000))
    1000
    """
    return _cut(printable(text), _SENTENCE)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end - 3]} … {text[-end:]}"


def check_depth(value: object, most: int = DEPTH) -> None:
    """Refuses tables and lists that are nested deeper than `most`, without recursion.

    >>> check_depth({"a": [1, {"b": 2}]}, most=2)
    Traceback (most recent call last):
    ...
    fairlag.limits.TooMuchError: it is nested more than 2 levels deep
    """
    level = [value]
    for _ in range(most):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return
    if any(isinstance(each, Mapping | list | tuple) for each in level):
        raise TooMuchError(f"it is nested more than {most} levels deep")


def _inside(value: object) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def json_of(text: str | bytes) -> Any:
    """The value of a JSON text; raises ValueError if it is not JSON, or nested too deep.

    >>> json_of("[" * 100_000)
    Traceback (most recent call last):
    ...
    fairlag.limits.TooMuchError: it is nested more than 32 levels deep
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise TooMuchError(f"it is nested more than {DEPTH} levels deep") from None
    check_depth(value)
    return value


def text_of(file: Path, encoding: str = "utf-8", most: int = TEXT) -> str:
    """The text of a file, which must be a regular file of bounded size; raises OSError or ValueError."""
    if not file.is_file() and file.exists():
        raise TooMuchError("it is not a regular file")
    with file.open("rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise TooMuchError(f"it has more than {most:,} bytes")
    return content.decode(encoding)
