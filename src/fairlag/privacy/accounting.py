"""Who pays how much privacy: a client's loss from the weights of its updates, and (ε, δ) from its loss.

A version adds Gaussian noise of standard deviation z·C·α_max to Σ α_j Δ_j, where no update is longer than C. A client
whose weights in that version sum to α can change the sum by at most α·C, so it meets a Gaussian mechanism of
sensitivity-to-noise ratio μ = α / (z·α_max). Gaussian mechanisms compose to one with μ² = Σ μ_t² (Dong, Roth and Su
2022), so the *loss* ρ = Σ μ_t² / 2 says everything about a client. It is its zero-concentrated privacy loss, too. ε
follows by the exact formula for one Gaussian mechanism (Balle and Wang 2018), as `dp-accounting` computes it. The usual
bound for zero-concentrated privacy, ρ + 2√(ρ ln(1/δ)), is larger: by 21 % at ρ = 1/2 and δ = 1e-5.

Weights must depend on public metadata alone: who arrives, when and how stale. Two inputs are neighbours if one has
zeros in place of all updates of one client.
"""

from collections.abc import Iterable
from math import inf, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.interpolate import CubicSpline
from scipy.special import ndtri

from fairlag.errors import InputError
from fairlag.extras import optional

Floats = npt.NDArray[np.float64]

_KNOTS = 257
"""If there are more different losses than these, ε is interpolated between that number of exact values."""


def charges(clients: Iterable[int], weights: Iterable[float], *, noise: float, bound: float) -> dict[int, float]:
    """What one version adds to the loss of each of its clients: α² / (2 z² α_max²), α being the sum of its weights.

    `noise` is z and `bound` is α_max, the largest weight that a client can have in one version.

    >>> charges([7, 8, 7], [0.25, 0.5, 0.25], noise=1.0, bound=0.5)
    {7: 0.5, 8: 0.5}
    """
    sums: dict[int, float] = {}
    for client, weight in zip(clients, weights, strict=True):
        sums[client] = sums.get(client, 0.0) + abs(weight)
    return {client: loss([weight], noise=noise, bound=bound) for client, weight in sums.items()}


def loss(weights: Iterable[float], *, noise: float, bound: float) -> float:
    """A client's loss ρ = Σ_t α_t² / (2 z² α_max²) from its weight in each version.

    >>> loss([0.5, 0.5], noise=1.0, bound=0.5)
    1.0
    >>> loss([0.0], noise=0.0, bound=1.0), loss([0.1], noise=0.0, bound=1.0)
    (0.0, inf)
    """
    return float(losses(sum(weight * weight for weight in weights), noise=noise, bound=bound))


def losses(squares: npt.ArrayLike, *, noise: float, bound: float) -> Floats:
    """The losses of clients from the sums Σ_t α_t² of the squares of their weights.

    >>> losses([0.5, 0.125], noise=1.0, bound=0.5).tolist()
    [1.0, 0.25]
    """
    if not 0 <= noise < inf:
        raise InputError(f"noise is {noise}, it must be a number of at least 0")
    if not 0 < bound < inf:
        raise InputError(f"the largest weight of a client is {bound}, it must be a positive number")
    found = np.asarray(squares, np.float64)
    return np.asarray(found / (2 * (noise * bound) ** 2) if noise else np.where(found > 0, inf, 0.0))


def epsilon(loss: float, delta: float) -> float:
    """The smallest ε for which a client with this loss has (ε, δ)-differential privacy.

    With μ = √(2ρ), it solves δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ). Exact to 1e-12.

    >>> round(epsilon(0.5, 1e-5), 6), epsilon(0.0, 1e-5), epsilon(inf, 1e-5)
    (4.377178, 0.0, inf)
    """
    check_delta(delta)
    _check_loss(loss)
    if loss == 0 or loss == inf:
        return loss
    with np.errstate(divide="ignore"):  # the logarithm of a δ that rounds to 0
        return float(_library().get_epsilon_gaussian(1 / sqrt(2 * loss), delta))


def epsilons(losses: npt.ArrayLike, delta: float) -> Floats:
    """`epsilon` of every loss in an array, fast for many clients: interpolated if there are more than 257 losses.

    An interpolated ε is within 0.001 % of the exact one.

    >>> epsilons([0.0, 0.5, 0.5], 1e-5).round(6)
    array([0.      , 4.377178, 4.377178])
    """
    found, where = np.unique(np.asarray(losses, np.float64), return_inverse=True)
    check_delta(delta)
    _check_loss(float(found.min(initial=0.0)))
    least = 2 * ndtri((1 + delta) / 2) ** 2  # up to this loss ε is 0, then comes a kink: δ = Φ(μ/2) − Φ(−μ/2)
    smooth = (found > least) & np.isfinite(found)
    if np.count_nonzero(smooth) <= _KNOTS:
        return np.array([epsilon(float(each), delta) for each in found])[where].reshape(np.shape(losses))
    ratio = np.sqrt(2 * found[smooth])
    knots = np.geomspace(ratio[0], ratio[-1], _KNOTS)
    exact = np.array([epsilon(float(each), delta) for each in knots**2 / 2])
    answers = np.where(np.isfinite(found), 0.0, found)
    answers[smooth] = CubicSpline(np.log(knots), exact / knots)(np.log(ratio)) * ratio
    return answers[where].reshape(np.shape(losses))


def allowance(epsilon: float, delta: float) -> float:
    """The largest loss with which a client still has (ε, δ)-differential privacy: the inverse of `epsilon`.

    The noise that keeps a client within it is √(its loss at noise 1 / this).

    >>> round(allowance(4.377178, 1e-5), 6)
    0.5
    """
    check_delta(delta)
    if not 0 < epsilon < inf:
        raise InputError(f"epsilon is {epsilon}, it must be a positive number")
    with np.errstate(divide="ignore"):
        return 1 / (2 * float(_library().get_sigma_gaussian(epsilon, delta)) ** 2)


def check_delta(delta: float) -> None:
    """Refuses anything but a number above 0 and below 1.

    >>> check_delta(1.0)
    Traceback (most recent call last):
    fairlag.errors.InputError: delta is 1.0, it must be above 0 and below 1
    """
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}, it must be above 0 and below 1")


def check_extra() -> None:
    """Refuses to compute ε without the extra that it needs."""
    _library()


def _check_loss(loss: float) -> None:
    if not loss >= 0:
        raise InputError(f"the loss is {loss}, it must be a number of at least 0")


def _library() -> Any:
    return optional("dp_accounting", "privacy", "computing ε")
