"""Fixed-point numbers: no overflow, and the stated error. Python's integers and fractions are the second opinion."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fairlag.core.vector import Vector
from fairlag.errors import InputError
from fairlag.privacy.fixed import CHUNK, FRACTION, RANGE, WHOLE, Words, mean, quantise, weighted_sum, whole_weights

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
updates = st.integers(1, 6).flatmap(
    lambda count: st.lists(arrays(np.float32, 5, elements=floats), min_size=count, max_size=count)
)
positive = st.floats(0, 1e308, allow_nan=False)


def integers(words: Words) -> list[int]:
    return [int(word) for word in words.view(np.int64)]


def cut(value: float) -> Fraction:
    return max(min(Fraction(float(value)), Fraction(RANGE)), Fraction(-RANGE))


@given(arrays(np.float32, 7, elements=floats))
def test_a_coordinate_is_rounded_to_the_nearest_quantum(update: Vector) -> None:
    for quanta, value in zip(integers(quantise(update)), update, strict=True):
        assert abs(Fraction(quanta, 2**FRACTION) - cut(value)) <= Fraction(1, 2 ** (FRACTION + 1))
        assert abs(quanta) <= RANGE * 2**FRACTION


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, CHUNK + 3])
def test_a_coordinate_that_is_not_finite_is_refused_with_its_place(bad: float, place: int) -> None:
    update = np.zeros(CHUNK + 5, np.float32)
    update[place] = bad
    with pytest.raises(InputError, match=rf"^coordinate {place} of the update is {bad}, it must be finite$"):
        quantise(update)


@given(st.lists(positive, min_size=1, max_size=40).filter(any))
def test_whole_weights_add_up_and_are_less_than_one_from_their_share(weights: list[float]) -> None:
    whole = whole_weights(weights)
    total = sum(map(Fraction, weights))
    assert sum(whole) == WHOLE
    for weight, each in zip(weights, whole, strict=True):
        assert abs(each - Fraction(weight) / total * WHOLE) < 1
        assert each >= 0
        assert weight or not each


@pytest.mark.parametrize("weights", [[1.0, -1.0], [1.0, np.nan], [np.inf], [0.0, 0.0], []])
def test_weights_that_have_no_shares_are_refused(weights: list[float]) -> None:
    with pytest.raises(InputError, match="under secure aggregation"):
        whole_weights(weights)


@given(updates, st.data())
def test_a_weighted_sum_is_the_sum_of_integers_and_never_overflows(vectors: list[Vector], data: st.DataObject) -> None:
    count = len(vectors)
    weights = whole_weights(data.draw(st.lists(positive, min_size=count, max_size=count).filter(any)))
    quantised = [quantise(each) for each in vectors]
    total = weighted_sum(quantised, weights, 5)
    exact = [
        sum(a * q for a, q in zip(weights, column, strict=True))
        for column in zip(*map(integers, quantised), strict=True)
    ]
    assert integers(total) == exact
    assert all(abs(each) + WHOLE // 2 < 2**63 for each in exact)
    for value, each, column in zip(mean(total), exact, zip(*vectors, strict=True), strict=True):
        truth = sum(Fraction(a, WHOLE) * cut(x) for a, x in zip(weights, column, strict=True))
        assert abs(Fraction(each, WHOLE << FRACTION) - truth) <= Fraction(1, 2 ** (FRACTION + 1))
        assert value == pytest.approx(each / (WHOLE << FRACTION), rel=2**-23, abs=0)


def test_the_largest_sum_fits() -> None:
    """Every coordinate at the end of the range, all weight: the bound of the proof is reached."""
    extreme = quantise(np.array([RANGE, -RANGE], np.float32))
    assert integers(weighted_sum([extreme] * 3, whole_weights([1, 1, 1]), 2)) == [2**62, -(2**62)]
    assert mean(weighted_sum([extreme], [WHOLE], 2)).tolist() == [RANGE, -RANGE]
