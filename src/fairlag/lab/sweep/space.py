"""The space of a sweep: per strategy, the values of each key, from `--over` or [sweep]; its grid, and draws from it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, floor, inf, log
from typing import Any, NamedTuple

from fairlag.core import seeds
from fairlag.errors import InputError, nearest
from fairlag.lab.experiment import Experiment
from fairlag.lab.learning import LocalTraining
from fairlag.lab.override import name_at_start, value_of
from fairlag.lab.strategies import Use, parameters_of
from fairlag.lab.sweep.table import STRATEGIES
from fairlag.limits import shown
from fairlag.text.calls import Call, read

LOCAL = "local."
_EXAMPLE = "lr=0.1,0.3,1 or 'local.lr=log(0.01,0.3)'"
"""In quotes, because a shell would read the parentheses."""
_LOCAL_KEYS = [f"{LOCAL}{key}" for key in LocalTraining.model_fields]
_DIGITS = 3
"""Significant digits of values from a range: more would make files hard to read, and change nothing."""
_MOST = 100_000
"""The most settings of a grid."""

Setting = Mapping[str, object]
"""A value for each key."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Values one by one."""

    values: tuple[object, ...]

    def at(self, place: float) -> object:
        """The value at a place from 0 to 1."""
        return self.values[min(floor(place * len(self.values)), len(self.values) - 1)]

    @property
    def ends(self) -> tuple[object, ...]:
        """The values that show whether all of them are accepted."""
        return self.values


@dataclass(frozen=True, slots=True)
class Range:
    """All numbers from `low` to `high`: evenly, or with a logarithmic scale, or only whole ones."""

    kind: str
    low: float
    high: float

    def at(self, place: float) -> float:
        """The value at a place from 0 to 1.

        >>> Range("log", 0.01, 1).at(0.5), Range("integers", 2, 5).at(0.99)
        (0.1, 5)
        """
        if self.kind == "integers":
            return min(floor(self.low + place * (self.high + 1 - self.low)), int(self.high))
        if self.kind == "log":
            return self.rounded(exp(log(self.low) + place * (log(self.high) - log(self.low))))
        return self.rounded(self.low + place * (self.high - self.low))

    def rounded(self, value: float) -> float:
        """A value with few digits, within the range."""
        return min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high)

    @property
    def ends(self) -> tuple[object, ...]:
        """The values that show whether all of them are accepted."""
        return self.low, self.high


Domain = Listed | Range
_RANGES = ("log", "uniform", "integers")
_CALLS = ", ".join(f"{name}(low, high)" for name in _RANGES[:-1]) + f" or {_RANGES[-1]}(low, high)"


class Space(NamedTuple):
    """What is tried with one strategy."""

    use: Use
    domains: dict[str, Domain]

    @property
    def cells(self) -> int | None:
        """How many settings there are; None if a key has a range."""
        count = 1
        for domain in self.domains.values():
            if isinstance(domain, Range):
                return None
            count *= len(domain.values)
        return count

    def grid(self) -> list[Setting]:
        """Every combination of the listed values, the last key changing first."""
        lists = [domain.values for domain in self.domains.values() if isinstance(domain, Listed)]
        return [dict(zip(self.domains, each, strict=True)) for each in product(*lists)]

    def drawn(self, count: int, seed: int) -> list[Setting]:
        """Random settings; of listed values only, each combination at most once.

        The draws depend on the key and the number of a setting, so all strategies try the same values of a key.
        """
        if self.cells is not None:
            order = seeds.uniforms(seeds.key(seed, "sweep"), 0, self.cells).argsort(kind="stable")
            grid = self.grid()
            return [grid[place] for place in order[:count]]
        streams = {key: seeds.key(seed, "sweep", key) for key in self.domains}
        return [
            {key: domain.at(seeds.uniform(streams[key], number)) for key, domain in self.domains.items()}
            for number in range(count)
        ]

    def tuned(self, setting: Setting, label: str = "") -> Use:
        """The strategy with these values, under this label or one that names them."""
        own = {
            **(self.use.local or {}),
            **{key[len(LOCAL) :]: setting[key] for key in setting if key.startswith(LOCAL)},
        }
        others = {key: value for key, value in setting.items() if not key.startswith(LOCAL)}
        fixed = {"use": self.use.use, "label": label, "defence": self.use.defence, "local": own or None}
        given: dict[str, Any] = {**fixed, **self.use.parameters, **others}
        return Use.model_validate({key: value for key, value in given.items() if value is not None})


def options(texts: Sequence[str]) -> dict[str, Any]:
    """What `--over` says: the values of each key, still as text.

    >>> options(["lr=0.1,1", "local.lr=log(0.01, 0.3)"])
    {'lr': '0.1,1', 'local.lr': 'log(0.01, 0.3)'}
    """
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, values = (part.strip() for part in text.partition("="))
        if not key or not equals:
            raise InputError(f"--over is {text!r}, it must be a key and its values, such as {_EXAMPLE}")
        if key in found:
            raise InputError(f"--over has {key!r} twice: give all its values at once, such as {_EXAMPLE}")
        found[key] = values
    return found


