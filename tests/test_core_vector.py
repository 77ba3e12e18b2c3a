"""Vectors and versions: what is published is a read-only copy, layouts are exact, versions live as long as needed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from fairlag.core.vector import EMPTY, Layout, finite, published
from fairlag.core.versions import Versions
from fairlag.errors import InputError
from tests.support.scenes import vec

LAYOUT = Layout(("weight", "bias", "scale"), ((2, 3), (3,), ()))


def test_what_is_published_is_a_flat_float32_copy() -> None:
    source = np.arange(6, dtype=np.float64).reshape(2, 3)
    vector = published(source)
    source[:] = 9
    assert vector.dtype == np.float32 and vector.tolist() == [0, 1, 2, 3, 4, 5]


def test_what_is_published_cannot_be_written() -> None:
    vector = published(vec(1, 2))
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 9


def test_what_is_published_owns_its_memory() -> None:
    vector = published(vec(1, 2))
    assert vector.base is None or not vector.base.flags.writeable


def test_the_empty_model_has_no_parameters() -> None:
    assert EMPTY.shape == (0,) and EMPTY.dtype == np.float32


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], True),
        ([0, -1, 2], True),
        ([3e38, -3e38, 1e-45], True),  # whose squares are not finite
        ([3e38, np.nan], False),
        ([np.inf, -np.inf], False),
        ([0, np.inf, 0], False),
        ([0, 0, -np.inf], False),
    ],
)
def test_finite_says_whether_every_value_is(values: list[float], expected: bool) -> None:
    assert finite(vec(*values)) is expected
    assert finite(np.repeat(vec(*values), 1000)[::7]) is expected


def test_a_layout_puts_the_arrays_in_its_own_order() -> None:
    arrays: dict[str, ArrayLike] = {"scale": 9.0, "bias": [6, 7, 8], "weight": [[0, 1, 2], [3, 4, 5]]}
    vector = LAYOUT.flatten(arrays)
    assert LAYOUT.size == 10 and vector.tolist() == list(range(10))
    assert not vector.flags.writeable


def test_a_layout_splits_what_it_flattened() -> None:
    parts = LAYOUT.split(published(np.arange(10)))
    assert {name: part.tolist() for name, part in parts.items()} == {
        "weight": [[0, 1, 2], [3, 4, 5]],
        "bias": [6, 7, 8],
        "scale": 9,
    }
    assert not any(part.flags.writeable for part in parts.values())


def test_parts_of_a_writable_vector_are_views_of_it() -> None:
    vector = np.zeros(10, np.float32)
    LAYOUT.split(vector)["bias"][1] = 5
    assert vector.tolist() == [0, 0, 0, 0, 0, 0, 0, 5, 0, 0]


def test_a_layout_of_nothing_is_empty() -> None:
    layout = Layout((), ())
    assert layout.size == 0 and layout.flatten({}).size == 0 and layout.split(EMPTY) == {}


def test_a_missing_and_a_surplus_array_are_named() -> None:
    with pytest.raises(InputError, match=r"\['bias', 'other'\].*\['bias', 'scale', 'weight'\]"):
        LAYOUT.flatten({"bias": [1, 2, 3], "other": 1})


def test_a_wrong_shape_is_named() -> None:
    with pytest.raises(InputError, match=r"'bias' has shape \(4,\).*\(3,\)"):
        LAYOUT.flatten({"weight": np.zeros((2, 3)), "bias": np.zeros(4), "scale": 0})


@pytest.mark.parametrize("shape", [(9,), (11,), (10, 1)])
def test_a_vector_of_another_shape_is_not_split(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"the layout expects \(10,\)"):
        LAYOUT.split(np.zeros(shape, np.float32))


@given(st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), max_size=5))
def test_flatten_and_split_are_inverse(shapes: list[tuple[int, ...]]) -> None:
    layout = Layout(tuple(f"p{place}" for place in range(len(shapes))), tuple(shapes))
    vector = published(np.arange(layout.size))
    assert layout.flatten(layout.split(vector)).tolist() == vector.tolist()


def test_statistics_are_the_last_arrays() -> None:
    names = ("weight", "a.running_var", "b/moving_variance:0", "c.running_mean", "c.running_var")
    layout = Layout(names, ((2, 3), (2,), (), (2,), (2,)), statistics=3)
    assert layout.parameters == Layout(names[:2], ((2, 3), (2,))) and layout.parameters.size == 8
    assert layout.variances == (slice(8, 9), slice(11, 13))  # and not a.running_var, which is a parameter by that name
    plain = Layout(names, layout.shapes)
    assert plain.parameters is plain and plain.variances == ()
    assert Layout(names, layout.shapes, statistics=5).parameters == Layout((), ())


@pytest.mark.parametrize("count", [-1, 2])
def test_a_layout_cannot_have_more_statistics_than_arrays(count: int) -> None:
    with pytest.raises(InputError, match=rf"^statistics is {count} in a layout of 1 arrays, .* from 0 to 1$"):
        Layout(("weight",), ((3,),), statistics=count)


def test_a_version_that_nobody_holds_goes_when_there_is_a_newer_one() -> None:
    versions = Versions(vec(0))
    versions.publish(vec(1))
    assert versions.kept == (1,) and versions[1].tolist() == [1]
    with pytest.raises(KeyError):
        versions[0]


def test_a_version_stays_until_its_last_holder_lets_go() -> None:
    versions = Versions(vec(0))
    versions.hold(0, 2)
    versions.publish(vec(1))
    versions.release([0])
    assert list(versions.kept) == [0, 1] and versions[0].tolist() == [0]
    versions.release([0])
    assert list(versions.kept) == [1]


def test_the_newest_version_stays_without_holders_and_can_be_held_again() -> None:
    versions = Versions(vec(0))
    versions.hold(0, 1)
    versions.release([0])
    assert list(versions.kept) == [0]
    versions.hold(0, 1)
    versions.publish(vec(1))
    assert list(versions.kept) == [0, 1]


def test_a_published_version_is_a_copy() -> None:
    first, second = vec(0), vec(1)
    versions = Versions(first)
    versions.hold(0, 1)
    versions.publish(second)
    first[0] = second[0] = 9
    assert versions[0].tolist() == [0] and versions.newest.tolist() == [1]
    assert not versions[0].flags.writeable and not versions.newest.flags.writeable
