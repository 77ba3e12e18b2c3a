"""Where clients that choose their own speed settle, by damped best responses. Payoffs are measured in settling.py."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairlag.core.types import Floats

SLOWEST = 6.0
"""Octaves below the full speed: no client tries to be more than 64 times slower."""

_APART, _EACH_WAY = 1 / 3, 6
"""The speeds at which payoffs are measured: their distance in octaves, and how many there are on each side."""

_REACH = _APART * _EACH_WAY
"""A client considers speeds up to this number of octaves from its present one."""

_FINE = 1 / 32
"""The precision of a best response, in octaves."""

_MISSED = 0.02
"""A spline that misses payoffs by more than this part of what is at stake rounds off an edge. In a Tullock contest it
misses them by at most a quarter of that."""

_STILL = 1 / 128
"""A group that would move by fewer octaves is at rest."""

_SMALL = 0.05
"""No client moves for less than this part of what is at stake."""

_BACK, _ON = 0.5, 1.2
"""The largest ratio of a step to the step before: if it turns back, and if it keeps its direction."""

_MOST_LOOKS = 30

_RISK = 0.01
"""The risk that a difference by chance counts as real, over all speeds together."""


class Look(NamedTuple):
    """The payoffs of one client of a group at several speeds, while all others keep theirs."""

    octaves: Floats
    """How slow each speed is: 0 is the full speed, 1 is twice as slow."""
    payoffs: Floats
    """One row per seed, one column per speed."""


class Response(NamedTuple):
    """The best response of one client of a group."""

    octaves: float
    gain: float
    """How much more payoff it gets than at its present speed."""
    error: float
    """The gain is real only if it exceeds this."""
    at_stake: float
    """The difference between the payoffs of the best and the worst speed."""

    @property
    def is_content(self) -> bool:
        """Is the gain negligible?"""
        return self.gain <= max(self.error, _SMALL * self.at_stake)


@dataclass(frozen=True, slots=True)
class Rest:
    """The speeds at which the groups ended."""

    octaves: Floats
    """Per group."""
    responses: tuple[Response, ...]
    """The best response of one client of each group at these speeds."""

    @property
    def settled(self) -> bool:
        """Would all groups keep their speed?"""
        return all(each.is_content for each in self.responses)


def considered(octaves: float) -> Floats:
    """The speeds that a client compares, including its present one.

    >>> considered(0.5).round(2).tolist()
    [0.0, 0.17, 0.5, 0.83, 1.17, 1.5, 1.83, 2.17, 2.5]
    """
    return np.unique(np.clip(octaves + _APART * np.arange(-_EACH_WAY, _EACH_WAY + 1), 0.0, SLOWEST))


def settle(looks: Callable[[Floats], Sequence[Look]], start: Floats) -> Rest:
    """Moves groups towards the best response of one of their clients, until no group would move.

    `looks` gets the octaves of all groups below the full speed, and measures the payoffs of one client of each group.
    A whole group moves at once, so a full step to the best response of one client would overshoot: among n equal
    clients by a factor of n/2. Each group therefore follows the secant through its last two wishes to the speed at
    which its wish to move would vanish, but never further than it wishes.

    In this example, each of three clients gets its share of all that is sent, less 1/4 per unit that it sends itself.
    They rest at 8/9.

    >>> def contest(state):
    ...     octaves, others = considered(state[0]), 2 * 4 / 2 ** state[0]
    ...     rate = 4 / 2**octaves
    ...     return [Look(octaves, np.tile(rate / (rate + others) - rate / 4, (2, 1)))]
    >>> rest = settle(contest, np.zeros(1))
    >>> rest.settled, round(4 / 2 ** float(rest.octaves[0]), 2)
    (True, 0.89)
    """
    state = np.array(start, np.float64)
    moved, before, turned = np.zeros((3, len(state)))
    most = np.full(len(state), _REACH)
    for look in range(1, _MOST_LOOKS + 1):
        responses = tuple(best_response(look, mine) for look, mine in zip(looks(state), state, strict=True))
        wish = np.array([each.octaves for each in responses]) - state
        with np.errstate(divide="ignore", invalid="ignore"):
            secant = wish * moved / (before - wish)
        step = np.where((moved != 0) & (secant * wish > 0), secant, wish)
        same = np.sign(step) * turned
        most = np.minimum(most * np.where(same < 0, _BACK, np.where(same > 0, _ON, 1.0)), _REACH)
        turned = np.where(step == 0, turned, np.sign(step))
        step = np.clip(step, *np.minimum(most, np.abs(wish)) * [[-1.0], [1.0]])
        if look == _MOST_LOOKS or (np.abs(step) < _STILL).all():  # the responses belong to this state
            break
        moved = np.clip(state + step, 0.0, SLOWEST) - state
        state, before = state + moved, wish
    return Rest(state, responses)


def best_response(look: Look, present: float) -> Response:
    """The speed with the highest payoff; the present one if the differences between speeds may all be chance.

    Measured payoffs are noisy, so a cubic spline with one knot per octave smooths them before the search. A spline
    rounds off edges, such as those that a cap causes: if it misses the measured payoffs by more than chance would,
    straight lines between them are used instead. The gain is a mean of paired differences over seeds, its error a
    one-sided Student's interval.
    """
    from scipy.interpolate import make_interp_spline, make_lsq_spline  # slow to import

    octaves, payoffs = look.octaves, look.payoffs.T
    low, high = octaves[0], octaves[-1]
    knots = np.concatenate([np.full(4, low), np.arange(low + 1, high - 0.5), np.full(4, high)])
    curve = make_lsq_spline(octaves, payoffs, knots, k=3)
    missed, chance = _mean((curve(octaves) - payoffs).T, len(octaves))
    if (np.abs(missed) > np.maximum(chance, _MISSED * np.ptp(payoffs.mean(axis=1)))).any():
        curve = make_interp_spline(octaves, payoffs, k=1)
    speeds = np.append(np.linspace(low, high, round((high - low) / _FINE) + 1), present)
    gain, error = _mean((curve(speeds) - curve(present)).T, len(octaves))
    if not (np.abs(gain) > error).any():
        return Response(present, 0.0, float(error.max()), 0.0)
    best = int(gain.argmax())
    return Response(float(speeds[best]), float(gain[best]), float(error[best]), float(np.ptp(gain)))


def _mean(rows: Floats, tried: int) -> tuple[Floats, Floats]:
    """The mean over rows, one per seed, and what it must exceed to be more than chance if `tried` means are tested."""
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(rows) - 1, 1 - _RISK / tried))
    return rows.mean(axis=0), quantile * rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
