"""Changes an experiment by settings such as `local.lr=0.05` (`--set`), and validates the result like a file."""

import tomllib
from collections.abc import Collection, Sequence
from math import inf, nan
from typing import Any

from fairlag.errors import InputError, nearest
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.serialise import as_tables
from fairlag.lab.strategies import Use, label, takes

_FORM = "write path.to.key=value"


def changed(experiment: Experiment, settings: Sequence[str]) -> Experiment:
    """The experiment with different values; nothing after the `=` removes a key, so that it has its default.

    Groups are found by name, strategies by label or `use`. A value is read as TOML if possible, otherwise as text.

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
    """The experiment with one copy per size of each strategy that has a buffer; other strategies stay unchanged.

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
            found.append(
                Use.model_validate({"use": use.use, "label": words, "local": use.local, "buffer": size, **others})
            )
    if all(use in experiment.strategies for use in found):
        raise InputError("none of the strategies has a buffer, so there are no buffer sizes to compare")
    return experiment.checked(strategies=tuple({use.label: use for use in found}.values()))


def with_costs(experiment: Experiment, costs: Sequence[str]) -> Experiment:
    """The experiment with these costs of an update: one number for all groups, or `group=number` for some.

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
                raise InputError(f"--cost has {part!r}, but group {group!r} already has a cost: give it once")
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
    name = name_at_start(rest, {name for each in names for name in each}, setting)
    chosen = [table for table, known in zip(tables[kind], names, strict=True) if name in known]
    _put_into(chosen, rest[len(name) + 1 :], setting)


def name_at_start(rest: str, known: Collection[str], setting: str, *, act: str = "set", form: str = _FORM) -> str:
    """The name at the start of `rest`: the longest that fits, because names may contain dots and equals signs."""
    fitting = [name for name in known if rest.startswith(f"{name}.")]
    if not fitting:
        name = rest.partition(".")[0].partition("=")[0]
        if not name or name in known:
            raise InputError(f"{setting!r} cannot be {act}: {form}")
        raise InputError(f"{setting!r} cannot be {act}: there is no {name!r}; {nearest(name, known)}")
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
                raise InputError(f"{setting!r} cannot be set: {part!r} is not a table; {_FORM}")
        if text.strip():
            table[key] = value_of(text.strip())
        else:
            table.pop(key, None)


def value_of(text: str) -> object:
    """The value of a text: as TOML reads it if it can, otherwise the text itself.

    >>> value_of("0.1"), value_of("true"), value_of("cosine(0.1, 200)")
    (0.1, True, 'cosine(0.1, 200)')
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
