"""Experiment trackers: their registry, and what each of them is given. A tracker is loaded only if it is asked for."""

from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import Protocol

from fairlag.errors import nearest
from fairlag.lab.events import Begun

TRACKERS = ("mlflow", "tensorboard", "wandb")

ALL = inf
"""What a tracker holds that was told of a run to its end."""


def checked_names(names: object) -> tuple[str, ...]:
    """The names of trackers, each once, from a list of them or a single one.

    >>> checked_names("wandb"), checked_names(["mlflow", "wandb", "mlflow"])
    (('wandb',), ('mlflow', 'wandb'))
    """
    listed = (names,) if isinstance(names, str) else names
    if not isinstance(listed, Iterable):
        raise ValueError(f"it is {names!r}, but must be a list of {', '.join(TRACKERS)}")
    found = tuple(dict.fromkeys(listed))
    for name in found:
        if name not in TRACKERS:
            raise ValueError(f"there is no tracker {name!r}: {nearest(str(name), TRACKERS)}")
    return found


class Tracker(Protocol):
    """What records one run elsewhere; it may raise whatever it likes, which ends the tracking and not the run.

    It is told the whole curve in order whenever the run begins or continues, except for the versions that it holds
    already: so whatever a crash took from it comes again, and nothing comes twice.
    """

    held: float
    """The newest version that it holds, −1 if none."""

    def __init__(self, home: Path, run: Begun) -> None:
        """Opens the record of a run, or the one that it has already; what it keeps on disk is in that folder."""

    def log(self, version: int, time: float, metrics: dict[str, float]) -> None:
        """A point of the curve."""

    def end(self, status: str, version: int, time: float, metrics: dict[str, float]) -> None:
        """The run is "finished", and these are its last metrics; or it is "failed" or "interrupted", for now."""
