"""Explains a failed validation: one sentence about its most informative mistake."""

from collections.abc import Iterable, Mapping

from pydantic import ValidationError

from fairlag.errors import nearest
from fairlag.limits import shown

_OWN_WORDS = {
    "tuple_type": "it must be a list (write tables with double brackets, as in [[clients]])",
    "too_short": "it must not be empty",
    "string_too_short": "it must not be empty",
}


def first_mistake(error: ValidationError, keys: Mapping[str, Iterable[str]]) -> str:
    """The most informative mistake of a validation as one sentence; `keys` lists the keys of each kind of table.

    A misspelt key comes before a missing one, because it probably explains it.
    """
    mistake = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
    path = mistake["loc"]
    where = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    if mistake["type"] == "extra_forbidden":
        table = next((str(part) for part in reversed(path[:-1]) if isinstance(part, str)), "")
        return f"unknown key {where!r}: {nearest(str(path[-1]), keys[table])}"
    if mistake["type"] == "missing":
        return f"the key {where!r} is missing"
    if mistake["type"] == "value_error":
        return f"{where}: {mistake['ctx']['error']}" if where else str(mistake["ctx"]["error"])
    message = _OWN_WORDS.get(mistake["type"], in_our_words(mistake["msg"]))
    return f"{where} is {shown(mistake['input'])}: {message}"


def in_our_words(message: str) -> str:
    """A message of pydantic in the form of our own.

    >>> in_our_words("Input should be greater than 0")
    'it must be greater than 0'
    """
    words = message.replace("Input should", "it must").replace("be less than inf", "be finite")
    return words[0].lower() + words[1:]
