"""FedScale's pickles: plain values are read, anything else is refused before it does anything."""

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.errors import InputError
from fairlag.fleet import fedscale
from fairlag.fleet.fedscale import plain
from fairlag.fleet.table import Source
from fairlag.limits import TEXT
from tests.support.traces import BEHAVIOUR, DEVICES

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(value=values, protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_values_are_read_as_they_were_written(value: object, protocol: int) -> None:
    assert plain(pickle.dumps(value, protocol)) == value


class Calls:
    """What a pickle can do: here it would make a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.mkdir, (self.folder,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_names_something_is_refused_and_nothing_is_called(protocol: int, tmp_path: Path) -> None:
    made = tmp_path / "made"
    for value in (Calls(made), print, OrderedDict(a=1), np.float64(1.5), np.zeros(3), {1, 2}, 1j, Path("x")):
        with pytest.raises(ValueError, match="may name a class"):
            plain(pickle.dumps({1: value}, protocol))
    assert not made.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        pickle.dumps(DEVICES)[:-5],
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",  # a byte array of any size
        b"\x80\x04X\xff\xff\xff\x7fabc.",  # a string longer than the file
    ],
)
def test_a_damaged_or_hostile_pickle_needs_no_memory(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"it is damaged|it builds more|pickle"):
        plain(content)


def test_a_value_remembered_at_a_far_place_needs_no_memory() -> None:
    assert plain(b"\x80\x04K\x01r\xff\xff\xff\xff.") == 1  # an array up to that place would need tens of gigabytes


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ([1, 2], ["dictionary of clients", "a list"]),
        ({}, ["dictionary of clients"]),
        ({7: 3}, ["client 7", "is 3", "computation, communication"]),
        ({7: {"computation": 1}}, ["client 7", "no 'communication'"]),
        ({"x": {"computation": -1, "communication": 1}}, ["computation of client 'x'", "-1", "above 0"]),
        ({7: {"computation": [1], "communication": 1}}, ["computation of client 7", "a list", "above 0"]),
        ({7: {"computation": True, "communication": 1}}, ["computation of client 7", "True"]),
        ({7: {"computation": 10**400, "communication": 1}}, ["computation of client 7", "finite"]),
    ],
)
def test_a_bad_entry_is_named_by_its_client(value: object, parts: list[str], tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(pickle.dumps(value))
    with pytest.raises(InputError) as error:
        list(fedscale.capacity(Source.of("x", tmp_path, "capacity")))
    assert all(part in str(error.value) for part in (*parts, "'x'")), str(error.value)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"active": [1]}, ["active and inactive of client 1", "equal length"]),
        ({"active": 5}, ["active and inactive of client 1", "lists"]),
        ({"active": [-5, 3]}, ["active of client 1", "-5"]),
        ({"active": [30, 80]}, ["inactive of client 1", "20 after 30"]),
        ({"finish_time": 0}, ["finish_time of client 1", "above 0"]),
        ({"active": ["soon", 80]}, ["active of client 1", "soon"]),
    ],
)
def test_bad_behaviour_is_named_by_its_client(change: dict[str, object], parts: list[str], tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(pickle.dumps({1: {**BEHAVIOUR[1], **change}}))
    with pytest.raises(InputError) as error:
        fedscale.behaviour(Source.of("x", tmp_path, "availability"))
    assert all(part in str(error.value) for part in parts), str(error.value)


def test_a_value_that_holds_itself_is_not_written_out(tmp_path: Path) -> None:
    bomb: list[Any] = ["x"]
    for _ in range(60):
        bomb = [bomb, bomb]  # as text it would have 2 to the 60 letters
    (tmp_path / "x").write_bytes(pickle.dumps({1: {"computation": bomb, "communication": 1}, 2: bomb}))
    with pytest.raises(InputError, match="computation of client 1 in 'x' is 'a list'"):
        list(fedscale.capacity(Source.of("x", tmp_path, "capacity")))


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(TEXT + 1)
    with pytest.raises(InputError, match="more than 64,000,000 bytes"):
        fedscale.behaviour(Source.of("x", tmp_path, "availability"))
