"""Every version of the model a second time: made by the definition, from copies of the updates that were admitted."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlag.core.buffer import Buffer
from fairlag.core.mechanism import Mechanism
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Report, Update
from fairlag.core.vector import Layout, Vector
from fairlag.rules.reduce import weighted_sum

Memory = Mapping[int, NDArray[np.float64]]
"""Per client: its last update, or its last model, if the strategy remembers them."""


class Remade:
    """The sum of updates by weight, perhaps with remembered ones, the server rule, and the mean of statistics."""

    def __init__(self, strategy: Strategy, layout: Layout, privacy: Mechanism | None = None) -> None:
        self._strategy, self._layout, self._privacy = strategy, layout, privacy
        self._parameters = layout.parameters.size
        name, _, argument = getattr(strategy.reduce, "label", "").rstrip(")").partition("(")
        self._beta = float(argument) if name == "replaying" else None
        self._replaces = name == "replacing"
        summed = strategy.reduce is weighted_sum or self._beta is not None or self._replaces
        self.applies = summed and strategy.edit is None and not strategy.local.shares

    def kept(self, update: Update) -> Vector:
        """A copy of an update, no longer than it may be."""
        copied: Vector = update.delta.astype(np.float64).astype(np.float32)
        if self._privacy is not None and (length := float(np.linalg.norm(copied))) > self._privacy.clip:
            copied = (copied * (self._privacy.clip / length)).astype(np.float32)
        return copied

    def begun(self, model: Vector) -> tuple[tuple[Any, ...], Memory]:
        """The server rule's state and what is remembered with the first model."""
        self._first = model[: self._parameters].astype(np.float64)
        return self._strategy.apply.init(model[: self._parameters], self._layout.parameters), {}

    def check(
        self,
        record: Aggregation,
        updates: Sequence[Vector],
        reports: Sequence[Report],
        before: tuple[Vector, tuple[tuple[Any, ...], Memory]],
        after: Vector,
        clients: int,
        version: Callable[[int], Vector],
    ) -> tuple[tuple[Any, ...], Memory]:
        """Compares a version with the one made here; returns the server rule's next state and what is remembered.

        `clients` is how many have ever joined, and `version` returns an earlier version.
        """
        model, (state, memory) = before
        if record.refused:
            assert after.tobytes() == model.tobytes(), "an aggregation was refused, but the model has changed"
            return state, memory
        rows, weights, split = np.array(updates), np.asarray(record.weights), self._parameters
        found: list[NDArray[np.float64]] = [*rows[:, :split].astype(np.float64)]
        senders = [task.client for task in record.tasks]
        if self._replaces:
            models = [version(task.version)[:split] + one for task, one in zip(record.tasks, found, strict=True)]
            step, memory = _replaced(weights, senders, models, memory, self._first)
        elif self._beta is not None:
            step, memory = _replayed(weights, senders, found, memory, self._beta, clients)
        else:
            step = np.array([np.dot(weights, column) for column in np.transpose(found)])
        if self._privacy is not None and self._privacy.draw is not None:
            step += self._privacy.draw(record.version, len(step)) * self._privacy.deviation
        rule = self._strategy.apply
        if rule.observe is not None:
            state = rule.observe(Buffer(record.tasks, record.staleness.tolist(), list(reports)), state)
        change, state = rule.update(step.astype(np.float32), state, model[:split])
        close(after[:split], model[:split] + change, "the model is not its last version and the updates by weight")
        close(after[split:], _mixed(weights, rows[:, split:], model[split:]), "statistics are not the mean of values")
        return state, memory


def _replayed(
    weights: NDArray[np.float64],
    senders: Sequence[int],
    updates: Sequence[NDArray[np.float64]],
    memory: Memory,
    beta: float,
    clients: int,
) -> tuple[NDArray[np.float64], Memory]:
    """Σ_j α_j (Δ_j − β h_i) + β/n Σ_i h_i with the h before this buffer, and the next h."""
    step = sum((beta / clients * last for last in memory.values()), np.zeros_like(updates[0]))
    for weight, client, update in zip(weights, senders, updates, strict=True):
        step = step + weight * (update - beta * memory.get(client, 0.0))
    return step, {**memory, **dict(zip(senders, updates, strict=True))}


def _replaced(
    weights: NDArray[np.float64],
    senders: Sequence[int],
    models: Sequence[NDArray[np.float64]],
    memory: Memory,
    first: NDArray[np.float64],
) -> tuple[NDArray[np.float64], Memory]:
    """Σ_j α_j (x_j − y_i), one after the other, and the next y: each client's last model, w_0 at first."""
    step, last = np.zeros_like(models[0]), dict(memory)
    for weight, client, model in zip(weights, senders, models, strict=True):
        step = step + weight * (model - last.get(client, first))
        last[client] = model
    return step, last


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
