"""Writes an experiment as text: JSON next to its runs, or TOML with comments. Reading is in experiment.py."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import isinf
from textwrap import wrap
from typing import Any

from pydantic import BaseModel

from fairlag.core.strategy import Strategy
from fairlag.lab.clients import Clients
from fairlag.lab.experiment import Experiment
from fairlag.lab.strategies import Use
from fairlag.rules.rule import label_of

_WIDTH = 116
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def as_tables(experiment: Experiment) -> dict[str, Any]:
    """An experiment as tables of a file, without absent and filled-in values, and labels that repeat parameters."""
    tables: dict[str, Any] = _plain(experiment)
    tables.pop("files", None)
    if experiment.measured:
        del tables["model_bytes"]
    for use, table in zip(experiment.strategies, tables["strategies"], strict=True):
        unnamed = {key: value for key, value in use if key != "label" and value is not None}
        if use.label == Use.model_validate(unnamed).label:
            del table["label"]  # the parameters may change
    return tables


def written(experiment: Experiment) -> str:
    """An experiment as JSON, from which the same experiment can be read.

    >>> from fairlag.lab.experiment import load
    >>> json.loads(written(load("demo")))["experiment"]["name"]
    'demo'
    """
    place = None if experiment.folder is None else str(experiment.folder.resolve())
    return _json(_decisive(experiment), place)


def sha256(experiment: Experiment) -> str:
    """The digest of an experiment, the same in every folder."""
    return _digest(_decisive(experiment))


def key_of(experiment: Experiment) -> str:
    """A key that is the same for experiments that differ only in their seeds, strategies and folder.

    >>> from fairlag.lab.experiment import load
    >>> key_of(load("demo")) == key_of(load("demo").checked(seed=7)) != key_of(load("demo").checked(aggregations=7))
    True
    """
    tables = _decisive(experiment)
    return _digest({name: tables[name] for name in tables if name not in ("seed", "strategies")})


def toml(experiment: Experiment, head: Sequence[str] = (), beside: Mapping[str, Sequence[str]] | None = None) -> str:
    """The text of a file from which the same experiment can be read; values at their defaults are left out.

    `head` has the comments at the top, `beside` those above the table of each group. Python objects cannot be written.

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
    blocks += [["[[attacks]]", *_lines(table)] for table in tables.get("attacks", ())]
    for key in ("data", "model", "task", "local", "evaluate", "privacy", "sweep"):
        if getattr(experiment, key) != Experiment.model_fields[key].default:
            blocks.append([f"[{key}]", *_lines(tables[key])])
    if experiment.defences:
        blocks[0].append(f"defences = {_value(tables['defences'])}")
    if experiment.track:
        blocks[0].append(f"track = {_value(tables['track'])}")
    return "\n\n".join("\n".join(lines) for lines in blocks) + "\n"


def _decisive(experiment: Experiment) -> dict[str, Any]:
    """The tables that determine a run.

    Trackers and [sweep] do not change its results. A device does, but only as a version of a library does: the record
    of a run has both, so that runs of one experiment can be compared, and "auto" means the same on every machine.
    """
    return {name: table for name, table in _plain(experiment).items() if name not in ("track", "device", "sweep")}


def _digest(tables: Mapping[str, Any]) -> str:
    return hashlib.sha256(_json(tables, None).encode()).hexdigest()


def _json(tables: Mapping[str, Any], folder: str | None) -> str:
    return json.dumps({"experiment": tables, "folder": folder}, indent=2, default=_word)


def _word(given: object) -> str:
    """A Python object as text: with its parameters, but without its address in memory."""
    words = repr(given) if isinstance(given, Strategy) else label_of(given)
    return f"<{re.sub(r' at 0x[0-9a-fA-F]+', '', words)}>"


def _plain(value: Any) -> Any:
    """Tables and lists, without keys that are None or at an infinite default, because JSON has no infinity."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return _plain({key: inner for key, inner in value if not (_endless(inner) and key in fields)})
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items() if inner is not None}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _endless(value: object) -> bool:
    return isinstance(value, float) and isinf(value)


def _changed(table: Mapping[str, object], kind: type[BaseModel]) -> dict[str, object]:
    return {key: value for key, value in table.items() if value != kind.model_fields[key].default}


def _lines(table: Mapping[str, object], first: Sequence[str] = ()) -> list[str]:
    keys = [*(key for key in first if key in table), *(key for key in table if key not in first)]
    return [f"{_key(key)} = {_value(table[key])}" for key in keys]


def _comments(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        # A name may contain characters that a comment must not.
        clean = "".join(each if each.isprintable() else " " for each in line)
        yield from (f"# {part}" for part in wrap(clean, _WIDTH, break_long_words=False))


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    """A quoted string; a long one, which is a list of numbers, is broken into several lines that are read as one."""
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
