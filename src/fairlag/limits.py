"""Bounds for what comes from outside: how deep it may be nested, how much of it is read, how it is shown in a message.

A file may be anybody's. What is read here never takes more memory or time than its bound, whatever the file says.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DEPTH = 32
"""How deep tables, lists and calls may be nested."""

TEXT = 64_000_000
"""How many bytes a text file may have that is read as a whole."""

_VALUE, _SENTENCE = 120, 1_000
"""How many characters of a value, and of a whole message, are shown."""

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""What a terminal obeys instead of showing it: control characters, and marks that change the direction of writing."""


class TooMuchError(ValueError):
    """Something is larger, or nested deeper, than its bound."""


def printable(text: str) -> str:
    """The text without what a terminal would obey; lines and tabs stay.

    >>> printable("fed\\x1b[31mavg\\x07")
    'fed[31mavg'
    """
    return _UNPRINTABLE.sub("", text)


def shown(value: object) -> str:
    """A value as a message quotes it: as Python writes it, and not all of it if it is long.

    >>> shown("fedbuff"), len(shown("x" * 66_000))
    ("'fedbuff'", 120)
    """
    try:
        return clipped(repr(value[:_SENTENCE] if isinstance(value, str | bytes) else value))
    except (RecursionError, ValueError):  # nested too deep, or a number of too many digits
        return f"a {type(value).__name__} that is too large to be shown"


def clipped(text: str) -> str:
    """A text as a message contains it: not all of it if it is long."""
    return _cut(text, _VALUE)


def sentence(text: str) -> str:
    """A message as it can be printed anywhere; of a long one the beginning, which says what, and the end, which helps.

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
    """Refuses tables and lists that are nested deeper than that, without recursion.

    >>> check_depth({"a": [1, {"b": 2}]}, most=2)
    Traceback (most recent call last):
    ...
    fairlag.limits.TooMuchError: it is nested more than 2 deep
    """
    level = [value]
    for _ in range(most):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return
    if any(isinstance(each, Mapping | list | tuple) for each in level):
        raise TooMuchError(f"it is nested more than {most} deep")


def _inside(value: object) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def json_of(text: str | bytes) -> Any:
    """What a JSON text says; raises ValueError if it is none, or nested too deep.

    >>> json_of("[" * 100_000)
    Traceback (most recent call last):
    ...
    fairlag.limits.TooMuchError: it is nested more than 32 deep
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise TooMuchError(f"it is nested more than {DEPTH} deep") from None
    check_depth(value)
    return value


def text_of(file: Path, encoding: str = "utf-8") -> str:
    """The text of a file, which must be a plain file of a bounded size; raises OSError or ValueError."""
    if not file.is_file() and file.exists():
        raise TooMuchError("it is no plain file")
    with file.open("rb") as stream:
        content = stream.read(TEXT + 1)
    if len(content) > TEXT:
        raise TooMuchError(f"it has more than {TEXT:,} bytes")
    return content.decode(encoding)
