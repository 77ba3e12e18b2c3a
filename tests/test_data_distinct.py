"""Distinct values: codes by hashing are those of a sort."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.data.distinct import coded

TEXT = st.text(st.characters(codec="utf-8"), max_size=3)


@given(st.lists(TEXT, min_size=1), st.lists(st.integers(-(2**62), 2**62), min_size=1), st.lists(st.booleans()))
def test_codes_are_places_among_the_sorted_values(words: list[str], numbers: list[int], marks: list[bool]) -> None:
    for values in (np.array(words, object), np.array(numbers), np.array([*marks, True])):
        distinct, places = np.unique(values, return_inverse=True)
        names, codes = coded(values)
        assert names == tuple(map(str, distinct.tolist()))
        assert codes.tolist() == places.tolist() and codes.dtype == np.int64


@pytest.mark.parametrize("kind", [np.uint64, np.int8])
def test_every_kind_of_whole_number_is_coded(kind: Any) -> None:
    most = np.iinfo(kind).max
    assert coded(np.array([most, 0, most], kind))[0] == ("0", str(most))
