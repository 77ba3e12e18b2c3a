"""Clients' own test data: how many examples are held back, which, and which clients are tested."""

import numpy as np
import pytest

from fairlag.core.types import Integers
from fairlag.data.reserve import MOST_TESTED, drawn_clients, reserve, without
from fairlag.data.shares import Shares


def shares(*sizes: int) -> Shares:
    """Examples in order, so many per client."""
    return Shares.from_owners(np.repeat(np.arange(len(sizes)), sizes), len(sizes))


@pytest.mark.parametrize(
    ("sizes", "part", "counts"),
    [
        ([10, 20, 100], 0.1, [1, 2, 10]),
        ([4, 5, 14, 15], 0.1, [0, 1, 1, 2]),  # 0.4, 0.5, 1.4 and 1.5, rounded
        ([1, 2, 3], 0.9, [0, 1, 2]),  # 0.9, 1.8 and 2.7: one example stays
        ([0, 10], 0.5, [0, 5]),
    ],
)
def test_a_part_is_held_back_but_one_example_stays(sizes: list[int], part: float, counts: list[int]) -> None:
    found, reserved = reserve(shares(*sizes), part, seed=3)
    assert reserved.tolist() == counts
    assert without(found, reserved).sizes.tolist() == [size - count for size, count in zip(sizes, counts, strict=True)]


def test_every_example_is_for_training_or_for_testing_and_its_client_keeps_it() -> None:
    whole = shares(7, 30, 12)
    found, counts = reserve(whole, 0.3, seed=1)
    kept = without(found, counts)
    for client in range(3):
        mine, train = whole.of(client).tolist(), kept.of(client).tolist()
        held = found.of(client)[len(train) :].tolist()
        assert len(held) == counts[client] and sorted(train + held) == mine
        assert train == sorted(train)  # in the order of before


def _held(seed: int, *sizes: int) -> list[int]:
    found, counts = reserve(shares(*sizes), 0.2, seed)
    return sorted(found.of(0)[-int(counts[0]) :].tolist())


def test_the_seed_draws_the_examples_whoever_else_there_is() -> None:
    draws = {tuple(_held(seed, 40, 10)) for seed in range(5)}
    assert len(draws) == 5 and all(len(each) == 8 for each in draws)
    assert _held(2, 40, 10) == _held(2, 40, 3, 90)


def test_every_example_is_held_back_equally_often() -> None:
    counted = np.bincount(np.concatenate([_held(seed, 20) for seed in range(1000)]), minlength=20)
    assert counted.sum() == 4000
    # 200 of 1000 expected, with a deviation of sqrt(1000 · 0.2 · 0.8) = 12.6
    assert abs(counted - 200).max() < 5 * 12.7


def _groups(*sizes: int) -> Integers:
    return np.repeat(np.arange(len(sizes)), sizes)


def test_all_clients_with_test_examples_are_tested_if_they_are_few() -> None:
    counts = np.ones(MOST_TESTED + 1, np.int64)
    counts[7] = 0
    assert drawn_clients(counts, np.zeros(len(counts), np.int64), seed=0).tolist() == np.flatnonzero(counts).tolist()


def test_of_many_clients_a_sample_with_the_same_shares_of_groups_is_tested() -> None:
    group_of = _groups(6000, 3000, 3)
    chosen = drawn_clients(np.ones(9003, np.int64), group_of, seed=0)
    assert np.bincount(group_of[chosen]).tolist() == [333, 167, 1]  # 500 · 6000/9003 …, and one of the smallest group
    assert len(set(chosen.tolist())) == len(chosen) and (np.diff(chosen) > 0).all()
    others = drawn_clients(np.ones(9003, np.int64), group_of, seed=1)
    assert len(np.intersect1d(chosen, others)) < 100


def test_a_client_without_test_examples_is_never_drawn() -> None:
    counts = np.arange(4000) % 2
    assert (drawn_clients(counts, _groups(2000, 2000), seed=5) % 2 == 1).all()


def test_examples_that_nobody_holds_are_left_out() -> None:
    shares = Shares(np.array([7, 3, 9, 5]), np.array([0, 2, 4]))
    found, counts = reserve(shares, 0.5, seed=0)
    assert counts.tolist() == [1, 1] and [set(found.of(client).tolist()) for client in (0, 1)] == [{3, 7}, {5, 9}]
