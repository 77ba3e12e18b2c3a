"""An experiment as the text of a file, with comments; reading one is in experiment.py."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap

from pydantic import BaseModel

from fairlag.lab.experiment import Clients, Experiment
from fairlag.lab.override import as_tables

_WIDTH = 116
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml(experiment: Experiment, head: Sequence[str] = (), beside: Mapping[str, Sequence[str]] | None = None) -> str:
    """The text of a file from which the same experiment is read; what is at its default is left out.

    `head` are comments at the top, `beside` those above the table of a group. What was given as a Python object cannot
    be written.

    >>> from fairlag.lab.experiment import load, parse
    >>> import tomllib
    >>> parse(tomllib.loads(toml(load("demo")))) == load("demo")
    True
    >>> print(toml(load("racer"), ["Three kinds."]).partition("[[strategies]]")[0].partition("group")[0])
    # Three kinds.
    name = "racer"
    seed = 0
    aggregations = 4000
    <BLANKLINE>
    [[clients]]
    <BLANKLINE>
    """
    tables = as_tables(experiment)
    plain = {key: value for key, value in tables.items() if not isinstance(value, dict | list)}
    blocks = [
        [*_comments(head), *_lines(_changed(plain, Experiment) | {"seed": tables["seed"]}, first=("name", "seed"))]
    ]
    for table in tables["clients"]:
        above = _comments((beside or {}).get(table["group"], ()))
        blocks.append([*above, "[[clients]]", *_lines(_changed(table, Clients))])
    blocks += [["[[strategies]]", *_lines(table)] for table in tables["strategies"]]
    for key in ("data", "model", "local", "evaluate"):
        if getattr(experiment, key) != Experiment.model_fields[key].default:
            blocks.append([f"[{key}]", *_lines(tables[key])])
    if experiment.track:
        blocks[0].append(f"track = {_value(tables['track'])}")
    return "\n\n".join("\n".join(lines) for lines in blocks) + "\n"


def _changed(table: Mapping[str, object], kind: type[BaseModel]) -> dict[str, object]:
    return {key: value for key, value in table.items() if value != kind.model_fields[key].default}


def _lines(table: Mapping[str, object], first: Sequence[str] = ()) -> list[str]:
    keys = [*(key for key in first if key in table), *(key for key in table if key not in first)]
    return [f"{_key(key)} = {_value(table[key])}" for key in keys]


def _comments(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        # A name may hold what no comment may.
        clean = "".join(each if each.isprintable() else " " for each in line)
        yield from (f"# {part}" for part in wrap(clean, _WIDTH, break_long_words=False))


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    """Long ones, which are lists of numbers, over several lines that are read as one."""
    quoted = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    if len(quoted) <= _WIDTH or "\\" in quoted:
        return quoted
    return '"""\\\n  ' + " \\\n  ".join(wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)) + '"""'


def _value(value: object) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(key)} = {_value(inner)}' for key, inner in value.items())} }}"
    return repr(value)
