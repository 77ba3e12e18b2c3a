"""Where clients settle that choose their own speed: damped best responses; how payoffs are measured is not here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairlag.types import Floats

SLOWEST = 6.0
"""Octaves below the full speed: nobody tries to be more than 64 times slower."""

_APART, _EACH_WAY = 1 / 3, 6
"""The speeds at which payoffs are measured, in octaves from one to the next, and how many on each side."""

_REACH = _APART * _EACH_WAY
"""A client considers speeds up to that many octaves from its present one."""

_FINE = 1 / 32
"""A best response is known to that part of an octave."""

_STILL = 1 / 128
"""A group that would move by less is at rest."""

_SMALL = 0.05
"""Nobody moves for less than that part of what the choice of a speed is worth."""

_BACK, _ON = 0.5, 1.2
"""A step is at most that many times as long as the one before, if it turns back and if it goes on."""

_MOST_LOOKS = 30

_RISK = 0.01
"""That a difference is taken for real which is not."""


class Look(NamedTuple):
    """What one client of a group would get at several speeds while all others keep theirs."""

    octaves: Floats
    """How slow each speed is: 0 is the full speed, 1 is twice as slow."""
    payoffs: Floats
    """One row per seed, one column per speed."""


class Response(NamedTuple):
    """What one client of a group would rather do."""

    octaves: float
    gain: float
    """In payoff, over staying."""
    error: float
    """What a gain must exceed to be real."""
    at_stake: float
    """How far apart the payoffs of the best and the worst speed are."""

    @property
    def is_content(self) -> bool:
        """Is there next to nothing to gain?"""
        return self.gain <= max(self.error, _SMALL * self.at_stake)


@dataclass(frozen=True, slots=True)
class Rest:
    """Where the groups ended."""

    octaves: Floats
    """Per group."""
    responses: tuple[Response, ...]
    """What one client of each group would then rather do."""

    @property
    def settled(self) -> bool:
        """Would everybody stay?"""
        return all(each.is_content for each in self.responses)


def considered(octaves: float) -> Floats:
    """The speeds that a client compares with its present one, which is among them.

    >>> considered(0.5).round(2).tolist()
    [0.0, 0.17, 0.5, 0.83, 1.17, 1.5, 1.83, 2.17, 2.5]
    """
    return np.unique(np.clip(octaves + _APART * np.arange(-_EACH_WAY, _EACH_WAY + 1), 0.0, SLOWEST))


def settle(looks: Callable[[Floats], Sequence[Look]], start: Floats) -> Rest:
    """Moves groups towards the best response of one of their clients, until nobody would move.

    `looks` measures what one client of each group would get if all groups are that many octaves below the full speed.
    A whole group moves at once, so a full step to the best response of one client would overshoot: among n equal
    clients by a factor of n/2. Each group therefore goes to where its wish to move would vanish by the secant through
    its last two wishes, and at most as far as it wishes.

    Here one client of three gets its part of all that is sent, less 1/4 per unit that it sends: they rest at 8/9.

    >>> def contest(state):
    ...     octaves, others = considered(state[0]), 2 * 4 / 2 ** state[0]
    ...     rate = 4 / 2**octaves
    ...     return [Look(octaves, np.tile(rate / (rate + others) - rate / 4, (2, 1)))]
    >>> rest = settle(contest, np.zeros(1))
    >>> rest.settled, round(4 / 2 ** rest.octaves[0], 2)
    (True, 0.89)
    """
    state = np.array(start, np.float64)
    moved, before, turned = np.zeros((3, len(state)))
    most = np.full(len(state), _REACH)
    for _ in range(_MOST_LOOKS):
        responses = tuple(best_response(look, mine) for look, mine in zip(looks(state), state, strict=True))
        wish = np.array([each.octaves for each in responses]) - state
        with np.errstate(divide="ignore", invalid="ignore"):
            secant = wish * moved / (before - wish)
        step = np.where((moved != 0) & (secant * wish > 0), secant, wish)
        same = np.sign(step) * turned
        most = np.minimum(most * np.where(same < 0, _BACK, np.where(same > 0, _ON, 1.0)), _REACH)
        turned = np.where(step == 0, turned, np.sign(step))
        step = np.clip(step, *np.minimum(most, np.abs(wish)) * [[-1.0], [1.0]])
        if (np.abs(step) < _STILL).all():
            break
        moved = np.clip(state + step, 0.0, SLOWEST) - state
        state, before = state + moved, wish
    return Rest(state, responses)


def best_response(look: Look, present: float) -> Response:
    """The speed at which a client's payoff is highest; its present one if chance does not tell any two speeds apart.

    Payoffs are measured with chance, so they are smoothed by a cubic spline with a knot per octave before the highest
    is looked for. A spline rounds off edges, such as a cap makes: if straight lines from one measured payoff to the
    next deny its highest, theirs counts. The gain is a mean of paired differences over seeds, its error a one-sided
    Student's interval.
    """
    from scipy.interpolate import make_interp_spline, make_lsq_spline  # take longer to import than all of the rest

    low, high = look.octaves[0], look.octaves[-1]
    knots = np.concatenate([np.full(4, low), np.arange(low + 1, high - 0.5), np.full(4, high)])
    speeds = np.append(np.linspace(low, high, round((high - low) / _FINE) + 1), present)
    smooth, straight = (
        (curve(speeds) - curve(present)).T
        for curve in (
            make_lsq_spline(look.octaves, look.payoffs.T, knots, k=3),
            make_interp_spline(look.octaves, look.payoffs.T, k=1),
        )
    )
    best = int(smooth.mean(axis=0).argmax())
    denied = abs(speeds[best] - present) > _APART and straight[:, best].mean() <= 0
    return _highest(speeds, straight if denied else smooth)


def _highest(speeds: Floats, gains: Floats) -> Response:
    """The speed with the highest gain over the last one, which is the present one; gains have one row per seed."""
    from scipy.special import stdtrit

    mean, spread = gains.mean(axis=0), gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
    error = float(stdtrit(len(gains) - 1, 1 - _RISK)) * spread
    if not (np.abs(mean) > error).any():
        return Response(float(speeds[-1]), 0.0, float(error.max()), 0.0)
    best = int(mean.argmax())
    return Response(float(speeds[best]), float(mean[best]), float(error[best]), float(np.ptp(mean)))
