"""What distinguishes the runs of one experiment: the settings that differ, and how a label names them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fairlag.errors import UnreadableError
from fairlag.lab.folder import PLAN
from fairlag.lab.plan import flat
from fairlag.lab.run import Run

_STRATEGY, _LOCAL = "strategy.", "local."
_NOT_SETTINGS = ("name", "seed", "strategy.label", "clock", "speed")
"""Not named in brackets after a label: the label of a run already names its clock."""
_FEW, _WIDE = 3, 32
"""A label names at most about this number of settings, each with a text of at most this number of characters."""


def settings_of(run: Run) -> dict[str, Any]:
    """The settings of a run by dotted names, as in `--set`; empty if it recorded none."""
    try:
        found = flat(run.settings)
    except (UnreadableError, AttributeError, KeyError, TypeError, ValueError):  # it is not an experiment
        return {}
    return {name: value for name, value in found.items() if name not in _NOT_SETTINGS}


def parameters(settings: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The settings of the strategy, in a form that can be compared and hashed."""
    return tuple(sorted((name, repr(value)) for name, value in settings.items() if name.startswith(_STRATEGY)))


def differing(variants: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """The names of the settings in which variants differ; a variant is a label and its settings.

    Settings of strategies are compared only between variants of the same label.

    >>> differing([("A", {"local.lr": 0.1, "strategy.use": "a"}), ("B", {"local.lr": 0.2, "strategy.use": "b"})])
    ['local.lr']
    """
    known = [(label, settings) for label, settings in variants if settings]
    names = dict.fromkeys(name for _, settings in known for name in settings)
    return [name for name in names if _differs(name, known)]


def _differs(name: str, variants: Iterable[tuple[str, Mapping[str, Any]]]) -> bool:
    values: dict[str, set[str]] = {}
    for label, settings in variants:
        values.setdefault(label if name.startswith(_STRATEGY) else "", set()).add(repr(settings.get(name)))
    return any(len(found) > 1 for found in values.values())


def without_planned(names: Sequence[str], strategies: Sequence[Sequence[Sequence[Run]]]) -> list[str]:
    """These settings; without those of [local] if one plan has all runs, and each strategy once."""
    homes = {run.folder.parent for variants in strategies for runs in variants for run in runs}
    planned = len(homes) == 1 and all((home / PLAN).is_file() for home in homes)
    if not planned or any(len(variants) > 1 for variants in strategies):
        return list(names)
    return [name for name in names if not name.startswith(_LOCAL)]


def told_apart(settings: Sequence[Mapping[str, Any]], runs: Sequence[Sequence[Run]], names: Sequence[str]) -> list[str]:
    """What follows the label that these variants share: the settings of these names, or else their folders."""
    shared = [name for name in names if not name.startswith(_STRATEGY)]
    own = [
        name for name in names if name.startswith(_STRATEGY) and len({repr(each.get(name)) for each in settings}) > 1
    ]
    words = [_words(each, [*shared, *own]) if each else "" for each in settings]
    return words if len(set(words)) == len(words) else _places(runs)


def _words(settings: Mapping[str, Any], names: Sequence[str]) -> str:
    """Settings in one line.

    >>> _words({"local.lr": 0.1, "strategy.buffer": 5}, ["local.lr", "strategy.buffer", "data.stream"])
    'local.lr=0.1, buffer=5, no data.stream'
    """
    rest = len(names) - _FEW
    found = [_word(name, settings.get(name)) for name in (names if rest <= 1 else names[:_FEW])]
    return ", ".join(found) + (f" and {rest} more" if rest > 1 else "")


def _word(name: str, value: object) -> str:
    name = name.removeprefix(_STRATEGY)
    if value is None:
        return f"no {name}"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    text = f"{name}={text if len(text) <= _WIDE else f'{text[: _WIDE - 1]}…'}"
    return "".join(each if each.isprintable() else "?" for each in text)  # a file may hold any text


def _places(variants: Sequence[Sequence[Run]]) -> list[str]:
    """Nothing, the folder that holds the runs, or their own folders: the first that makes the variants distinct."""
    choices: tuple[Callable[[Run], str], ...] = (
        lambda _: "",
        lambda run: str(run.folder.parent),
        lambda run: str(run.folder),
    )
    for name in choices:
        places = [", ".join(dict.fromkeys(map(name, found))) for found in variants]
        if len(set(places)) == len(places):
            break
    return places
