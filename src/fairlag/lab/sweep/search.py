"""Which settings are tried: all of a grid, or random ones, in rounds. Guided search is in guided.py."""

from collections.abc import Sequence
from typing import Protocol

from fairlag.errors import InputError
from fairlag.lab.sweep.result import Result
from fairlag.lab.sweep.space import Setting, Space
from fairlag.lab.sweep.table import Sweep
from fairlag.lab.sweep.trial import Hopeless

ROUND = 5
"""Trials per strategy and round, if a search learns from round to round or may run out of time.

It must not depend on the number of workers, because what is tried next follows from whole rounds.
"""


class Search(Protocol):
    """Chooses the settings of one strategy, round by round."""

    @property
    def total(self) -> int:
        """How many trials there are in all."""

    def ask(self, number: int) -> tuple[list[Setting], list[Hopeless | None]]:
        """The settings of a round, and for each of them what ends it early; empty after the last round."""

    def tell(self, number: int, settings: Sequence[Setting], results: Sequence[Result]) -> None:
        """What came of a round."""


class Listing:
    """Settings that are known from the start."""

    def __init__(self, settings: Sequence[Setting], size: int) -> None:
        """`size` is the number of settings per round."""
        self._settings, self._size = settings, size

    @property
    def total(self) -> int:
        """How many trials there are in all."""
        return len(self._settings)

    def ask(self, number: int) -> tuple[list[Setting], list[Hopeless | None]]:
        """The next settings; none of them ends early."""
        chosen = list(self._settings[number * self._size : (number + 1) * self._size])
        return chosen, [None] * len(chosen)

    def tell(self, number: int, settings: Sequence[Setting], results: Sequence[Result]) -> None:
        """Nothing follows from results."""


def kind_of(sweep: Sweep, spaces: Sequence[Space]) -> str:
    """How settings are chosen: as the table says; otherwise all, if there are only lists and no number of trials."""
    endless = any(space.cells is None for space in spaces)
    kind = sweep.search or ("random" if endless or sweep.trials else "grid")
    if kind == "grid":
        if sweep.trials is not None:
            raise InputError(
                f"a grid tries all settings, but trials is {sweep.trials}: remove it, or use --search random"
            )
        if endless:
            raise InputError("a grid needs lists of values, but there is a range: write values, or use --search random")
    elif kind == "random" and sweep.trials is None and endless:
        raise InputError("there are ranges, so the number of trials per strategy must be given: --trials 40")
    return kind


def listing(space: Space, sweep: Sweep, kind: str, seed: int) -> Listing:
    """The settings of a strategy in a grid or a random search."""
    settings = space.grid() if kind == "grid" else space.drawn(sweep.trials or space.cells or 1, seed)
    return Listing(settings, len(settings) if sweep.budget is None else ROUND)
