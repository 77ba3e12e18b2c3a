"""Statistics are mixed as values: never outside of what the clients and the server have, whatever the weights."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fairlag.core.types import Floats
from fairlag.core.vector import Matrix, Vector
from fairlag.rules import mixes_statistics
from fairlag.rules.mix import mixed
from fairlag.rules.reduce import Reduce, trimmed_mean, weighted_sum
from tests.support.scenes import vec


@mixes_statistics
def wild(weights: Floats, updates: Matrix) -> Vector:
    """One's own that says it averages, and does not."""
    total: Vector = 3 * updates.sum(axis=0)
    return total


REDUCTIONS: list[Reduce] = [weighted_sum, trimmed_mean(0.25), wild]
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
CASES = st.tuples(st.integers(1, 6), st.integers(1, 3)).flatmap(
    lambda shape: st.tuples(
        arrays.arrays(np.float64, shape[0], elements=st.floats(allow_nan=False, allow_infinity=False)),
        arrays.arrays(np.float32, shape, elements=FLOATS),
        arrays.arrays(np.float32, shape[1], elements=FLOATS),
    )
)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@given(CASES)
def test_the_mixture_is_never_outside_of_what_clients_and_server_have(
    reduction: Reduce, case: tuple[Floats, Matrix, Vector]
) -> None:
    weights, values, now = case
    with np.errstate(over="ignore", invalid="ignore"):  # as the server has it
        found = mixed(reduction, weights, values, now)
        total = np.maximum(weights, 0).sum()
    assert found.dtype == np.float32 and found.shape == now.shape
    held = np.vstack([now, values])
    assert (held.min(axis=0) <= found).all() and (found <= held.max(axis=0)).all()
    if total >= 1:
        assert (values.min(axis=0) <= found).all() and (found <= values.max(axis=0)).all()
    if not total:
        assert found.tobytes() == now.tobytes()


@given(CASES)
def test_what_all_have_stays_to_the_bit(case: tuple[Floats, Matrix, Vector]) -> None:
    weights, values, now = case
    same = np.repeat(now[None], len(values), axis=0)
    with np.errstate(over="ignore"):
        assert np.array_equal(mixed(weighted_sum, weights, same, now), now)


def plainly(weights: list[float], values: list[float], now: float) -> Fraction:
    """The formula of docs/algorithms.md, exactly, one number at a time."""
    positive = [Fraction(max(weight, 0)) for weight in weights]
    total = sum(positive, Fraction(0))
    if not total:
        return Fraction(now)
    mean = sum(a * Fraction(x) for a, x in zip(positive, values, strict=True)) / total
    part = min(Fraction(1), total)
    return (1 - part) * Fraction(now) + part * mean


@given(
    st.lists(st.tuples(st.floats(-2, 2), st.floats(-100, 100, width=32)), min_size=1, max_size=8),
    st.floats(-100, 100, width=32),
)
def test_it_is_the_formula(rows: list[tuple[float, float]], now: float) -> None:
    weights, values = map(list, zip(*rows, strict=True))
    found = mixed(weighted_sum, np.array(weights), vec(*values)[:, None], vec(now)).item()
    assert found == pytest.approx(float(plainly(weights, values, now)), rel=1e-5, abs=1e-4)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([1.0, 0.0], 2.0),  # FedAvg of one: what the client has
        ([0.25, 0.0], 8.0),  # FedAsync: (1 − α) · 10 + α · 2
        ([0.5, 0.5], 4.0),
        ([30.0, 10.0], 3.0),  # asynchronous FedAvg's weights may add up to more than one
        ([-5.0, 0.5], 8.0),  # a negative weight pushes away no statistic
        ([-1.0, -1.0], 10.0),
        ([1e308, 1e308], 4.0),  # and their sum may overflow
    ],
)
def test_scripted(weights: list[float], expected: float) -> None:
    with np.errstate(over="ignore"):
        assert mixed(weighted_sum, np.array(weights), np.array([[2], [6]], np.float32), vec(10)).tolist() == [expected]


def test_a_trimmed_mean_does_not_listen_to_a_wild_statistic() -> None:
    values = np.array([[1], [2], [4], [3e38]], np.float32)
    assert mixed(trimmed_mean(0.25), np.full(4, 0.25), values, vec(7)).tolist() == [3.0]
