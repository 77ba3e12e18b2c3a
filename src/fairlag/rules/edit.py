"""Edits: changes to the updates of a buffer before they are reduced."""

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from fairlag.core.buffer import Buffer
from fairlag.core.state import Savable, State, take
from fairlag.core.vector import Matrix
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules.rule import factory, reads_updates

Edit = Callable[[Matrix, Buffer, View], Matrix]


class Editor(Savable, Protocol):
    """The stateful half of an edit that remembers: one per server."""

    def __call__(self, updates: Matrix, buffer: Buffer, view: View) -> Matrix:
        """Edits the updates, and remembers what it needs of them."""


class Remembering:
    """An edit that remembers earlier updates; `start` makes a new one for each server.

    Calling the rule itself edits updates as if they were the first.
    """

    def __init__(self, start: Callable[[], Editor]) -> None:
        self.start = start

    def __call__(self, updates: Matrix, buffer: Buffer, view: View) -> Matrix:
        """Edits updates as if they were the first."""
        return self.start()(updates, buffer, view)


@factory
def clip(norm: float) -> Edit:
    """Shortens every update to at most this Euclidean length: Δ_j · min(1, norm / ‖Δ_j‖). With inf, none is changed.

    >>> from fairlag.rules.weigh import example
    >>> updates = np.array([[3, 4], [0, 1]], np.float32)
    >>> clip(1.0)(updates, *example()).tolist() == np.array([[0.6, 0.8], [0, 1]], np.float32).tolist()
    True
    """
    if not norm > 0:
        raise StrategyError(f"the largest length of an update is {norm}, it must be positive")

    @reads_updates
    def edit(updates: Matrix, buffer: Buffer, view: View) -> Matrix:
        if norm == math.inf:
            return updates
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

    if any(isinstance(each, Remembering) for each in edits):
        return Remembering(lambda: _InTurn(edits))
    return lambda updates, buffer, view: _InTurn(edits)(updates, buffer, view)


class _InTurn:
    def __init__(self, edits: Sequence[Edit]) -> None:
        self._parts = {str(place): each.start() for place, each in enumerate(edits) if isinstance(each, Remembering)}
        self._edits = [self._parts.get(str(place), each) for place, each in enumerate(edits)]

    def __call__(self, updates: Matrix, buffer: Buffer, view: View) -> Matrix:
        for each in self._edits:
            updates = each(updates, buffer, view)
        return updates

    def state(self) -> State:
        return {name: part.state() for name, part in self._parts.items()}

    def restore(self, state: State) -> None:
        for name, part in self._parts.items():
            part.restore(take(state, name, dict))
