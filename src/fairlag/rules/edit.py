"""Edits: what is done to the updates of a buffer before they are summed."""

from collections.abc import Callable

import numpy as np

from fairlag.buffer import Buffer
from fairlag.errors import StrategyError
from fairlag.rules.rule import factory, reads_updates
from fairlag.vector import Matrix
from fairlag.view import View

Edit = Callable[[Matrix, Buffer, View], Matrix]


@factory
def clip(norm: float) -> Edit:
    """Shortens every update to a largest Euclidean length: Δ_j · min(1, norm / ‖Δ_j‖).

    >>> from fairlag.rules.weigh import example
    >>> updates = np.array([[3, 4], [0, 1]], np.float32)
    >>> clip(1.0)(updates, *example()).tolist() == np.array([[0.6, 0.8], [0, 1]], np.float32).tolist()
    True
    """
    if not norm > 0:
        raise StrategyError(f"the largest length of an update is {norm}, it must be positive")

    @reads_updates
    def edit(updates: Matrix, buffer: Buffer, view: View) -> Matrix:
        lengths = np.linalg.norm(updates, axis=1, keepdims=True)
        factors: Matrix = (norm / np.maximum(lengths, norm)).astype(np.float32)
        return updates * factors

    return edit


@factory
def in_turn(*edits: Edit) -> Edit:
    """One edit after the other.

    >>> from fairlag.rules.weigh import example
    >>> in_turn(clip(2.0), clip(1.0))(np.array([[0, 8], [0, 1]], np.float32), *example()).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """

    def edit(updates: Matrix, buffer: Buffer, view: View) -> Matrix:
        for each in edits:
            updates = each(updates, buffer, view)
        return updates

    return edit
