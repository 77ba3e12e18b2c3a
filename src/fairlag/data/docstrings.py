"""Text that is on every machine with Python: the documentation strings of its standard library, per package."""

import ast
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

from fairlag.core.types import Integers
from fairlag.data.dataset import Dataset
from fairlag.data.whole import whole
from fairlag.errors import InputError

ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
"""The characters that have their own token, from 1 on; token 0 is any other character."""

_SKIPPED = {"test", "tests", "idle_test"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(length: int = 64, clients: int = 30, least: int = 10_000) -> Dataset:
    """The documentation strings of Python's standard library, as sequences of characters.

    A client is a package or module with at least `least` characters; smaller ones are pooled in alphabetical order
    until they have as many. The `clients` largest are taken. Targets: the next character at each of `length` positions.
    """
    length = whole(length, "length of docstrings", 1)
    clients = whole(clients, "clients of docstrings", 1)
    least = max(whole(least, "least of docstrings", 1), length + 1)
    held = pooled(_installed(), least)
    if len(held) < clients:
        raise InputError(
            f"clients of docstrings is {clients}, but Python {sys.version.split()[0]} has text for {len(held)} clients "
            f"with at least {least:,} characters: ask for fewer, or lower `least` or `length`"
        )
    names = sorted(sorted(held, key=lambda name: (-len(held[name]), name))[:clients])
    parts = [windows(encoded(held[name]), length) for name in names]
    both = np.concatenate(parts)
    return Dataset(
        "docstrings",
        np.ascontiguousarray(both[:, :-1]),
        np.ascontiguousarray(both[:, 1:]),
        classes=len(ALPHABET) + 1,
        official=len(both),
        clients=tuple(names),
        owners=np.repeat(np.arange(clients), [len(part) for part in parts]),
    )


def encoded(text: str) -> Integers:
    """The tokens of a text.

    >>> encoded("\\n ~é").tolist()
    [1, 2, 96, 0]
    """
    token = {character: number for number, character in enumerate(ALPHABET, 1)}
    return np.array([token.get(character, 0) for character in text], np.int64)


def windows(tokens: Integers, length: int) -> Integers:
    """One row per sequence, each with `length` tokens and the one after; what does not fill a row is left out.

    >>> windows(np.arange(8), 3).tolist()
    [[0, 1, 2, 3], [3, 4, 5, 6]]
    """
    rows: Integers = np.lib.stride_tricks.sliding_window_view(tokens, length + 1)[::length]
    return rows


def pooled(texts: dict[str, str], least: int) -> dict[str, str]:
    """Texts of at least `least` characters: shorter ones are joined with their neighbours, as "first to last".

    >>> pooled({"abc": "12", "ast": "1234", "bdb": "34", "cmd": "5"}, 4)
    {'ast': '1234', 'abc to bdb': '1234'}
    """
    large = {name: text for name, text in texts.items() if len(text) >= least}
    names: list[str] = []
    for name in sorted(texts.keys() - large.keys()):
        names.append(name)
        if sum(len(texts[each]) for each in names) >= least:
            large[f"{names[0]} to {name}"] = "".join(texts[each] for each in names)
            names = []
    return large


@cache
def _installed() -> dict[str, str]:
    """The text of each module of this Python; it takes seconds to read."""
    folder = Path(sysconfig.get_path("stdlib"))
    found = read(folder, sys.stdlib_module_names)
    if not found:
        raise InputError(
            f"the data set docstrings reads the source files of Python's standard library, but {str(folder)!r} has "
            "none: use a Python that comes with its sources"
        )
    return found


def read(folder: Path, modules: Iterable[str]) -> dict[str, str]:
    """The documentation strings of each module or package in a folder of sources; nothing is imported.

    Tests are left out, and of equal strings only the first is taken.
    """
    seen: set[str] = set()
    found: dict[str, str] = {}
    for name in sorted(modules):
        files = [folder / f"{name}.py", *sorted((folder / name).rglob("*.py"))]
        kept = [file for file in files if file.is_file() and not _SKIPPED & set(file.relative_to(folder).parts)]
        new = dict.fromkeys(text for file in kept for text in _strings(file) if text not in seen)
        seen.update(new)
        if new:
            found[name] = "".join(f"{text}\n\n" for text in new)
    return found


def _strings(file: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # some files are there to be refused
        return
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield text
