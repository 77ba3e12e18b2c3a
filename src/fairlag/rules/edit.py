"""Edits: changes to the updates of a buffer before they are reduced."""

from collections.abc import Callable

import numpy as np

from fairlag.core.buffer import Buffer
from fairlag.core.vector import Matrix
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules.rule import factory, reads_updates

Edit = Callable[[Matrix, Buffer, View], Matrix]


@factory
def clip(norm: float) -> Edit:
    """Shortens every update to at most this Euclidean length: Δ_j · min(1, norm / ‖Δ_j‖).

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


def whole_models(updates: Matrix, buffer: Buffer, view: View) -> Matrix:
    """Treats each update as its client's whole model, not as a change: Δ_j + w_u − w_v.

    With weight α, w ← w + α(Δ + w_u − w) is then the mixture (1 − α)w + αx of the model and the client's x = w_u + Δ.

    >>> from fairlag.rules.weigh import example
    >>> buffer, view = example()
    >>> whole_models(np.zeros((2, 0), np.float32), buffer, view).shape
    (2, 0)
    """
    now = view.parameters(view.version)
    return updates + np.stack([view.parameters(task.version) - now for task in buffer.tasks])


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
