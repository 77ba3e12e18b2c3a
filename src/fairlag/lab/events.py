"""The events of a run that listeners get: its beginning, its progress, its commits to disk, and its end."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from fairlag.text.scored import ACCURACY, Scored


class Begun(NamedTuple):
    """A run begins, or continues from its last checkpoint."""

    key: str
    """Globally unique, and the same after a resume."""
    experiment: str
    label: str
    """The label of its strategy."""
    seed: int
    folder: Path
    settings: dict[str, bool | int | float | str]
    """Every setting of its experiment by a dotted name such as "local.lr" or "clients.slow.count"."""
    created: float
    """When it was first begun, in seconds since 1970."""


class Progress(NamedTuple):
    """The current progress of a run; a crash may set it back to the last commit."""

    version: int
    time: float
    updates: int
    scores: dict[str, float]
    """The last values of the leading metric: on all test examples, under the name "", and on each group's labels.

    Empty until the first evaluation, also after a resume.
    """
    lead: Scored = ACCURACY
    """The metric that these are of."""


class Evaluated(NamedTuple):
    """A version was evaluated for the curve; every such version is told, in order, but after a resume only new ones."""

    version: int
    time: float
    scores: dict[str, Mapping[str, float]]
    """Every metric by its name: on all test examples, under the name "", and on each group's labels."""


class Kept(NamedTuple):
    """Everything up to this version is safely on disk: no crash can undo it."""

    version: int


class Over(NamedTuple):
    """The run has ended, at least for now: it is "finished", "failed" or "interrupted", like `Run.status`."""

    status: str
    reason: str


Event = Begun | Progress | Evaluated | Kept | Over
"""Each run sends them in this order: Begun, any number of Progress, Evaluated and Kept, Over."""

Tell = Callable[[Event], None]
"""A listener to one run."""
