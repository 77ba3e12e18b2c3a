"""What selection tells of the round that is going on."""

from math import inf
from typing import Protocol


class Round(Protocol):
    """What selection tells of the round that is going on."""

    target: int
    """How many updates complete it, 0 where there are no rounds."""
    until: float
    """Its deadline."""
    restarted: list[int]
    """The clients that were called off their tasks, or lost them, and in this round began anew."""


class NoRound:
    """There are no rounds."""

    target = 0
    until = inf

    def __init__(self) -> None:
        self.restarted: list[int] = []
