"""Seeds: the published SplitMix64 numbers, arrays equal to scalars, and addresses that do not meet."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.core import seeds

WORD = st.integers(0, 2**64 - 1)

# The reference implementation's first five outputs from the seed 1234567.
SPLITMIX64 = [
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
]


def test_subkeys_are_the_outputs_of_splitmix64() -> None:
    assert [seeds.subkey(1234567, index) for index in range(1, 6)] == SPLITMIX64


def test_a_uniform_is_the_middle_of_one_of_2_to_the_52_intervals() -> None:
    assert seeds.uniform(1234567, 1) == ((SPLITMIX64[0] >> 12) + 0.5) / 2**52


@given(WORD, st.integers(0, 2**40), st.integers(0, 20))
def test_an_array_of_draws_equals_the_draws_one_by_one(stream: int, start: int, count: int) -> None:
    together = seeds.uniforms(stream, start, count)
    assert together.dtype == np.float64
    assert together.tolist() == [seeds.uniform(stream, start + place) for place in range(count)]


@given(WORD, st.integers(0, 20))
def test_first_draws_of_members_equal_the_draws_one_by_one(parent: int, count: int) -> None:
    expected = [seeds.uniform(seeds.subkey(parent, place), 0) for place in range(count)]
    assert seeds.first_uniforms(parent, count).tolist() == expected


@given(WORD, WORD)
def test_draws_lie_inside_the_open_interval(stream: int, ordinal: int) -> None:
    assert 2.0**-53 <= seeds.uniform(stream, ordinal) <= 1 - 2.0**-53


def test_a_key_depends_on_every_part_of_its_address_and_on_their_kinds() -> None:
    addresses: list[tuple[int | str, ...]] = [
        (0,),
        (1,),
        ("0",),
        (0, "delay"),
        (0, "delay", "slow"),
        (0, "delay", "slo", "w"),
        (0, "vanish", "slow"),
        (1, "delay", "slow"),
        ("delay", 0, "slow"),
    ]
    assert len({seeds.key(*address) for address in addresses}) == len(addresses)
    assert all(0 <= seeds.key(*address) < 2**64 for address in addresses)


def test_a_key_is_the_same_in_every_process() -> None:
    assert seeds.key(0, "delay", "slow") == 0x9380_86CA_4BD1_D66C


def test_members_and_ordinals_do_not_share_draws() -> None:
    parent = seeds.key(0, "delay", "fast")
    draws = np.concatenate([seeds.uniforms(seeds.subkey(parent, member), 0, 100) for member in range(100)])
    assert len(np.unique(draws)) == 10_000


@pytest.mark.parametrize("stream", [0, seeds.key(0, "a"), 2**64 - 1])
def test_draws_are_uniform_and_uncorrelated(stream: int) -> None:
    draws = seeds.uniforms(stream, 0, 100_000)
    counts = np.histogram(draws, bins=100, range=(0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 170  # chi-squared with 99 degrees of freedom: below in all but 1e-5
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 0.015
