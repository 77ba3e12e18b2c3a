"""What listeners are told of a run: that it begins, how far it is, what is on disk for good, and how it ends."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Begun(NamedTuple):
    """A run begins, or continues from its last checkpoint."""

    key: str
    """Its own in all the world, and the same after a resume."""
    experiment: str
    label: str
    """Of its strategy."""
    seed: int
    folder: Path
    settings: dict[str, bool | int | float | str]
    """Every setting of its experiment by a dotted name such as "local.lr" or "clients.slow.count"."""
    created: float
    """When it was first begun, in seconds since 1970."""


class Progress(NamedTuple):
    """How far a run is at this moment; a crash may throw it back to what was last kept."""

    version: int
    time: float
    updates: int
    accuracy: dict[str, float]
    """What was evaluated last: of all test examples, under the name "", and of each client group's labels.

    Empty until something was, also after a resume.
    """


class Kept(NamedTuple):
    """All of a run up to this version is on disk for good: no crash takes it back."""

    version: int


class Over(NamedTuple):
    """Nothing more will come of a run for now: it is "finished", "failed" or "interrupted", as `Run.status` says."""

    status: str
    reason: str


Event = Begun | Progress | Kept | Over
"""Of each run in this order: Begun, any number of Progress and Kept, Over."""

Tell = Callable[[Event], None]
"""Whoever listens to one run."""


def nobody(event: Event) -> None:
    """Listens to nothing."""
