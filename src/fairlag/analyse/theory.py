"""Predictions in closed form; nothing is simulated here.

A rate is 1 / (mean task duration), a buffer is the number b of updates per aggregation, and the paper is
FedStaleWeight.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairlag.core.types import Floats
from fairlag.errors import InputError


def expected_staleness(rates: ArrayLike, buffer: float) -> Floats:
    """Mean staleness of each client's updates if all clients train all the time (section 4.2).

    E[τ_i] = (Σ_j r_j / r_i − 1) / b

    >>> expected_staleness([1.0, 1.0, 0.5], buffer=2).tolist()
    [0.75, 0.75, 2.0]
    """
    _at_least_one("buffer", buffer)
    rate = _positive("rates", rates)
    return (float(rate.sum()) / rate - 1) / buffer


def expected_share(rates: ArrayLike) -> Floats:
    """Share of all updates that comes from each client (section 3.2): p_i = r_i / Σ_j r_j.

    >>> expected_share([1.0, 1.0, 0.5]).tolist()
    [0.4, 0.4, 0.2]
    """
    rate = _positive("rates", rates)
    return rate / float(rate.sum())


def share_from_staleness(staleness: ArrayLike, buffer: int) -> Floats:
    """Each client's share of all updates, from its mean staleness (section 4.2): p_i = 1 / (τ_i b + 1).

    >>> share_from_staleness([0.75, 0.75, 2.0], buffer=2).tolist()
    [0.4, 0.4, 0.2]
    """
    return 1 / _claim(staleness, buffer)


def fair_weight(staleness: ArrayLike, buffer: int, clients: int) -> Floats:
    """The weight that gives every client the influence 1/n (section 4.2): α_i = (τ_i b + 1) / n = 1 / (n p_i).

    >>> fair_weight([1.0, 1.0, 3.5], buffer=2, clients=4).tolist()
    [0.75, 0.75, 2.0]
    """
    _at_least_one("clients", clients)
    return _claim(staleness, buffer) / clients


def largest_weight(buffer: int, staleness: float) -> float:
    """Largest normalised weight up to a staleness τ, of one stale update among fresh ones: (b τ + 1) / (b (τ + 1)).

    >>> largest_weight(buffer=2, staleness=1.0)
    0.75
    """
    return float(_claim(staleness, buffer)) / (buffer * (staleness + 1))


def smallest_weight(buffer: int, staleness: float) -> float:
    """Smallest normalised weight up to a staleness τ, of one fresh update among stale ones: 1 / ((b − 1)(b τ + 1) + 1).

    >>> smallest_weight(buffer=2, staleness=1.0)
    0.25
    """
    return 1 / ((buffer - 1) * float(_claim(staleness, buffer)) + 1)


def largest_deviation(buffer: int, staleness: float) -> float:
    """Largest squared distance of a normalised weight from 1/b, the paper's U(τ) (its equation "umax").

    U(τ) = max{(1/b − largest weight)², (1/b − smallest weight)²} = ((b − 1) τ / (b (τ + 1)))², because the first is
    never smaller than the second.

    >>> largest_deviation(buffer=2, staleness=1.0)
    0.0625
    """
    bounds = largest_weight(buffer, staleness), smallest_weight(buffer, staleness)
    return max((1 / buffer - bound) ** 2 for bound in bounds)


def convergence_bound(
    *,
    gap: float,
    server_lr: float,
    local_lrs: Sequence[float],
    aggregations: int,
    buffer: int,
    max_staleness: float,
    smoothness: float,
    local_variance: float,
    global_variance: float,
    gradient: float,
) -> float:
    """Theorem 1's upper bound on the mean of ‖∇f(w_t)‖² over T aggregations.

    2 gap / (η_g α T) + 12 β Q L² (σ_ℓ² + σ_g² + G) (1 + (η_g τ (bτ + 1)/(τ + 1))²) + 4 b² U(τ) G, with α = Σ_q η_q,
    β = Σ_q η_q², gap = f(w_0) − f(w*) and G (``gradient``) an upper bound on every client's ‖∇F_i‖². It needs
    η_g η_q Q ≤ 1/L. The bound is vacuous if 4 b² U(τ) ≥ 1, as for every b ≥ 2 with τ ≥ 1, because ‖∇f‖² ≤ G is
    assumed.

    >>> convergence_bound(gap=1.0, server_lr=1.0, local_lrs=[0.5], aggregations=8, buffer=1, max_staleness=0.0,
    ...                   smoothness=1.0, local_variance=0.0, global_variance=0.0, gradient=0.25)
    1.25
    """
    _at_least_one("aggregations", aggregations)
    local = _positive("local_lrs", local_lrs)
    _positive("server_lr, smoothness", [server_lr, smoothness])
    _check_step(server_lr, local, 1 / smoothness)
    _not_negative("gap, local_variance, global_variance, gradient", [gap, local_variance, global_variance, gradient])
    drift = 12 * float((local**2).sum()) * local.size * smoothness**2 * (local_variance + global_variance + gradient)
    lag = server_lr * max_staleness * buffer * largest_weight(buffer, max_staleness)
    start = 2 * gap / (server_lr * float(local.sum()) * aggregations)
    return start + drift * (1 + lag**2) + 4 * buffer**2 * largest_deviation(buffer, max_staleness) * gradient


def utility(rate: ArrayLike, *, buffer: int, others: float, slowness: float, third_parties: float) -> Floats:
    """The influence that a client gets at a rate r, given the buffer and the others' rates (section 4.2.1).

    u(r) = r / ((b + D) r + A + C r²) with A (``others``) the other clients' total rate, C (``slowness``) = Σ 1/r_j
    over the buffer's other members j and D (``third_parties``) = Σ_j Σ_k r_k/r_j over the clients k that are
    neither j nor this one. Its slope has the sign of A − C r², whatever the unit of time, so it falls beyond √(A/C).

    >>> utility([0.5, 1.0, 2.0], buffer=2, others=1.0, slowness=1.0, third_parties=0.0).tolist()
    [0.2222222222222222, 0.25, 0.2222222222222222]
    """
    speed = _not_negative("rate", rate)
    return speed / ((buffer + third_parties) * speed + others + slowness * speed**2)


def best_rate(others: float, slowness: float) -> float:
    """The rate at which :func:`utility` is largest: r* = √(A/C), which is infinite for a buffer of one (C = 0).

    >>> best_rate(others=4.0, slowness=1.0)
    2.0
    """
    return sqrt(others / slowness) if slowness > 0 else inf


@dataclass(frozen=True, slots=True)
class Incentive:
    """What tempts a client to slow down: A, C and D of :func:`utility`, the best rate, and the factor to slow down."""

    others: float
    slowness: float
    third_parties: float
    best_rate: float
    throttle: float


def incentive(rates: ArrayLike, client: int, buffer: int) -> Incentive:
    """The factor by which FedStaleWeight tempts a client to slow down, in an average buffer: max(1, r_i / r*).

    The buffer's other b − 1 members are drawn in proportion to their rates, so E[1/r_j] = Σ_j (r_j/A)(1/r_j) =
    (n − 1)/A. Hence C = (b − 1)(n − 1)/A, D = A C − (b − 1) = (b − 1)(n − 2) and r* = A / √((b − 1)(n − 1)): a client
    gains by slowing down if it is faster than √((n − 1)/(b − 1)) times the mean of the others.

    >>> incentive([8.0, 1.0, 1.0, 1.0, 1.0], client=0, buffer=2)
    Incentive(others=4.0, slowness=1.0, third_parties=3.0, best_rate=2.0, throttle=4.0)
    """
    _at_least_one("buffer", buffer)
    rate = _positive("rates", rates)
    if rate.size < 2 or not 0 <= client < rate.size:
        raise InputError(f"An incentive needs one of at least two clients, not client {client} of {rate.size}.")
    others = float(np.delete(rate, client).sum())
    slowness = (buffer - 1) * (rate.size - 1) / others
    best = best_rate(others, slowness)
    third_parties = float((buffer - 1) * (rate.size - 2))
    return Incentive(others, slowness, third_parties, best, max(1.0, float(rate[client]) / best))


def concurrent_rates(durations: ArrayLike, concurrency: int) -> Floats:
    """Each client's rate if m of n train at once and a free slot goes to a random idle client, as in FedBuff.

    The running set S is replaced by S − j + i at the rate 1/(T_j (n − m + 1)), so P(S) ∝ Π_{k∈S} T_k balances every
    such step with its reverse. This holds for every distribution of the durations with means T. The rate is
    P(i ∈ S)/T_i = e_{m−1}(T without i) / e_m(T) in elementary symmetric polynomials. The cost is
    n · (distinct durations). Eleven digits are correct if the slowest client is a million times slower than the
    fastest.

    >>> concurrent_rates([1.0, 1.0, 2.0], concurrency=2).round(12).tolist()
    [0.6, 0.6, 0.4]
    """
    mean = _positive("durations", durations)
    _at_least_one("concurrency", concurrency)
    if concurrency >= mean.size:
        return 1 / mean
    distinct, member, count = np.unique(mean, return_inverse=True, return_counts=True)
    tilt, one_less, _ = _leave_one_out(distinct, count, concurrency)
    rate = one_less / (1 + tilt * distinct)
    busy = float(count @ (rate * distinct))
    return (rate * (concurrency / busy))[member]


def concurrent_staleness(durations: ArrayLike, concurrency: int, buffer: float) -> Floats:
    """Mean staleness of each client's updates under the selection of :func:`concurrent_rates`.

    E[τ_i] = T_i Λ / b, with Λ = (n − m + 1) e_{m−2}/e_{m−1} (of T without i), the total rate of the other n − 1
    clients in the other m − 1 slots: a client that starts finds them in their own stationary distribution.

    >>> concurrent_staleness([1.0, 1.0, 2.0], concurrency=2, buffer=2).round(12).tolist()
    [0.333333333333, 0.333333333333, 1.0]
    """
    mean = _positive("durations", durations)
    _at_least_one("concurrency", concurrency)
    _at_least_one("buffer", buffer)
    if concurrency >= mean.size:
        return expected_staleness(1 / mean, buffer)
    if concurrency == 1:
        return np.zeros(mean.size)
    distinct, member, count = np.unique(mean, return_inverse=True, return_counts=True)
    tilt, one_less, two_less = _leave_one_out(distinct, count, concurrency)
    others = (mean.size - concurrency + 1) * tilt * two_less / one_less
    return (distinct * others / buffer)[member]


def ticking_staleness(ticks: ArrayLike) -> Floats:
    """Mean staleness if updates are merged at the ticks of a clock and clients wait for the next tick, as in FedFix.

    A task that began at a tick is merged K = ⌈D/Δt⌉ ticks later, so clients do not depend on one another. At each tick,
    a client with the mean μ_j = E[K_j] is merged with the probability 1/μ_j. A tick without updates makes no version:
    E[τ_i] = (μ_i − 1) (1 − Π_{j≠i} (1 − 1/μ_j)).

    >>> ticking_staleness([1.0, 2.5]).tolist(), ticking_staleness([2.0, 2.0, 2.0]).tolist()
    ([0.0, 1.5], [0.75, 0.75, 0.75])
    """
    mean = _positive("ticks", ticks)
    if (mean < 1).any():
        raise InputError(f"ticks must be at least 1, not {mean.min():g}.")
    with np.errstate(divide="ignore"):
        silent = np.log1p(-1 / mean)  # −∞ for clients that are merged at every tick
    always = np.isinf(silent)
    rest = np.where(always, 0.0, silent)
    others = rest.sum() - rest
    no_update = np.where(always.sum() - always > 0, 0.0, np.exp(others))
    return np.asarray((mean - 1) * (1 - no_update))


def cap_needed(shares: ArrayLike, buffer: int, importance: ArrayLike | None = None) -> float:
    """The smallest cap on a version's total weight with which every client can have its share of all influence.

    A set A of clients that sends the share p_A of all updates is in a buffer with the probability 1 − (1 − p_A)^b, and
    can then spend at most the cap c. It must be able to spend what it is owed: c ≥ max_A q_A / (1 − (1 − p_A)^b), with
    q_A its share of all importance. The worst A are always the k clients with the smallest p_i / q_i, for some k. One
    rare client needs about 1/(n b p_i); all clients together need 1.

    >>> round(cap_needed(expected_share([1 / 1.5] * 10 + [1 / 10] * 5), buffer=5), 2)
    1.1
    """
    _at_least_one("buffer", buffer)
    share = _positive("shares", shares)
    owed = np.ones(share.size) if importance is None else _positive("importance", importance)
    if owed.size != share.size:
        raise InputError(f"importance must be one number per client: {share.size} of them, not {owed.size}.")
    order = np.argsort(share / owed)[:-1]  # all clients together are in every buffer, and need 1
    part, total = np.cumsum(share[order]) / share.sum(), np.cumsum(owed[order]) / owed.sum()
    return float(np.max(total / -np.expm1(buffer * np.log1p(-part)), initial=1.0))


def _leave_one_out(durations: Floats, counts: NDArray[np.intp], running: int) -> tuple[float, Floats, Floats]:
    """A tilt z, and per client the probabilities that m − 1 and m − 2 of the others run, if each runs independently.

    If client i runs with odds z T_i, exactly k clients run with a probability proportional to z^k e_k(T). The z that
    makes m the mean number keeps these probabilities from being tiny, so a Fourier series gives them without
    cancellation. Its number of points is odd, because half a turn makes the factor of a client with even odds 0, and
    that could not be divided out again.
    """
    clients = int(counts.sum())
    tilt = _tilt(durations, counts, running)
    likely = tilt * durations / (1 + tilt * durations)
    points = clients + 1 + clients % 2
    angle = np.arange(points // 2 + 1) * (2 * np.pi / points)
    turn = np.expm1(1j * angle)
    log_spectrum = -1j * (running - 1) * angle
    for chance, count in zip(likely, counts, strict=True):
        log_spectrum += count * np.log1p(chance * turn)
    # A real sequence has a symmetric spectrum: all points but the first stand for two.
    weight = np.where(angle > 0, 2.0, 1.0) / points
    one_less, two_less = np.empty(likely.size), np.empty(likely.size)
    for index, chance in enumerate(likely):
        spectrum = np.exp(log_spectrum - np.log1p(chance * turn))
        one_less[index] = weight @ spectrum.real
        two_less[index] = weight @ (spectrum * (1 + turn)).real
    return tilt, one_less, two_less


def _tilt(durations: Floats, counts: NDArray[np.intp], running: int) -> float:
    """The z with Σ_i z T_i / (1 + z T_i) = m, by bisection of log z."""
    odds = running / (int(counts.sum()) - running)
    low, high = np.log(odds / durations.max()), np.log(odds / durations.min())
    for _ in range(60):
        middle = (low + high) / 2
        product = np.exp(middle) * durations
        low, high = (middle, high) if counts @ (product / (1 + product)) < running else (low, middle)
    return float(np.exp((low + high) / 2))


def _check_step(server_lr: float, local: Floats, limit: float) -> None:
    step = server_lr * local.max() * local.size
    # A step that was chosen to meet the condition with equality must not fail by a rounding error.
    if step > limit * (1 + 1e-12):
        raise InputError(
            f"Theorem 1 needs server_lr · local_lr · local steps ≤ 1/smoothness = {limit:g}, "
            f"not {server_lr:g} · {local.max():g} · {local.size} = {step:g}."
        )


def _claim(staleness: ArrayLike, buffer: int) -> Floats:
    """The number of updates that the server receives per update of a client: τ b + 1."""
    _at_least_one("buffer", buffer)
    return _not_negative("staleness", staleness) * buffer + 1


def _at_least_one(name: str, value: float) -> None:
    if value < 1:
        raise InputError(f"{name} must be at least 1, not {value}.")


def _positive(name: str, values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise InputError(f"{name} must be a list of at least one number, not an array of shape {array.shape}.")
    return _checked(name, array, array > 0, "positive")


def _not_negative(name: str, values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return _checked(name, array, array >= 0, "at least 0")


def _checked(name: str, array: Floats, good: NDArray[np.bool_], wanted: str) -> Floats:
    good = good & np.isfinite(array)
    if not good.all():
        raise InputError(f"{name} must be finite and {wanted}, not {array[~good].flat[0]:g}.")
    return array
