"""Which examples are for training and which for testing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.data.dataset import Dataset
from fairlag.data.split import split, stratified
from fairlag.data.whole import apportion
from fairlag.errors import InputError


def labelled(labels: list[int], official: int | None = None) -> Dataset:
    """A data set of which only the labels matter."""
    values = np.array(labels, np.int64)
    inputs = np.zeros((len(labels), 1), np.uint8)
    return Dataset("tiny", inputs, values, classes=int(values.max()) + 1, official=official or len(labels))


some_labels = st.lists(st.integers(0, 4), min_size=2, max_size=60)


@given(some_labels, st.floats(0.01, 0.99), st.integers(0, 3))
def test_a_split_covers_all_and_every_class_gives_its_share(labels: list[int], holdout: float, seed: int) -> None:
    size = round(holdout * len(labels))
    if not 0 < size < len(labels):
        with pytest.raises(InputError, match="it must leave some for training"):
            split(labelled(labels), holdout, seed)
        return
    train, test = split(labelled(labels), holdout, seed)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(labels)))
    assert np.array_equal(train, np.sort(train)) and np.array_equal(test, np.sort(test))
    assert len(test) == size
    drawn, counts = np.bincount(np.array(labels)[test], minlength=5), np.bincount(labels, minlength=5)
    assert (np.abs(drawn - size * counts / len(labels)) < 1).all()


def test_a_split_is_drawn_by_its_seed_from_the_official_test_part_too() -> None:
    data = labelled([0, 1] * 50, official=80)
    train, test = split(data, 0.2, seed=0)
    assert test.max() >= 80 and train.max() >= 80
    assert np.array_equal(test, split(data, 0.2, seed=0)[1])
    assert not np.array_equal(test, split(data, 0.2, seed=1)[1])


def test_the_official_parts() -> None:
    train, test = split(labelled([0, 1, 0, 1, 1], official=3), "official", seed=0)
    assert train.tolist() == [0, 1, 2] and test.tolist() == [3, 4]
    with pytest.raises(InputError, match="tiny has no official test part: write a number such as"):
        split(labelled([0, 1]), "official", seed=0)


@pytest.mark.parametrize("holdout", [0, 1, 1.5, -0.2, float("nan"), 1e-9, "offical"])
def test_a_holdout_that_cannot_be(holdout: float) -> None:
    with pytest.raises(InputError, match=f"holdout is {holdout!r}"):
        split(labelled([0, 1] * 5), holdout, seed=0)


@given(some_labels, st.integers(1, 70), st.integers(0, 3))
def test_a_stratified_sample_has_every_class_in_its_share(labels: list[int], size: int, seed: int) -> None:
    values, among = np.array(labels), np.arange(0, len(labels), 2)
    sample = stratified(values, among, size, seed)
    assert len(sample) == min(size, len(among))
    assert set(sample) <= set(among) and np.array_equal(sample, np.unique(sample))
    assert np.array_equal(sample, stratified(values, among, size, seed))
    share = np.bincount(values[among], minlength=5) * len(sample) / len(among)
    assert (np.abs(np.bincount(values[sample], minlength=5) - share) < 1).all()


def test_a_sample_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="the size of a sample is 0, it must be at least 1"):
        stratified(np.zeros(3, np.int64), np.arange(3), 0, seed=0)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(0, 400))
def test_apportioned_parts_add_up_and_keep_within_their_weights(weights: list[int], total: int) -> None:
    total = min(total, sum(weights))
    parts = apportion(total, np.array(weights))
    assert parts.sum() == total
    assert ((parts >= 0) & (parts <= weights)).all()
