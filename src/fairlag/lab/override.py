"""Changes an experiment by words such as `local.lr=0.05`, which `--set` takes, and checks them as a file is checked."""

import tomllib
from collections.abc import Iterable, Sequence
from math import inf, nan
from typing import Any

from fairlag.errors import InputError, nearest
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.serialise import as_tables
from fairlag.lab.strategies import Use, label, takes

_FORM = "write path.to.key=value"


def changed(experiment: Experiment, settings: Sequence[str]) -> Experiment:
    """The same with other values; nothing after the `=` takes a key away, so that it has its default.

    Groups are found by their name, strategies by label or `use`. A value is read as TOML, or else as it stands.

    >>> from fairlag.lab.experiment import load
    >>> other = changed(load("demo"), ["local.lr=0.05", "clients.slow.count=7", "data.partition=dirichlet(0.3)"])
    >>> other.local.lr, other.population, other.data.partition
    (0.05, 17, 'dirichlet(0.3)')
    """
    if not settings:
        return experiment
    tables = as_tables(experiment)
    for setting in settings:
        _put(tables, experiment, setting)
    return parse(tables, experiment.folder)


def with_buffers(experiment: Experiment, buffers: Sequence[int]) -> Experiment:
    """The same with each strategy that has a buffer once for each of these sizes; the others stay as they are.

    >>> from fairlag.lab.experiment import load
    >>> [use.label for use in with_buffers(load("racer"), [5, 10]).strategies][1:3]
    ['FedStaleWeight (buffer=10)', 'FairShare (buffer=5)']
    """
    found: list[Use] = []
    for use in experiment.strategies:
        if not takes(use.use, "buffer", experiment.folder):
            found.append(use)
            continue
        others = {key: value for key, value in use.parameters.items() if key != "buffer"}
        name = label(use.use, others) if use.label == label(use.use, use.parameters) else use.label
        for size in dict.fromkeys(buffers):
            words = f"{name[:-1]}, buffer={size})" if name.endswith(")") else f"{name} (buffer={size})"
            found.append(Use.model_validate({"use": use.use, "label": words, "buffer": size, **others}))
    if all(use in experiment.strategies for use in found):
        raise InputError("none of the strategies has a buffer: there are no sizes of it to compare")
    return experiment.checked(strategies=tuple({use.label: use for use in found}.values()))


def with_costs(experiment: Experiment, costs: Sequence[str]) -> Experiment:
    """The same with what an update costs its sender: one number for all groups, or `group=number` for some.

    >>> from fairlag.lab.experiment import load
    >>> [table.cost for table in with_costs(load("demo"), ["fast=0.01,slow=0.02"]).clients]
    [0.01, 0.02]
    """
    found: dict[str, float] = {}
    groups = [table.group for table in experiment.clients]
    for part in (part.strip() for text in costs for part in text.split(",")):
        name, equals, number = part.rpartition("=")
        if equals and name not in groups:
            raise InputError(f"--cost has {part!r}, but there is no group {name!r}: {nearest(name, groups)}")
        cost = _cost(number, part)
        for group in [name] if equals else groups:
            if group in found:
                raise InputError(f"--cost has {part!r}, but the cost of group {group!r} was given before: give it once")
            found[group] = cost
    tables = (table.model_copy(update={"cost": found.get(table.group, table.cost)}) for table in experiment.clients)
    return experiment.checked(clients=tuple(tables))


def _cost(text: str, part: str) -> float:
    try:
        cost = float(text)
    except ValueError:
        cost = nan
    if not 0 <= cost < inf:
        raise InputError(
            f"--cost has {part!r}, it must be a number of at least 0, such as 0.01, or fast=0.01,slow=0.02"
        )
    return cost


def _put(tables: dict[str, Any], experiment: Experiment, setting: str) -> None:
    kind, _, rest = setting.partition(".")
    names: list[tuple[str, ...]]
    if kind == "clients":
        names = [(each.group,) for each in experiment.clients]
    elif kind == "strategies":
        names = [(each.label, each.name) for each in experiment.strategies]
    else:
        _put_into([tables], setting, setting)
        return
    name = _name(rest, {name for each in names for name in each}, setting)
    chosen = [table for table, known in zip(tables[kind], names, strict=True) if name in known]
    _put_into(chosen, rest[len(name) + 1 :], setting)


def _name(rest: str, known: Iterable[str], setting: str) -> str:
    """The name that a setting continues with: the longest that fits, since names may hold dots and equals signs."""
    fitting = [name for name in known if rest.startswith(f"{name}.")]
    if not fitting:
        name = rest.partition(".")[0].partition("=")[0]
        if not name or name in known:
            raise InputError(f"{setting!r} cannot be set: {_FORM}")
        raise InputError(f"{setting!r} cannot be set, there is no {name!r}: {nearest(name, known)}")
    return max(fitting, key=len)


def _put_into(tables: list[dict[str, Any]], words: str, setting: str) -> None:
    path, equals, text = words.partition("=")
    *inner, key = (part.strip() for part in path.split("."))
    if not equals or not all((*inner, key)):
        raise InputError(f"{setting!r} cannot be set: {_FORM}")
    for table in tables:
        for part in inner:
            if table.get(part) is None:
                table[part] = {}
            table = table[part]
            if not isinstance(table, dict):
                raise InputError(f"{setting!r} cannot be set: {part!r} is no table; {_FORM}")
        if text.strip():
            table[key] = _value(text.strip())
        else:
            table.pop(key, None)


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