def domain(key: str, given: object) -> Domain:
    """The values of a key, from a list, or from a text such as "0.1,0.3" or "log(0.01, 0.3)".

    >>> domain("lr", "0.1, 1").values, domain("lr", "log(0.01, 0.3)").high
    ((0.1, 1), 0.3)
    """
    if isinstance(given, str):
        parts = _parts(given)
        if len(parts) == 1 and (call := re.fullmatch(r"(\w+)\s*\(.*\)", parts[0])) and call[1] in _RANGES:
            return _range(key, parts[0])
        given = [value_of(part) for part in parts if part]
    values = list(given) if isinstance(given, list | tuple) else [given]
    if not values:
        raise InputError(f"there are no values for {key!r}: write a list or a range, such as {_EXAMPLE}")
    return Listed(tuple(value for place, value in enumerate(values) if value not in values[:place]))


def spaces(experiment: Experiment, over: Mapping[str, object]) -> list[Space]:
    """What is tried with each strategy; refuses keys that none has, and values that a strategy does not take."""
    found = [Space(use, {}) for use in experiment.strategies]
    if not over:
        raise InputError(f"there is nothing to try: give --over KEY=VALUES, such as {_EXAMPLE}, or `over` in [sweep]")
    for key in sorted(over, key=lambda key: key.startswith(STRATEGIES)):  # what is said of one strategy is said last
        values = domain(key, over[key])
        for space, own in _meant(experiment, key, found):
            space.domains[own] = values
    for space in found:
        _check(experiment, space)
    return found


def _parts(text: str) -> list[str]:
    """The parts between commas, but not those within parentheses, brackets or quotes."""
    return [part.strip() for part in re.findall(r"(?:[^,(\[\"']|\([^)]*\)|\[[^\]]*\]|\"[^\"]*\"|'[^']*')+", text)]


def _range(key: str, text: str) -> Range:
    call = read(text, "range", "log(0.01, 0.3)")
    assert isinstance(call, Call)
    ends = call.arguments
    if len(ends) != 2 or call.keywords or not all(isinstance(end, int | float) for end in ends):
        raise InputError(
            f"the range {text!r} of {key!r} must have a lowest and a highest number: {call.name}(low, high)"
        )
    low, high = (float(str(end)) for end in ends)
    if not -inf < low < high < inf:
        raise InputError(f"the range {text!r} of {key!r} is empty: the first number must be below the second")
    if call.name == "log" and low <= 0:
        raise InputError(f"the range {text!r} of {key!r} has no logarithm: both numbers must be above 0")
    if call.name == "integers":
        if not (low.is_integer() and high.is_integer()):
            raise InputError(f"the range {text!r} of {key!r} must be between whole numbers")
        return Range(call.name, int(low), int(high))
    return Range(call.name, low, high)


def _meant(experiment: Experiment, key: str, all_of_them: Sequence[Space]) -> Iterator[tuple[Space, str]]:
    """The strategies that a key is about, each with the name that the key has for it."""
    chosen, own = list(all_of_them), key
    if key.startswith(STRATEGIES):
        rest = key.removeprefix(STRATEGIES)
        names = {name for each in chosen for name in (each.use.label, each.use.name)}
        name = name_at_start(rest, names, key, act="swept", form="write strategies.NAME.KEY=VALUES")
        chosen = [each for each in chosen if name in (each.use.label, each.use.name)]
        own = rest[len(name) + 1 :]
    if own.startswith(LOCAL):
        inner = own.removeprefix(LOCAL)
        if inner not in LocalTraining.model_fields:
            raise InputError(f"there is no {key!r} to sweep: {nearest(own, _LOCAL_KEYS)}")
        yield from ((each, own) for each in chosen)
        return
    known = {each.use.label: parameters_of(each.use.use, experiment.folder) for each in chosen}
    takers = [each for each in chosen if own in known[each.use.label]]
    if not takers:
        others = sorted({name for each in known.values() for name in each})
        if "." in own:
            raise InputError(
                f"{own!r} cannot be swept: give a parameter of a strategy, or a key of [local] such as local.lr"
            )
        who = "no strategy has" if own == key else f"{' and '.join(known)} does not have"
        raise InputError(f"{who} a parameter {own!r} to sweep: {nearest(own, [*others, *_LOCAL_KEYS])}")
    yield from ((each, own) for each in takers)


def _check(experiment: Experiment, space: Space) -> None:
    """Tries every value once, and the ends of ranges, so that a mistake is found before anything is trained."""
    if (cells := space.cells) is not None and cells > _MOST:
        raise InputError(
            f"{space.use.label} would have {cells:,} settings: give fewer values, at most {_MOST:,} settings"
        )
    first = {key: values.ends[0] for key, values in space.domains.items()}
    for key, values in space.domains.items():
        for value in values.ends:
            try:
                experiment.alone(space.tuned({**first, key: value}))
            except InputError as error:
                hint = f"; a range is {_CALLS}" if isinstance(value, str) and "(" in value else ""
                raise InputError(f"{space.use.label} does not take {key} = {shown(value)}: {error}{hint}") from None
