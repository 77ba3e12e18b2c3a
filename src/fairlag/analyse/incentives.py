"""Who would gain by cheating: a client's influence when it pretends to be slow, and how sure that is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlag.core.types import Floats

FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0)
"""How much longer than necessary a client may take."""

REPLICATIONS = 10
"""How many seeds at the least: their spread is the error that a gain must exceed."""

WANTED = 0.05
"""The error that is wanted of a relative gain, unless another one is asked for."""

_RISK = 0.01


@dataclass(frozen=True, slots=True)
class Incentive:
    """What throttling does for one client."""

    factors: tuple[float, ...]
    influence: Floats
    """Its mean influence at each factor."""
    error: Floats
    """The error of the relative gain at each factor: what it must exceed to count."""
    best_throttle: float
    throttle_gain: float
    """The relative gain at the best factor: 3.7 means 4.7 times as much influence; 0 where truth is best."""
    heard: bool = True
    """Was an update of the truthful client merged in at least two trials? Otherwise nothing is known of its gains."""

    @property
    def gains(self) -> Floats:
        """The relative gain at each factor, whether or not it exceeds its error."""
        honest = self.influence[0]
        return np.asarray(self.influence / honest - 1 if honest > 0 else np.zeros(len(self.factors)))

    @property
    def gain_error(self) -> float:
        """The error of the gain at the best factor."""
        return float(self.error[self.factors.index(self.best_throttle)])

    @property
    def largest_gain(self) -> float:
        """The most that a client might gain without being noticed, at any factor; 0 where all clearly lose."""
        return max(0.0, float((self.gains + self.error)[1:].max()))

    @property
    def truthful(self) -> bool:
        """Does no throttling gain more than the simulation's own error?"""
        return self.best_throttle == 1.0

    def is_sure(self, wanted: float) -> bool:
        """Is the answer as precise as was wanted?"""
        if self.truthful:
            return self.largest_gain <= wanted
        return self.gain_error <= wanted * (1 + self.throttle_gain)

    def excess(self, wanted: float) -> Floats:
        """For each factor, how many times the error is larger than it may be for the answer to be that precise.

        Where nothing gains, no factor may hide a gain of more than `wanted`. A gain is known as precisely as the
        influence that it leads to, and what the other factors gain is then of no interest.
        """
        if self.truthful:
            allowed = np.maximum(wanted - self.gains, wanted / 2)
        else:
            best = np.array(self.factors) == self.best_throttle
            allowed = np.where(best, wanted * (1 + self.throttle_gain), np.inf)
        return np.asarray(self.error / allowed)


def judge(influence: Floats, before: Floats, updates: Floats, factors: Sequence[float] = FACTORS) -> Incentive:
    """The best response from influences, one row per replication and one column per factor, the first being 1.

    Replications share their random numbers across factors, so a gain is a mean of paired ratios. Its error has three
    parts, t·s + d + 1/K. The first is chance: s is the standard error, t Student's quantile at a risk of 1 % shared by
    all factors. The second is what is left of the beginning, because a rule that remembers all of a client's past
    forgets it like 1/time: `before` is the influence in the quarter of the trial before the half that counts, and d
    the difference of the two mean gains, which is the bias of the second if it falls like that. The third is the end:
    a client that sends K `updates` (means over replications) may be about to send another one.

    >>> def judged(rows, updates, factors):
    ...     return judge(np.array(rows), np.array(rows), np.array(updates), factors)
    >>> truthful = judged([[0.20, 0.15], [0.22, 0.15], [0.21, 0.16]], [1000, 500], [1.0, 2.0])
    >>> truthful.truthful, truthful.throttle_gain
    (True, 0.0)
    >>> cheat = judged([[0.02, 0.08], [0.02, 0.081], [0.02, 0.079]], [1000, 500], [1.0, 8.0])
    >>> cheat.truthful, cheat.best_throttle, round(cheat.throttle_gain, 2)
    (False, 8.0, 3.0)
    """
    merged = influence[:, 0] > 0
    heard = bool(merged.sum() > 1)
    gains = influence[merged] / influence[merged, :1] - 1 if heard else np.zeros((2, len(factors)))
    mean, spread = gains.mean(axis=0), gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
    from scipy.special import stdtrit  # takes longer to import than all of the rest, and only this needs it

    quantile = float(stdtrit(len(gains) - 1, 1 - _RISK / max(1, len(factors) - 1)))
    sent = np.maximum(np.minimum(updates, updates[0]), 1.0)
    error = quantile * spread + np.abs(_gain(before) - _gain(influence)) + (1 + mean) / sent
    real = np.where(mean > error, mean, 0.0)
    best = int(real.argmax())
    return Incentive(
        factors=tuple(factors),
        influence=influence.mean(axis=0),
        error=error,
        best_throttle=float(factors[best]) if real[best] > 0 else 1.0,
        throttle_gain=float(real[best]),
        heard=heard,
    )


def judge_pair(honest: Floats, planned: Floats, tests: int) -> tuple[float, float]:
    """The relative gain of a plan over a whole run, and its error; rows are (influence, updates) for the same seeds.

    The gain is a ratio of means, g = x̄ / ȳ − 1, since a mean of ratios would favour whoever has a noisy denominator.
    Its error is t·s + (1 + g) / K: s is the standard error of x − (1 + g) y in parts of ȳ, t Student's quantile at a
    risk of 1 % shared by that many `tests`. 1/K is the end of the run: of the K updates that a client sends, the last
    one may have come just in time, or just too late.

    >>> honest, gap = np.array([[0.10, 100], [0.11, 100], [0.10, 100]]), np.array([[0.05, 0], [0.05, 0], [0.06, 0]])
    >>> gain, error = judge_pair(honest, honest + gap, tests=1)
    >>> round(gain, 2), round(error, 2)
    (0.52, 0.32)
    """
    from scipy.special import stdtrit

    (mine, sent), (fair, usual) = planned.T, honest.T
    many, start = len(mine), float(fair.mean())
    if start <= 0:
        return 0.0, 1.0
    ratio = float(mine.mean()) / start
    spread = float((mine - ratio * fair).std(ddof=1)) / start / many**0.5
    quantile = float(stdtrit(many - 1, 1 - _RISK / max(1, tests)))
    return ratio - 1, quantile * spread + ratio / max(1.0, min(float(sent.mean()), float(usual.mean())))


def _gain(influence: Floats) -> Floats:
    """Of mean influences; nothing where a client was not heard."""
    honest, *_ = mean = influence.mean(axis=0)
    return np.asarray(mean / honest - 1 if honest > 0 else np.zeros_like(mean))
