"""How far the model has moved since an update's version, in lengths of the update: staleness as distance."""

import math

import numpy as np

from fairlag.core.buffer import Buffer
from fairlag.core.types import Floats
from fairlag.core.vector import Vector, length
from fairlag.core.view import View


def drift(delta: Vector, version: int, view: View) -> float:
    """γ = ‖w_v − w_u‖ / ‖Δ‖ of an update trained from version u: 0 if the model has not moved.

    >>> from fairlag.core.ledger import Ledger
    >>> from fairlag.core.vector import published
    >>> from fairlag.core.versions import Versions
    >>> ledger, versions = Ledger(), Versions(published([0, 0]), before=1)
    >>> ledger.version = 1
    >>> versions.publish(published([3, 4]))
    >>> drift(published([0, 2]), 0, View(ledger, versions)), drift(published([0, 2]), 1, View(ledger, versions))
    (2.5, 0.0)
    """
    moved = length(view.parameters(view.version) - view.parameters(version)) if version != view.version else 0.0
    if not moved:
        return 0.0
    size = length(delta)
    return moved / size if size else math.inf


def drifts(buffer: Buffer, view: View) -> Floats:
    """The drift of every update of a buffer."""
    return np.array([drift(row, task.version, view) for row, task in zip(buffer.updates, buffer.tasks, strict=True)])
