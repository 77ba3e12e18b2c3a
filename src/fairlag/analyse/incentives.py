"""Who would gain by cheating: a client's influence when it pretends to be slow, all else and all chance equal."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlag.types import Floats

FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0)
"""How much longer than necessary a client may take."""

REPLICATIONS = 5
"""How many seeds at the least: their spread is the error that a gain must exceed."""

_RISK = 0.01


@dataclass(frozen=True, slots=True)
class Incentive:
    """What throttling does for one client."""

    factors: tuple[float, ...]
    influence: Floats
    """Its mean influence at each factor."""
    error: Floats
    """What a relative gain must exceed to count, at each factor."""
    best_throttle: float
    throttle_gain: float
    """The relative gain at the best factor: 3.7 means 4.7 times as much influence; 0 where truth is best."""

    @property
    def smallest_gain(self) -> float:
        """The least gain that would have been noticed, at the factor where the simulation is surest."""
        return float(self.error[1:].min())

    @property
    def truthful(self) -> bool:
        """Does no throttling gain more than the simulation's own error?"""
        return self.best_throttle == 1.0


def judge(influence: Floats, updates: Floats, factors: Sequence[float] = FACTORS) -> Incentive:
    """The best response from influences, one row a replication and one column a factor, the first being 1.

    Replications share their random numbers across factors, so a gain is a mean of paired ratios. It counts where it
    exceeds the simulation's own error, t·s + (1 + ln K)/K. The first part is chance: s is the standard error, t
    Student's quantile at a risk of 1 % shared by all factors. The second is the end of a run that is not endless: a
    client that sends K `updates` (one mean a factor) starts at a random point between two of them, and estimates from
    its own past forget that like ln K / K.

    >>> truthful = judge(np.array([[0.20, 0.15], [0.22, 0.15], [0.21, 0.16]]), np.array([1000, 500]), [1.0, 2.0])
    >>> truthful.truthful, truthful.throttle_gain
    (True, 0.0)
    >>> cheat = judge(np.array([[0.02, 0.08], [0.02, 0.081], [0.02, 0.079]]), np.array([1000, 500]), [1.0, 8.0])
    >>> cheat.truthful, cheat.best_throttle, round(cheat.throttle_gain, 2)
    (False, 8.0, 3.0)
    """
    heard = influence[influence[:, 0] > 0]
    gains = heard / heard[:, :1] - 1 if len(heard) > 1 else np.zeros((2, len(factors)))
    mean, spread = gains.mean(axis=0), gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
    from scipy.special import stdtrit  # takes longer to import than all of the rest, and only this needs it

    quantile = float(stdtrit(len(gains) - 1, 1 - _RISK / max(1, len(factors) - 1)))
    sent = np.maximum(np.minimum(updates, updates[0]), 1.0)
    error = quantile * spread + (1 + np.log(sent)) / sent
    real = np.where(mean > error, mean, 0.0)
    best = int(real.argmax())
    return Incentive(
        factors=tuple(factors),
        influence=influence.mean(axis=0),
        error=error,
        best_throttle=float(factors[best]) if real[best] > 0 else 1.0,
        throttle_gain=float(real[best]),
    )
