"""What selection publishes about the current round."""

from math import inf
from typing import Protocol


class Round(Protocol):
    """What selection publishes about the current round."""

    target: int
    """How many updates complete it; 0 if there are no rounds."""
    until: float
    """Its deadline."""
    number: int
    """Which round it is; 0 if a round makes one version, or there are none."""
    restarted: list[int]
    """The clients whose tasks were cancelled or lost, and that started a new one in this round."""


class NoRound:
    """The `Round` of a selection without rounds."""

    target = 0
    until = inf
    number = 0

    def __init__(self) -> None:
        self.restarted: list[int] = []
