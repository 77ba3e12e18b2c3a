"""Every version of the model a second time: made by the definition, from copies of the updates that were admitted."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlag.core.buffer import Buffer
from fairlag.core.mechanism import Mechanism
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Report, Update
from fairlag.core.vector import Layout, Vector
from fairlag.rules.keep import Keeping
from fairlag.rules.reduce import weighted_sum


class Remade:
    """The sum of updates by weight, the server rule, and the mean of statistics, for strategies that add nothing."""

    def __init__(self, strategy: Strategy, layout: Layout, privacy: Mechanism | None = None) -> None:
        self._strategy, self._layout, self._privacy = strategy, layout, privacy
        self._parameters = layout.parameters.size
        self.applies = (
            not isinstance(strategy.reduce, Keeping)
            and strategy.reduce is weighted_sum
            and strategy.edit is None
            and not strategy.local.shares
        )

    def kept(self, update: Update) -> Vector:
        """A copy of an update, no longer than it may be."""
        copied: Vector = update.delta.astype(np.float64).astype(np.float32)
        if self._privacy is not None and (length := float(np.linalg.norm(copied))) > self._privacy.clip:
            copied = (copied * (self._privacy.clip / length)).astype(np.float32)
        return copied

    def begun(self, model: Vector) -> tuple[Any, ...]:
        """The server rule's first state."""
        return self._strategy.apply.init(model[: self._parameters], self._layout.parameters)

    def check(
        self,
        record: Aggregation,
        updates: Sequence[Vector],
        reports: Sequence[Report],
        before: tuple[Vector, tuple[Any, ...]],
        after: Vector,
    ) -> tuple[Any, ...]:
        """Compares a version with the one made here; returns the server rule's next state."""
        model, state = before
        if record.refused:
            assert after.tobytes() == model.tobytes(), "an aggregation was refused, but the model has changed"
            return state
        rows, weights = np.array(updates), np.asarray(record.weights)
        step = np.array([np.dot(weights, column) for column in rows[:, : self._parameters].T.astype(np.float64)])
        if self._privacy is not None and self._privacy.draw is not None:
            step += self._privacy.draw(record.version, len(step)) * self._privacy.deviation
        rule, split = self._strategy.apply, self._parameters
        if rule.observe is not None:
            state = rule.observe(Buffer(record.tasks, record.staleness.tolist(), list(reports)), state)
        change, state = rule.update(step.astype(np.float32), state, model[:split])
        close(after[:split], model[:split] + change, "the model is not its last version and the updates by weight")
        close(after[split:], _mixed(weights, rows[:, split:], model[split:]), "statistics are not the mean of values")
        return state


def _mixed(weights: NDArray[np.float64], values: Any, now: Vector) -> NDArray[np.float64]:
    """The mean of the clients' statistics by weight, with the rest of a whole from the server's."""
    positive = weights * (weights > 0)
    total = positive.sum()
    if not total or not now.size:
        return now.astype(np.float64)
    mean: NDArray[np.float64] = np.dot(positive / total, values.astype(np.float64))
    return mean if total >= 1 else now * (1 - total) + total * mean


def close(found: Any, right: Any, what: str) -> None:
    """Are the numbers the same, except for rounding?"""
    size = max(1.0, float(np.abs(right).max(initial=0.0)))
    assert np.allclose(found, right, rtol=1e-3, atol=1e-3 * size), f"{what}: {found} instead of {right}"
