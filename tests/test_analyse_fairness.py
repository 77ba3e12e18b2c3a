"""Fairness numbers against worked examples, and what must hold for any influence."""

from collections.abc import Callable
from math import isnan, nan
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.analyse import fairness, theory
from fairlag.errors import InputError

PAPER = theory.expected_share(1 / np.repeat([1.5, 10.0], [10, 5]))

influences = st.lists(st.floats(0, 1e300), min_size=1, max_size=40)
indices = pytest.mark.parametrize(
    "index", [fairness.jain, fairness.welfare, fairness.largest_deviation, fairness.gini, fairness.normalised]
)


def almost(value: float) -> Any:
    return pytest.approx(value, nan_ok=True)


def test_the_papers_fleet_without_reweighting() -> None:
    fast, slow = 20 / 215, 3 / 215
    assert fairness.jain(PAPER) == pytest.approx(1 / (15 * (10 * fast**2 + 5 * slow**2)))
    assert fairness.welfare(PAPER) == pytest.approx(2 * 5 * (1 / 15 - slow))
    assert fairness.largest_deviation(PAPER) == pytest.approx(1 / 15 - slow)
    assert fairness.gini(PAPER) == pytest.approx(1 / 3 - 5 * slow)


def test_worked_example() -> None:
    influence = [1.0, 0.0, 2.0, 1.0]
    assert fairness.normalised(influence).tolist() == [0.25, 0.0, 0.5, 0.25]
    assert fairness.jain(influence) == 16 / 24
    assert fairness.welfare(influence) == 0.5
    assert fairness.largest_deviation(influence) == 0.25
    assert fairness.gini(influence) == 0.375
    population, share = fairness.lorenz(influence)
    assert population.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert share.tolist() == [0.0, 0.0, 0.25, 0.5, 1.0]


@pytest.mark.parametrize("amount", [0.0, 5e-324, 0.1, 1e308])
def test_equal_influence_is_even_also_when_there_is_none(amount: float) -> None:
    influence = [amount] * 7
    assert fairness.normalised(influence).tolist() == [1 / 7] * 7
    assert fairness.jain(influence) == 1.0
    assert fairness.welfare(influence) == fairness.largest_deviation(influence) == fairness.gini(influence) == 0.0
    population, share = fairness.lorenz(influence)
    assert share == pytest.approx(population)


def test_one_client_with_everything() -> None:
    influence = [0.0, 0.0, 0.0, 3.0]
    assert fairness.jain(influence) == 0.25
    assert fairness.welfare(influence) == 1.5
    assert fairness.largest_deviation(influence) == fairness.gini(influence) == 0.75


@given(influences)
def test_ranges(influence: list[float]) -> None:
    n = len(influence)
    assert 1 / n - 1e-12 <= fairness.jain(influence) <= 1 + 1e-12
    assert -1e-12 <= fairness.gini(influence) <= 1 - 1 / n + 1e-12
    assert 0 <= fairness.welfare(influence) <= 2 * (1 - 1 / n) + 1e-12
    assert fairness.largest_deviation(influence) <= fairness.welfare(influence)
    assert fairness.normalised(influence).sum() == pytest.approx(1)


@given(influences)
def test_lorenz_rises_convexly_from_corner_to_corner(influence: list[float]) -> None:
    population, share = fairness.lorenz(influence)
    assert (population[0], share[0], population[-1], share[-1]) == (0.0, 0.0, 1.0, 1.0)
    rise = np.diff(share)
    assert (rise >= 0).all() and (np.diff(rise) >= -1e-12).all()
    area = ((share[1:] + share[:-1]) / 2 * np.diff(population)).sum()
    assert fairness.gini(influence) == pytest.approx(1 - 2 * area, abs=1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(1e-6, 1e6), st.randoms())
def test_neither_unit_nor_order_matters(influence: list[float], unit: float, random: Random) -> None:
    other = [unit * amount for amount in influence]
    random.shuffle(other)
    for index in (fairness.jain, fairness.welfare, fairness.largest_deviation, fairness.gini):
        assert index(other) == pytest.approx(index(influence), abs=1e-9)


