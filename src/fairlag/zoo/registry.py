"""The registry of algorithms: their names, the functions that make them, and the parts of their docstrings."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from fairlag.core.strategy import Strategy
from fairlag.errors import StrategyError

Maker = TypeVar("Maker", bound=Callable[..., Strategy])
Choice = TypeVar("Choice")

LARGEST_TOTAL = 10.0
"""The default cap on the total weight of an aggregation, for algorithms whose weights are otherwise unbounded."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A registered algorithm: its name in files, its title for people, and the function that makes it.

    Its docstring is a sentence, the formula, and paragraphs that begin with `Departs:` and `Reference:`.

    >>> from fairlag.zoo import ALGORITHMS
    >>> fedbuff = ALGORITHMS["fedbuff"]
    >>> fedbuff.title, list(fedbuff.parameters)[:2]
    ('FedBuff', ['buffer', 'concurrency'])
    """

    name: str
    title: str
    make: Callable[..., Strategy]

    @property
    def family(self) -> str:
        """What it has in common with the algorithms of its module, as the first line of the module says."""
        return (inspect.getdoc(inspect.getmodule(self.make)) or "").partition("\n")[0].partition(":")[0].rstrip(".")

    @property
    def description(self) -> str:
        """The first sentence of its docstring."""
        return self._paragraphs[0]

    @property
    def formula(self) -> str:
        """The paragraph after the description."""
        return " ".join(each for each in self._paragraphs[1:] if not each.startswith(("Departs:", "Reference:", ">>>")))

    @property
    def departs(self) -> str:
        """How it departs from its paper, and why."""
        return self._part("Departs:")

    @property
    def reference(self) -> str:
        """Where it was published."""
        return self._part("Reference:")

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Its parameters, with annotations and defaults."""
        return inspect.signature(self.make).parameters

    @property
    def _paragraphs(self) -> list[str]:
        return [" ".join(each.split()) for each in (inspect.getdoc(self.make) or "").split("\n\n")]

    def _part(self, name: str) -> str:
        found = (each for each in self._paragraphs if each.startswith(name))
        return next(found, "").removeprefix(name).strip()


ALGORITHMS: dict[str, Algorithm] = {}
"""Every algorithm by name."""


def algorithm(title: str) -> Callable[[Maker], Maker]:
    """Registers a function that makes a strategy under its own name.

    >>> from fairlag.zoo import fedbuff
    >>> ALGORITHMS[fedbuff.__name__].title
    'FedBuff'
    """

    def register(make: Maker) -> Maker:
        ALGORITHMS[make.__name__] = Algorithm(make.__name__, title, make)
        return make

    return register


def choice(name: str, value: str, choices: Mapping[str, Choice]) -> Choice:
    """Looks up a choice by name; refuses any other name.

    >>> choice("scaling", "one", {"one": 1, "two": 2})
    1
    """
    if value not in choices:
        raise StrategyError(f"{name} is {value!r}, it must be one of {', '.join(choices)}")
    return choices[value]
