"""State as arrays and JSON, and the leaves of a rule's state: what is read back is what was there, bit by bit."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fairlag.core.state import Leaf, State, copy_into, leaves, pack, refill, rows, table, take, unpack
from fairlag.errors import InputError

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
DTYPES = st.sampled_from([np.bool_, np.uint8, np.int64, np.uint64, np.float32, np.float64])
ARRAYS = arrays(DTYPES, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
STATES: st.SearchStrategy[State] = st.recursive(
    st.dictionaries(st.text().filter(lambda name: "/" not in name), PLAIN | st.lists(PLAIN) | ARRAYS, max_size=4),
    lambda inner: st.dictionaries(st.text("abc_"), inner | PLAIN, max_size=4),
    max_leaves=8,
)


def exact(value: object) -> object:
    """A value that equals another only if both have the same types and bits."""
    if isinstance(value, dict):
        return {name: exact(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [exact(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return type(value), value.dtype.str, value.shape, value.tobytes()
    return type(value), repr(value)


@given(STATES)
def test_what_is_unpacked_is_what_was_packed(state: State) -> None:
    assert exact(unpack(*pack(state))) == exact(state)


def test_arrays_and_words_go_through_a_safetensors_file() -> None:
    state: State = {"empty": np.empty((0, 3)), "inner": {"flags": np.array([True]), "time": -0.0, "words": ["ä", "\n"]}}
    found, text = pack(state)
    assert set(found) == {"empty", "inner/flags"}
    assert exact(unpack(load(save(found)), text)) == exact(state)


@pytest.mark.parametrize(
    "value",
    [{1}, (1, 2), [[1]], [np.ones(1)], np.array(["word"]), np.array([None]), np.array([1j]), np.int64(3)],
    ids=str,
)
def test_what_could_not_be_read_back_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match=r"server/odd is .* can be saved"):
        pack({"server": {"odd": value}})


def test_names_have_no_slash() -> None:
    with pytest.raises(InputError, match="'a/b'"):
        pack({"a/b": 1})


@pytest.mark.parametrize("kind", [int, str, list, dict, np.ndarray])
def test_a_value_that_is_missing_or_of_another_kind_is_named(kind: type) -> None:
    states: list[State] = [{}, {"until": 0.5}]
    for state in states:
        with pytest.raises(InputError, match=f"no {kind.__name__} named 'until'"):
            take(state, "until", kind)


def test_an_int_does_for_a_float() -> None:
    assert take({"time": 3}, "time", float) == 3


def test_an_array_is_overwritten_by_one_of_its_shape_only() -> None:
    array = np.zeros((2, 2))
    copy_into(array, {"rows": np.eye(2)}, "rows")
    assert array.tolist() == [[1, 0], [0, 1]]
    with pytest.raises(InputError, match=r"shape \(2,\)"):
        copy_into(array, {"rows": np.ones(2)}, "rows")


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))))
def test_rows_of_a_table_are_the_rows(entries: list[tuple[int, float]]) -> None:
    assert exact(list(rows(table(entries, whom=int, time=float), "whom", "time"))) == exact(entries)


# The leaves of a rule's state


class Moments(NamedTuple):
    versions: int
    first: NDArray[np.float32]
    rest: Any


def moments(fill: float) -> Moments:
    inner = {"z": np.float32(fill), "a": [fill, None, np.full((2, 2), fill)], "b": ()}
    return Moments(int(fill), np.full(3, fill, np.float32), (inner, np.asarray(fill), "word"))


def test_a_structure_is_refilled_with_the_leaves_of_another_of_its_kind() -> None:
    old, new = moments(7.0), moments(0.0)
    assert exact(refill(new, leaves(old))) == exact(old)


def test_leaves_are_refilled_after_they_were_packed() -> None:
    saved: State = {str(place): leaf for place, leaf in enumerate(leaves(moments(7.0)))}
    read = unpack(*pack(saved))
    again: list[Any] = [read[str(place)] for place in range(len(saved))]
    assert exact(refill(moments(0.0), again)) == exact(moments(7.0))


def test_leaves_and_what_is_refilled_share_no_memory() -> None:
    source = np.zeros(2)
    (leaf,) = leaves((source,))
    (filled,) = refill((source,), [leaf])
    assert isinstance(leaf, np.ndarray)
    assert not np.shares_memory(source, leaf) and not np.shares_memory(filled, leaf)


def test_a_place_that_was_empty_at_first_takes_anything() -> None:
    assert exact(refill((None, None), [np.ones(2), np.array(3)])) == exact((np.ones(2), np.int64(3)))


@pytest.mark.parametrize(
    ("structure", "saved", "words"),
    [
        ((0, 1), [1], "1 saved values, there must be 2"),
        ((), [1], "1 saved values, there must be 0"),
        ((np.zeros(2),), [np.zeros(3)], r"has shape \(3,\), it must have shape \(2,\)"),
        ((np.zeros(2),), [0.5], r"shape \(\)"),
        ((0.5,), [np.zeros(2)], r"shape \(2,\)"),
    ],
)
def test_a_structure_that_does_not_fit_is_refused(structure: object, saved: list[Leaf], words: str) -> None:
    with pytest.raises(InputError, match=words):
        refill(structure, saved)


def test_a_state_of_other_things_cannot_be_saved() -> None:
    with pytest.raises(InputError, match=r"Generator.* cannot be saved"):
        leaves((np.random.default_rng(0),))
