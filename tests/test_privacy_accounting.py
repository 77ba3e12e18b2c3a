"""What a client pays, against the closed form in 60 digits, against other accountants, and in the limits."""

import sys
from collections.abc import Callable
from math import exp, inf, log, sqrt

import dp_accounting
import mpmath
import numpy as np
import pytest

from fairlag.errors import InputError
from fairlag.privacy.accounting import allowance, charges, epsilon, epsilons, loss


def closed_form(weights: list[float], noise: float, bound: float, delta: float) -> float:
    """Balle and Wang 2018, theorem 8, for one Gaussian mechanism with sensitivity √Σ α², by bisection."""
    with mpmath.workdps(60):
        sensitivity = mpmath.sqrt(mpmath.fsum(mpmath.mpf(each) ** 2 for each in weights))
        deviation = mpmath.mpf(noise) * mpmath.mpf(bound)
        half, slope = sensitivity / (2 * deviation), deviation / sensitivity
        low, high = mpmath.mpf(0), mpmath.mpf(10_000)
        for _ in range(120):
            middle = (low + high) / 2
            first, second = mpmath.ncdf(half - middle * slope), mpmath.ncdf(-half - middle * slope)
            low, high = (middle, high) if first - mpmath.exp(middle) * second > delta else (low, middle)
        return float(high)


def ours(weights: list[float], noise: float, bound: float, delta: float) -> float:
    return epsilon(loss(weights, noise=noise, bound=bound), delta)


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
@pytest.mark.parametrize("noise", [0.3, 1.0, 8.0])
def test_epsilon_is_the_closed_form_for_equal_and_for_random_weights(noise: float, delta: float) -> None:
    drawn = np.random.default_rng(7).uniform(0, 0.4, 50)
    for weights in ([0.1] * 30, [float(each) for each in drawn]):
        assert ours(weights, noise, 0.4, delta) == pytest.approx(closed_form(weights, noise, 0.4, delta), rel=1e-9)


def test_epsilon_is_the_composition_of_gaussian_events() -> None:
    """dp-accounting's privacy loss distributions compose the versions one by one, and know nothing of √Σ α²."""
    weights = [0.05, 0.3, 0.3, 0.12, 0.4]
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4)
    for weight in weights:
        accountant.compose(dp_accounting.GaussianDpEvent(1.5 * 0.4 / weight))
    assert ours(weights, 1.5, 0.4, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_epsilon_is_smaller_than_what_zero_concentrated_privacy_alone_gives() -> None:
    for rho, larger in ((0.001, 0.52), (0.5, 0.21), (20.0, 0.09)):
        bound = rho + 2 * sqrt(rho * log(1e5))
        assert bound / epsilon(rho, 1e-5) - 1 == pytest.approx(larger, abs=0.005)
        accountant = dp_accounting.rdp.RdpAccountant()
        accountant.compose(dp_accounting.ZCDpEvent(rho))
        assert epsilon(rho, 1e-5) < accountant.get_epsilon(1e-5) < bound


def test_weights_in_one_version_add_up_before_they_are_squared() -> None:
    twice = charges([3, 5, 3], [0.2, 0.2, 0.2], noise=2.0, bound=0.4)
    assert twice[3] == pytest.approx(0.4**2 / (2 * 2.0**2 * 0.4**2)) and twice[3] == pytest.approx(4 * twice[5])
    once = [charges([3], [0.2], noise=2.0, bound=0.4)[3] for _ in range(2)]
    assert sum(once) == pytest.approx(twice[3] / 2)


def test_opposite_weights_in_one_version_do_not_cancel() -> None:
    assert charges([3, 3], [0.2, -0.2], noise=1.0, bound=0.4) == charges([3], [0.4], noise=1.0, bound=0.4)


def test_more_noise_costs_less_and_more_versions_or_weight_cost_more() -> None:
    noises = [ours([0.1] * 10, noise, 0.4, 1e-5) for noise in (0.5, 1.0, 2.0, 4.0)]
    steps = [ours([0.1] * versions, 1.0, 0.4, 1e-5) for versions in (1, 2, 10, 100)]
    weights = [ours([weight] * 10, 1.0, 0.4, 1e-5) for weight in (0.01, 0.1, 0.2, 0.4)]
    assert np.all(np.diff(noises) < 0) and np.all(np.diff(steps) > 0) and np.all(np.diff(weights) > 0)


def test_limits() -> None:
    assert ours([], 1.0, 0.4, 1e-5) == ours([0.0, 0.0], 1.0, 0.4, 1e-5) == ours([0.0], 0.0, 0.4, 1e-5) == 0
    assert ours([0.1], 0.0, 0.4, 1e-5) == inf
    assert epsilon(1e-12, 1e-5) == 0  # (0, δ) already
    assert epsilon(1e9, 1e-5) == pytest.approx(1e9, rel=1e-3)  # ε/ρ → 1


def test_ten_thousand_clients_are_within_their_stated_error() -> None:
    losses = np.exp(np.random.default_rng(2).uniform(log(1e-9), log(1e3), 10_000))
    losses[:3] = 0.0, inf, 1e-15
    found = epsilons(losses, 1e-5)
    assert list(found[:3]) == [0, inf, 0]
    exact = np.array([epsilon(float(each), 1e-5) for each in losses[3:403]])
    assert np.abs(found[3:403] / exact - 1).max() < 1e-5
    order = np.argsort(losses)
    assert np.all(np.diff(found[order][:-1]) >= 0)


def test_few_different_losses_are_exact_and_keep_their_shape() -> None:
    found = epsilons([[0.5, 2.0, 0.5], [0.0, inf, 2.0]], 1e-5)
    half, two = epsilon(0.5, 1e-5), epsilon(2.0, 1e-5)
    assert found.tolist() == [[half, two, half], [0.0, inf, two]]
    assert epsilons([], 1e-5).shape == (0,)


@pytest.mark.parametrize("wanted", [0.01, 1.0, 50.0])
def test_the_allowance_is_the_inverse(wanted: float) -> None:
    assert epsilon(allowance(wanted, 1e-6), 1e-6) == pytest.approx(wanted, rel=1e-9)


def test_a_noise_that_is_found_from_epsilon_gives_epsilon() -> None:
    weights = [0.1, 0.3, 0.2]
    noise = sqrt(loss(weights, noise=1.0, bound=0.3) / allowance(2.0, 1e-5))
    assert ours(weights, noise, 0.3, 1e-5) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: epsilon(1.0, 0.0), "delta is 0.0, it must be above 0 and below 1"),
        (lambda: epsilon(1.0, exp(1)), f"delta is {exp(1)}, it must be above 0 and below 1"),
        (lambda: epsilon(-1.0, 0.1), "the loss is -1.0, it must be a number of at least 0"),
        (lambda: epsilons([1.0, -1.0], 0.1), "the loss is -1.0, it must be a number of at least 0"),
        (lambda: allowance(0.0, 0.1), "epsilon is 0.0, it must be a positive number"),
        (lambda: loss([0.1], noise=-1.0, bound=0.4), "noise is -1.0, it must be a number of at least 0"),
        (lambda: loss([0.1], noise=inf, bound=0.4), "noise is inf, it must be a number of at least 0"),
        (
            lambda: charges([1], [0.1], noise=1.0, bound=0.0),
            "the largest weight of a client is 0.0, it must be a positive number",
        ),
    ],
)
def test_bad_numbers_get_one_sentence(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        call()
    assert str(refused.value) == sentence


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(InputError, match=r"^computing ε needs the extra `privacy`: pip install 'fairlag\[privacy\]'$"):
        epsilon(1.0, 1e-5)
