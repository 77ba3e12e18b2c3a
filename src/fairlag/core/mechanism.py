"""Differential privacy as the server applies it: short updates, bounded weights, noise on every step."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

from fairlag.core.types import Floats, Integers, Update
from fairlag.core.vector import Layout, Vector, length
from fairlag.errors import InputError, StrategyError

Draw = Callable[[int, int], Floats]
"""From a version and a count to that many independent standard normal numbers, different in every version."""

_ROUNDED = 1 - 2.0**-20
"""Shortened updates are this much shorter, so that rounding to 32 bits does not make them too long again."""

_SLACK = 1e-9
"""Numbers that differ by less, relatively, are the same."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """The Gaussian mechanism: updates of at most the length C, weights of at most α_max per client, noise z·C·α_max.

    >>> Mechanism(clip=2.0, most=0.5, noise=1.5, draw=lambda version, count: np.zeros(count)).deviation
    1.5
    """

    clip: float
    """The largest length of an update, C."""
    most: float = inf
    """The largest weight of one client in one version, α_max."""
    noise: float = 0.0
    """The standard deviation of the noise, in units of C·α_max; 0 for updates that are only clipped."""
    draw: Draw | None = None
    budget: float = inf
    """The largest loss ρ = Σ_t α_t² / (2 z² α_max²) of a client."""
    least: int = 1
    """The fewest clients that a version can be made of."""

    def __post_init__(self) -> None:
        if not self.clip > 0:
            raise InputError(f"clip is {self.clip:g}, the length of an update must be bounded by more than 0")
        if self.noise and (self.draw is None or self.most == inf):
            raise InputError(f"noise is {self.noise}, which needs `draw` and `most`, the largest weight of a client")
        if self.allowed < 1 - _SLACK:
            raise InputError(
                f"the budget allows a loss of {self.budget:.3g}, but one update of the largest weight costs "
                f"{0.5 / self.noise**2:.3g}: give more noise, or a larger budget"
            )

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on every number of a step."""
        return self.noise * self.clip * self.most if self.noise else 0.0

    @property
    def allowed(self) -> float:
        """How many updates of the largest weight use up a budget: 2 z² ρ."""
        return 2 * self.noise**2 * self.budget if self.noise else inf

    def clipped(self, update: Update) -> Update:
        """The update, shortened if it is too long.

        >>> Mechanism(clip=1.0).clipped(Update(np.array([3, 4], np.float32))).delta.round(4).tolist()
        [0.6000000238418579, 0.800000011920929]
        """
        short = self._shortened(update.delta, self.clip, _ROUNDED)
        return update if short is update.delta else update._replace(delta=short)

    def sum_of_clipped(self, step: Vector, weights: Floats) -> Vector:
        """A sum of updates that nobody saw, made no longer than it can be if they were clipped: C Σ|α|.

        Without this, a client that does not clip could move the model anywhere. It is the nearest such sum, so two sums
        do not differ by more than before, and the noise still hides every client that did clip.
        """
        return self._shortened(step, self.clip * float(np.abs(weights).sum()))

    @staticmethod
    def _shortened(vector: Vector, most: float, factor: float = 1.0) -> Vector:
        if (found := length(vector)) <= most:
            return vector
        return (vector * (most / found * factor)).astype(np.float32)

    def noised(self, step: Vector, version: int) -> Vector:
        """The step that makes this version, with its noise."""
        if self.draw is None:
            return step
        noise = self.draw(version, len(step)) * self.deviation
        return np.asarray(step.astype(np.float64) + noise, np.float32)

    def uses(self, clients: Integers, weights: Floats) -> dict[int, float]:
        """How much of its budget each client uses in a version, (α / α_max)², α being the sum of its weights.

        Without signs: 0.1 of one update minus 0.1 of another is not nothing.

        >>> mechanism = Mechanism(clip=1.0, most=0.5, noise=1.0, draw=lambda version, count: np.zeros(count))
        >>> mechanism.uses(np.array([7, 7]), np.array([0.1, 0.15]))
        {7: 0.25}
        """
        if not self.noise:
            return {}
        sums: dict[int, float] = {}
        for client, weight in zip(clients.tolist(), weights.tolist(), strict=True):
            sums[client] = sums.get(client, 0.0) + abs(weight)
        for client, weight in sums.items():
            if not weight <= self.most * (1 + _SLACK):
                raise StrategyError(
                    f"client {client} would have the weight {weight:.6g}, but the noise hides at most {self.most:.6g}: "
                    "nothing was released"
                )
        return {client: (weight / self.most) ** 2 for client, weight in sums.items()}


def check_private(layout: Layout, max_growth: float | None, privacy: Mechanism) -> None:
    """Refuses what the length of updates and the noise do not cover.

    >>> check_private(Layout(("running_mean",), ((2,),), 1), None, Mechanism(clip=1.0))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fairlag.errors.StrategyError: the model has statistics ('running_mean', …), which are values and not changes: ...
    """
    if layout.statistics:
        raise StrategyError(
            f"the model has statistics ({layout.names[-layout.statistics]!r}, …), which are values and not changes: "
            "clip and noise do not cover them, so use a model without statistics, such as one with GroupNorm instead "
            "of BatchNorm"
        )
    if privacy.noise and max_growth is not None:
        raise InputError(
            f"max_growth is {max_growth}, but a refused step would have used up budgets unseen: noise needs None"
        )
