"""Whether throttling pays: a client's influence if it pretends to be slow, and how certain that is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlag.core.types import Floats

FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0)
"""The throttles that are tried: how many times as long as necessary a client takes."""

REPLICATIONS = 10
"""The least number of seeds: a gain must exceed the error that comes from their spread."""

WANTED = 0.05
"""The default error of a relative gain."""

_RISK = 0.01


@dataclass(frozen=True, slots=True)
class Incentive:
    """What throttling gains one client."""

    factors: tuple[float, ...]
    influence: Floats
    """Its mean influence at each factor."""
    error: Floats
    """The error of the relative gain at each factor; a gain counts only if it exceeds its error."""
    best_throttle: float
    throttle_gain: float
    """The relative gain at the best factor: 3.7 means 4.7 times as much influence; 0 if truth is best."""
    heard: bool = True
    """Was an update of the truthful client merged in at least two trials? If not, its gains are not known."""

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
        """The most that a client might gain at any factor within the error; 0 if all factors clearly lose."""
        return max(0.0, float((self.gains + self.error)[1:].max()))

    @property
    def truthful(self) -> bool:
        """Does no throttling gain more than the simulation's own error?"""
        return self.best_throttle == 1.0

    def is_sure(self, wanted: float) -> bool:
        """Is the answer as precise as wanted?"""
        if self.truthful:
            return self.largest_gain <= wanted
        return self.gain_error <= wanted * (1 + self.throttle_gain)

    def excess(self, wanted: float) -> Floats:
        """For each factor: its error as a multiple of the largest error with which the answer is as precise as wanted.

        If no factor gains, none may hide a gain of more than `wanted`. If one does, the influence that it leads to must
        have a relative error of at most `wanted`; the errors of the other factors then do not matter.
        """
        if self.truthful:
            allowed = np.maximum(wanted - self.gains, wanted / 2)
        else:
            best = np.array(self.factors) == self.best_throttle
            allowed = np.where(best, wanted * (1 + self.throttle_gain), np.inf)
        return np.asarray(self.error / allowed)


def judge(influence: Floats, before: Floats, updates: Floats, factors: Sequence[float] = FACTORS) -> Incentive:
    """The best response, from influences with one row per replication and one column per factor; the first factor is 1.

    Replications share their random numbers across factors, so a gain is a mean of paired ratios. Its error has three
    parts, t·s + d + (1 + g)/K. The first is chance: s is the standard error, and t Student's quantile at a risk of 1 %
    that all factors share. The second is the remaining effect of the start, because a rule that remembers all of a
    client's past forgets it like 1/time: `before` is the influence in the quarter of the trial before the half that
    counts, and d the difference of the two mean gains, which is the bias of the later one if it falls like 1/time. The
    third is the end of the trial: a client that sends K `updates` (averaged over replications) may be about to send
    another one; g is its gain.

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
    from scipy.special import stdtrit  # slow to import, and only needed here

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

    The gain is a ratio of means, g = x̄ / ȳ − 1, because a mean of ratios would favour a noisy denominator.
    Its error is t·s + (1 + g) / K: s is the standard error of x − (1 + g) y in units of ȳ, and t Student's quantile at
    a risk of 1 % that all `tests` share. 1/K stands for the end of the run: of the K updates that a client sends, the
    last one may have arrived just in time, or just too late.

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
    """The relative gain from mean influences; 0 if the truthful client had no influence."""
    honest, *_ = mean = influence.mean(axis=0)
    return np.asarray(mean / honest - 1 if honest > 0 else np.zeros_like(mean))
