"""Compiled products of matrices: whatever the shapes, and the same to the bit whatever else is computed with them."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlag.core.vector import Matrix
from fairlag.learn.product import DEPTH, WIDTH, multiply

Shape = tuple[int, int, int]
SHAPES = st.tuples(
    st.integers(1, 20),
    st.one_of(st.integers(1, 70), st.sampled_from([DEPTH - 1, DEPTH, DEPTH + 1, 2 * DEPTH + 3])),
    st.one_of(st.integers(1, 3 * WIDTH + 1), st.sampled_from([300])),
)
LAYOUTS: dict[str, Callable[[Matrix, Matrix], tuple[Matrix, Matrix]]] = {
    "both as they are": lambda one, other: (one, other),
    "the first transposed": lambda one, other: (np.asfortranarray(one), other),
    "the second transposed": lambda one, other: (one, np.asfortranarray(other)),
}


def product(one: Matrix, other: Matrix, before: Matrix | None = None) -> Matrix:
    """Of arrays with rubbish wherever nothing may be read."""
    out = np.full((len(one), other.shape[1]), np.nan, np.float32) if before is None else before.copy()
    multiply(one, other, out, before is None, np.full((DEPTH + len(one), WIDTH), np.nan, np.float32))
    return out


def random(seed: int, *shape: int) -> Matrix:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=40, deadline=None)
@given(shape=SHAPES, seed=st.integers(0, 99))
def test_of_whole_numbers_it_is_exact(layout: str, shape: Shape, seed: int) -> None:
    rows, depth, places = shape
    generator = np.random.default_rng(seed)
    numbers = (generator.integers(-9, 10, size) for size in ((rows, depth), (depth, places), (rows, places)))
    one, other, before = (each.astype(np.float32) for each in numbers)
    given_out = LAYOUTS[layout](one, other)
    assert np.array_equal(product(*given_out), one @ other)
    assert np.array_equal(product(*given_out, before), before + one @ other)


@settings(max_examples=40, deadline=None)
@given(shape=SHAPES, seed=st.integers(0, 99), data=st.data())
def test_what_comes_out_does_not_depend_on_what_is_computed_with_it(
    shape: Shape, seed: int, data: st.DataObject
) -> None:
    rows, depth, places = shape
    one, other = random(seed, rows, depth), random(seed + 1, depth, places)
    whole = product(one, other)
    row, place = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, places - 1))
    part = product(one[row:].copy(), other[:, place:].copy())
    assert part.tobytes() == whole[row:, place:].tobytes()
    assert product(one, np.asfortranarray(other)).tobytes() == whole.tobytes()


def test_a_term_is_rounded_once() -> None:
    """(1 + ε)² alone would lose its ε²; with −(1 + 2ε) already there, ε² is all that is left."""
    little = np.float32(2.0**-13)
    one = np.array([[1, 1 + little]], np.float32)
    other = np.array([[-1 - 2 * little], [1 + little]], np.float32)
    assert product(one, other) == little**2


def test_what_is_not_finite_stays_where_it_is() -> None:
    one, other = random(0, 7, 30), random(1, 30, 20)
    one[3, 5], other[4, 18] = np.inf, np.nan
    wild = ~np.isfinite(product(one, other))
    assert wild[3].all() and wild[:, 18].all() and wild.sum() == 20 + 7 - 1
