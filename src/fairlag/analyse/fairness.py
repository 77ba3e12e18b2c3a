"""How evenly influence is distributed: indices computed from per-client influence, wherever that comes from.

Influence is any amount per client that is not negative, such as the sum of its updates' weights; only proportions
matter. If no client has any influence, that counts as perfectly even. If clients join and leave, each is entitled to
its part of the versions made while it was present (lab/attendance.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairlag.core.types import Floats
from fairlag.errors import InputError

_ALIKE = 0.01


def normalised(weights: ArrayLike) -> Floats:
    """Weights as shares of their sum, x_i / Σ_j x_j; equal shares if all are zero.

    >>> normalised([1.0, 3.0]).tolist()
    [0.25, 0.75]
    """
    amount = _amounts(weights)
    return amount / float(amount.sum())


def jain(influence: ArrayLike) -> float:
    """Jain's index, (Σ x_i)² / (n Σ x_i²): 1 if all are equal (or all zero), 1/n if one client has everything.

    >>> jain([1.0, 1.0, 0.0, 0.0])
    0.5
    """
    amount = _amounts(influence)
    return float(amount.sum() ** 2 / (amount.size * (amount**2).sum()))


def jain_entitled(influence: ArrayLike, entitled: ArrayLike) -> float:
    """Jain's index of x_i / e_i, influence ÷ entitlement: 1 if each client has what it is entitled to.

    Clients that were never entitled to anything are left out; NaN if none was.

    >>> jain_entitled([4.0, 1.0, 1.0], [0.8, 0.2, 0.0]), jain_entitled([1.0, 1.0], [0.5, 0.25])
    (1.0, 0.9)
    """
    due = np.asarray(entitled, dtype=np.float64)
    has_due = due > 0
    return jain(_amounts(influence)[has_due] / due[has_due]) if has_due.any() else nan


def comes_and_goes(entitled: Floats) -> bool:
    """Are clients entitled to different amounts, one of them at least 1 % more or less than the mean?

    >>> comes_and_goes(np.array([1.0, 1.001])), comes_and_goes(np.array([1.0, 0.2]))
    (False, True)
    """
    return bool((np.abs(entitled - entitled.mean()) > _ALIKE * entitled.mean()).any())


def jain_if_any(weights: Floats) -> float:
    """Jain's index; NaN if no client has influence yet, or some have negative influence."""
    return jain(weights) if weights.min() >= 0 and weights.any() else nan


def welfare(influence: ArrayLike) -> float:
    """The paper's welfare objective (section 3.2), Σ_i |x_i − 1/n| of the shares x: lower is better, 0 is fair.

    >>> welfare([1.0, 1.0, 0.0, 0.0])
    1.0
    """
    return float(_deviation(influence).sum())


def largest_deviation(influence: ArrayLike) -> float:
    """The largest distance of a share from 1/n: max_i |x_i − 1/n|.

    >>> largest_deviation([3.0, 1.0, 0.0, 0.0])
    0.5
    """
    return float(_deviation(influence).max())


def lorenz(influence: ArrayLike) -> tuple[Floats, Floats]:
    """The Lorenz curve: the influence share of the least influential k/n of the clients, k = 0 … n.

    >>> population, share = lorenz([3.0, 1.0])
    >>> population.tolist(), share.tolist()
    ([0.0, 0.5, 1.0], [0.0, 0.25, 1.0])
    """
    total = np.concatenate([[0.0], np.cumsum(np.sort(_amounts(influence)))])
    return np.linspace(0.0, 1.0, total.size), total / total[-1]


def gini(influence: ArrayLike) -> float:
    """Gini's coefficient, Σ_k (2k − n − 1) x_(k) / (n Σ x) over ascending x: 0 if all are equal, at most 1 − 1/n.

    It is twice the area between the Lorenz curve and the diagonal.

    >>> gini([1.0, 1.0, 0.0, 0.0])
    0.5
    """
    amount = np.sort(_amounts(influence))
    rank = np.arange(1 - amount.size, amount.size, 2)
    return float(rank @ amount / (amount.size * amount.sum()))


@dataclass(frozen=True, slots=True)
class GroupFairness:
    """What a group of clients sent and got: its shares of updates and influence, and its fair share.

    `fair` is its part of all clients, `entitled` its part of what all clients were entitled to, and `per_presence` its
    influence per time present, relative to the mean over all clients; NaN if it was never present.
    """

    name: str
    clients: int
    update_share: float
    influence: float
    fair: float
    mean_staleness: float
    entitled: float
    per_presence: float


def by_group(
    group_of: NDArray[np.integer],
    groups: Sequence[str],
    updates: NDArray[np.number],
    weights: NDArray[np.number],
    staleness_sum: NDArray[np.number],
    entitled: NDArray[np.number] | None = None,
    presence: NDArray[np.number] | None = None,
) -> list[GroupFairness]:
    """One record per group, from per-client numbers of updates, sums of weights and sums of staleness.

    A group's influence is its share of all weights, its fair share is (its clients)/n, and its mean staleness is over
    its updates. `entitled` and `presence` are what each client was entitled to and how long it was present; without
    them, all clients count the same. A share of nothing is 0.0, because this reports what happened.

    >>> fast, slow = by_group(np.array([0, 0, 1]), ["fast", "slow"], updates=np.array([4, 4, 2]),
    ...                       weights=np.array([1.0, 1.0, 2.0]), staleness_sum=np.array([4, 4, 6]))
    >>> fast.update_share, fast.influence, slow.mean_staleness
    (0.8, 0.5, 3.0)
    """
    member = np.asarray(group_of)
    alike = np.ones(member.size)
    entitled, presence = (alike if each is None else each for each in (entitled, presence))
    shapes = {array.shape for array in (member, updates, weights, staleness_sum, entitled, presence)}
    if shapes != {(member.size,)}:
        raise InputError(f"Groups need one entry per client in every array, not arrays of shapes {sorted(shapes)}.")
    outside = member[(member < 0) | (member >= len(groups))]
    if outside.size:
        raise InputError(f"A client is in group {outside[0]}, but there are {len(groups)} groups.")

    def total(amount: NDArray[np.number] | None = None) -> Floats:
        return np.bincount(member, amount, minlength=len(groups)).astype(np.float64)

    clients, sent, weight = total(), total(updates), total(weights)
    influence, fair, due, present = (
        _ratio(each, each.sum()) for each in (weight, clients, total(entitled), total(presence))
    )
    per_presence = np.divide(influence, present, out=np.full(len(groups), nan), where=present > 0)
    late = _ratio(total(staleness_sum), sent)
    rows = zip(groups, clients, _ratio(sent, sent.sum()), influence, fair, late, due, per_presence, strict=True)
    return [GroupFairness(name, int(size), *map(float, numbers)) for name, size, *numbers in rows]


def _deviation(influence: ArrayLike) -> Floats:
    share = normalised(influence)
    return np.abs(share - 1 / share.size)


def _ratio(part: Floats, whole: Floats | np.float64) -> Floats:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole != 0)


def _amounts(influence: ArrayLike) -> Floats:
    """Influence in units of the largest, so that sums and squares neither overflow nor vanish."""
    amount = np.asarray(influence, dtype=np.float64)
    if amount.ndim != 1 or not amount.size:
        raise InputError(f"Influence must be a list of at least one number, not an array of shape {amount.shape}.")
    bad = ~(np.isfinite(amount) & (amount >= 0))
    if bad.any():
        raise InputError(f"Influence must be finite and at least 0, but client {bad.argmax()} has {amount[bad][0]:g}.")
    largest = amount.max()
    return amount / largest if largest > 0 else np.ones_like(amount)
