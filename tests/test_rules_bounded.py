"""Bounds on one client's share of a version, checked against linear programmes and by search."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairlag.core.accounts import Entitlement
from fairlag.core.buffer import Buffer
from fairlag.core.ledger import Ledger
from fairlag.core.types import Dispatch, Report
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules import weigh
from fairlag.rules.bounded import bounded, largest_total, largest_weight, sharing, spending

WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(0.001, 100.0)), min_size=1, max_size=8).map(np.array)
BOUNDS = st.one_of(st.floats(0.05, 1.0), st.integers(1, 8).map(lambda clients: 1 / clients))


def a_buffer(clients: list[int]) -> Buffer:
    tasks = tuple(Dispatch(number, client, 0, 0, 0.0) for number, client in enumerate(clients))
    return Buffer(tasks, [0] * len(clients), [Report()] * len(clients))


def fixed(weights: list[float]) -> weigh.Weigh:
    return lambda buffer, view: np.array(weights)


def possible(weights: np.ndarray, bound: float) -> bool:
    return bool(np.count_nonzero(weights) * bound >= 1 - 1e-9)


@given(WEIGHTS.filter(np.any), BOUNDS)
def test_sharing_keeps_the_total_and_the_order(weights: np.ndarray, bound: float) -> None:
    found = sharing(weights, bound)
    if not possible(weights, bound):
        assert not found.any()
        return
    assert found.sum() == pytest.approx(weights.sum())
    assert found.max() <= bound * weights.sum() * (1 + 1e-9)
    uncut = (weights > 0) & (found < bound * weights.sum() * (1 - 1e-6))
    factors = found[uncut] / weights[uncut]
    # Those below the bound gain in proportion; those at the bound gain less than that.
    assert np.ptp(factors) <= 1e-9 * factors.max() if uncut.any() else True
    if uncut.any():
        capped = (weights > 0) & ~uncut
        assert (found[capped] <= weights[capped] * factors[0] * (1 + 1e-6)).all()


@given(WEIGHTS.filter(np.any), BOUNDS)
def test_sharing_is_as_near_in_proportion_as_a_search_finds(weights: np.ndarray, bound: float) -> None:
    """The factor λ by bisection: Σ min(c, λ·w) = W."""
    found, whole = sharing(weights, bound), weights.sum()
    if not possible(weights, bound):
        return
    low, high = 1.0, 1e9
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if np.minimum(bound * whole, middle * weights).sum() < whole else (low, middle)
    assert found == pytest.approx(np.minimum(bound * whole, high * weights), rel=1e-6, abs=1e-6 * whole)


@given(WEIGHTS, BOUNDS, st.one_of(st.just(math.inf), st.floats(0.01, 50.0)))
def test_spending_is_the_optimum_of_a_linear_programme(weights: np.ndarray, bound: float, most: float) -> None:
    """Maximise Σ x with 0 ≤ x ≤ min(w, most) and x_i ≤ bound · Σ x."""
    found = spending(weights, bound, most)
    n = len(weights)
    best = linprog(
        -np.ones(n), np.eye(n) - bound * np.ones((n, n)), np.zeros(n), bounds=[(0, min(w, most)) for w in weights]
    )
    assert best.status == 0
    scale = weights.max() or 1.0
    assert found == pytest.approx(best.x, abs=1e-6 * scale)
    assert (found <= np.minimum(weights, most)).all()
    assert found.max() <= bound * found.sum() * (1 + 1e-8)


def test_closed_forms() -> None:
    # One client with almost everything, k others that share the rest: the first gets exactly its bound.
    assert sharing(np.array([96.0, 1.0, 3.0]), 0.6).tolist() == pytest.approx([60.0, 10.0, 30.0])
    # c = bound · rest / (1 − bound) = 0.6 · 4 / 0.4 = 6
    assert spending(np.array([96.0, 1.0, 3.0]), 0.6).tolist() == pytest.approx([6.0, 1.0, 3.0])
    assert spending(np.array([5.0, 4.0, 3.0, 2.0, 1.0]), 0.2).tolist() == pytest.approx([1.0] * 5)
    assert sharing(np.array([5.0, 4.0, 3.0, 2.0, 1.0]), 0.2).tolist() == pytest.approx([3.0] * 5)


def test_a_bound_counts_all_updates_of_a_client() -> None:
    buffer, view = a_buffer([7, 7, 8]), View(Ledger(clients=9))
    rule = bounded(fixed([0.2, 0.4, 0.4]), 0.5)
    assert rule(buffer, view).tolist() == pytest.approx([0.5 / 3, 1.0 / 3, 0.5])


def test_weights_within_the_bound_stay_the_same_bytes() -> None:
    buffer, view = a_buffer([0, 1, 2]), View(Ledger(clients=3))
    weights = [0.1, 0.3, 0.6]
    assert bounded(fixed(weights), 0.6)(buffer, view).tolist() == weights


def test_what_accounts_do_not_spend_is_never_more() -> None:
    rule = bounded(weigh.by_balance(), 0.5)
    buffer, view = weigh.example(account=Entitlement())
    assert rule(buffer, view).tolist() == [0.5, 0.5]
    assert bounded(weigh.by_balance(), 0.5, most=0.2)(buffer, view).tolist() == [0.2, 0.2]


@pytest.mark.parametrize("bound", [0.0, -0.5, 1.01, math.nan])
def test_a_bound_outside_its_range_is_refused(bound: float) -> None:
    with pytest.raises(StrategyError, match="above 0 and at most 1"):
        bounded(weigh.uniform, bound)


def test_negative_weights_are_refused() -> None:
    with pytest.raises(StrategyError, match="weights of at least 0"):
        bounded(fixed([2.0, -1.0]), 0.5)(a_buffer([0, 1]), View(Ledger(clients=2)))


@pytest.mark.parametrize(
    ("rule", "updates", "total", "single"),
    [
        (weigh.uniform, None, 1.0, 1.0),
        (weigh.normalised(weigh.mean_gap), None, 1.0, 1.0),
        (weigh.polynomial(0.5), None, math.inf, 1.0),
        (weigh.polynomial(0.5), 10, 10.0, 1.0),
        (weigh.times(weigh.uniform, weigh.polynomial(0.5)), None, 1.0, 1.0),
        (weigh.times(weigh.constant(0.6), weigh.polynomial(0.5)), 1, 0.6, 0.6),
        (weigh.divided(weigh.hinge(1, 1), 4), 4, 1.0, 0.25),
        (weigh.capped(weigh.at_most(weigh.by_balance(), 0.4), 2.0), 5, 2.0, 0.4),
        (weigh.capped(weigh.by_balance(), None), 5, math.inf, math.inf),
        (weigh.mean_gap, 5, math.inf, math.inf),
        (bounded(weigh.capped(weigh.mean_gap, 2.0), 0.5), 5, 2.0, 2.0),
    ],
)
def test_largest_totals(rule: weigh.Weigh, updates: int | None, total: float, single: float) -> None:
    assert largest_total(rule, updates) == total
    assert largest_weight(rule, updates) == single


def test_a_function_of_ones_own_has_no_known_bound() -> None:
    assert largest_total(fixed([1.0]), 1) == math.inf
    assert largest_total(weigh.capped(fixed([1.0]), 1.0), 1) == 1.0
