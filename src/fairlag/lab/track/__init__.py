"""Experiment trackers: their registry and their interface. A tracker is only loaded if it is used."""

from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import Protocol

from fairlag.errors import nearest
from fairlag.lab.events import Begun

TRACKERS = ("mlflow", "tensorboard", "wandb")

ALL = inf
"""The value of `held` for a run that is recorded to its end."""


def checked_names(names: object) -> tuple[str, ...]:
    """The names of trackers, each once, from a list or a single name.

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
    """Records one run in another tool. It may raise any exception, which ends the tracking but not the run.

    Whenever the run begins or continues, it gets the whole curve in order, except for the versions that it already
    holds. So points that a crash removed come again, and no point comes twice.
    """

    held: float
    """The newest version that it holds; −1 for none."""

    def __init__(self, home: Path, run: Begun) -> None:
        """Opens a new or existing record of a run; its files are in the folder `home`."""

    def log(self, version: int, time: float, metrics: dict[str, float]) -> None:
        """Records a point of the curve."""

    def end(self, status: str, version: int, time: float, metrics: dict[str, float]) -> None:
        """The run is "finished", and these are its last metrics; or it is "failed" or "interrupted", for now."""
