"""What the tables of an experiment name: files, and functions in modules. Nothing is read or imported here."""

from collections.abc import Iterator, Mapping
from pathlib import PureWindowsPath
from typing import Any

from fairlag.data.load import FILES as DATA_FILES
from fairlag.errors import InputError
from fairlag.fleet.availability import FILES
from fairlag.fleet.capacity import CAPACITIES
from fairlag.imported import is_code
from fairlag.text.calls import Call, read

_READERS = {"trace", "file", *FILES, *CAPACITIES}
"""The calls whose first argument is a file, in delays, availabilities, capacities and partitions."""
_MADE = ("data", "model", "task")


def functions(tables: Mapping[str, Any]) -> list[str]:
    """Every "module:function" that the tables name, each once.

    >>> functions({"strategies": [{"use": "my_rules:square_root"}, {"use": "fedbuff"}], "local": {"train": "mine:go"}})
    ['my_rules:square_root', 'mine:go']
    """
    uses = [table["use"] for table in _users(tables)] + [tables.get("local", {}).get("train")]
    return list(dict.fromkeys(use for use in uses if is_code(use)))


def objects(tables: Mapping[str, Any]) -> list[str]:
    """The names of what was given as a Python object, and so cannot be made again from the tables."""
    uses = [table["use"] for table in _users(tables)] + [tables.get("local", {}).get("train")]
    return [use for use in uses if str(use).startswith("<")]


def files(tables: Mapping[str, Any]) -> list[str]:
    """Every file or folder that must be there, as it is written, each once.

    >>> files({"clients": [{"delay": "mixture(0.5, trace('a.csv'), 0.5, 1)", "availability": 'file("b.csv")'}]})
    ['a.csv', 'b.csv']
    """
    data = tables.get("data") or {}
    found = [name for text in _calls(tables) for name in _in_call(text)]
    if data.get("use") in DATA_FILES:
        keys = ("path",) if data["use"] == "huggingface" else ("path", "test")  # there, `test` is a split
        found += [data[key] for key in keys if isinstance(data.get(key), str)]
    return list(dict.fromkeys(found))


def perhaps_files(tables: Mapping[str, Any]) -> list[str]:
    """The texts that the user's own functions are given as parameters: some may be the names of files."""
    own = [table for table in _users(tables) if is_code(table["use"])]
    texts = [value for table in own for key, value in table.items() if key not in ("use", "label")]
    return list(dict.fromkeys(value for value in texts if isinstance(value, str) and value))


def is_inside(path: str) -> bool:
    """Is this a relative path that stays in its folder, on every system?

    >>> [is_inside(each) for each in ("data/a.csv", "../a.csv", "/a.csv", "C:a.csv", "~/a.csv")]
    [True, False, False, False, False]
    """
    windows = PureWindowsPath(path)
    return not (windows.drive or windows.root or ".." in windows.parts or path.startswith("~"))


def renamed(tables: Any, names: Mapping[str, str]) -> Any:
    """The tables, in which files have other names; also within calls such as `trace("delays.csv")`."""
    if isinstance(tables, Mapping):
        return {names.get(key, key): renamed(value, names) for key, value in tables.items()}
    if isinstance(tables, list):
        return [renamed(value, names) for value in tables]
    if not isinstance(tables, str):
        return tables
    if tables in names:
        return names[tables]
    for old, new in names.items():
        for quoted in (f'"{old}"', f"'{old}'"):
            tables = tables.replace(quoted, f'"{new}"')
    return tables


def _users(tables: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    made = (tables.get(key) for key in _MADE)
    return [*tables.get("strategies", ()), *(table for table in made if table)]


def _calls(tables: Mapping[str, Any]) -> Iterator[str]:
    """Every text that may be a call which reads a file."""
    for table in tables.get("clients", ()):
        yield from (value for key, value in table.items() if isinstance(value, str) and key not in ("group", "labels"))
    partition = (tables.get("data") or {}).get("partition")
    if isinstance(partition, str):
        yield partition


def _in_call(text: str) -> Iterator[str]:
    try:
        value = read(text, "value", 'trace("delays.csv")', lists=True)
    except InputError:  # some other text
        return
    waiting: list[object] = [value]
    while waiting:
        each = waiting.pop(0)
        if isinstance(each, tuple):
            waiting += each
        elif isinstance(each, Call):
            waiting += [*each.arguments, *each.keywords.values()]
            path = each.keywords.get("path", next(iter(each.arguments), None))
            if each.name in _READERS and isinstance(path, str):
                yield path