@indices
@pytest.mark.parametrize(
    ("influence", "message"),
    [
        ([], r"at least one number, not an array of shape \(0,\)"),
        ([[1.0]], r"not an array of shape \(1, 1\)"),
        ([1.0, -2.0], "client 1 has -2"),
        ([float("nan"), 1.0], "client 0 has nan"),
    ],
)
def test_refusals(index: Callable[[object], object], influence: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        index(influence)


def test_groups_of_the_papers_fleet() -> None:
    group_of = np.repeat([0, 1], [10, 5])
    updates = np.repeat([20, 3], [10, 5])
    fast, slow = fairness.by_group(group_of, ["fast", "slow"], updates, updates * 0.25, updates * 1.5)
    assert fast == fairness.GroupFairness("fast", 10, 200 / 215, 200 / 215, 10 / 15, 1.5, 10 / 15, almost(300 / 215))
    assert slow == fairness.GroupFairness("slow", 5, 15 / 215, 15 / 215, 5 / 15, 1.5, 5 / 15, almost(45 / 215))


def test_groups_mix_clients_in_any_order() -> None:
    records = fairness.by_group(
        np.array([1, 0, 1]), ["a", "b"], np.array([1, 6, 3]), np.array([0.5, 0.5, 1.0]), np.array([4, 6, 4])
    )
    assert records == [
        fairness.GroupFairness("a", 1, 0.6, 0.25, 1 / 3, 1.0, 1 / 3, 0.75),
        fairness.GroupFairness("b", 2, 0.4, 0.75, 2 / 3, 2.0, 2 / 3, 1.125),
    ]


def test_nothing_happened_yet_and_a_group_without_clients() -> None:
    none = np.zeros(2)
    full, empty = fairness.by_group(np.array([0, 0]), ["full", "empty"], none, none, none)
    assert full == fairness.GroupFairness("full", 2, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0)
    assert empty == fairness.GroupFairness("empty", 0, 0.0, 0.0, 0.0, 0.0, 0.0, almost(nan))
    nobody = np.array([], dtype=int)
    assert fairness.by_group(nobody, ["only"], nobody, nobody, nobody) == [
        fairness.GroupFairness("only", 0, 0.0, 0.0, 0.0, 0.0, 0.0, almost(nan))
    ]


def test_groups_that_come_and_go() -> None:
    """The second group was there for a quarter of the time, and entitled to a third of what the first was."""
    ones = np.ones(4)
    always, seldom = fairness.by_group(
        np.array([0, 0, 1, 1]), ["always", "seldom"], ones, ones, ones, np.array([3, 3, 1, 1]), np.array([9, 9, 3, 3])
    )
    assert (always.fair, always.entitled, always.per_presence) == (0.5, 0.75, almost(2 / 3))
    assert (seldom.fair, seldom.entitled, seldom.per_presence) == (0.5, 0.25, 2.0)


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=10), st.floats(0.1, 10))
def test_jain_of_entitlement_is_that_of_the_ratios(clients: list[tuple[float, float]], unit: float) -> None:
    influence, entitled = np.array(clients).T
    assert fairness.jain_entitled(unit * entitled, entitled) == almost(1)
    assert fairness.jain_entitled(influence, np.full(len(clients), unit)) == almost(fairness.jain(influence))
    ratios = influence / entitled
    assert fairness.jain_entitled(influence, entitled) == almost(ratios.sum() ** 2 / (len(ratios) * (ratios**2).sum()))


def test_who_was_never_entitled_is_left_out_of_the_index() -> None:
    assert fairness.jain_entitled([1.0, 2.0, 7.0], [0.1, 0.2, 0.0]) == almost(1)
    assert isnan(fairness.jain_entitled([1.0, 2.0], [0.0, 0.0]))


def test_groups_refuse_arrays_that_do_not_match() -> None:
    three, two = np.array([0, 1, 0]), np.array([1.0, 1.0])
    with pytest.raises(InputError, match=r"arrays of shapes \[\(2,\), \(3,\)\]"):
        fairness.by_group(three, ["a", "b"], three, two, three)
    with pytest.raises(InputError, match="in group 1, but there are 1 groups"):
        fairness.by_group(three, ["a"], three, three, three)
