"""Every kind of partition on every kind of fleet: each example is held once, and nobody is left with nothing."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.core.types import Integers
from fairlag.data.partition import Holding, Partition, Shares, parse
from fairlag.errors import InputError

KINDS = [
    "labels",
    "iid",
    "dirichlet(0.5)",
    "dirichlet(1e-05)",
    "dirichlet(1e+300)",
    "shards(1)",
    "shards(2)",
    "one_class",
    "sorted",
    "remove_labels(0)",
    "remove_labels(1)",
    "remove_labels(2)",
    "quantity(0.5)",
    "quantity(1e-320)",
]


@st.composite
def labels_and_fleets(draw: st.DrawFn) -> tuple[Integers, list[Holding]]:
    """Labels of any distribution, and groups that together hold all of them."""
    labels = np.array(draw(st.lists(st.integers(0, 4), min_size=1, max_size=80)), np.int64)
    present = st.sampled_from(sorted(set(labels.tolist())))
    groups = [
        Holding(f"group {place}", count, tuple(draw(st.sets(present, min_size=1))))
        for place, count in enumerate(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    ]
    return labels, [*groups, *everything(labels, 1)]


def everything(labels: Integers, *counts: int) -> list[Holding]:
    """Groups that hold all labels."""
    return [Holding(f"group {place}", count, tuple(set(labels.tolist()))) for place, count in enumerate(counts)]


@pytest.mark.parametrize("text", KINDS)
@given(drawn=labels_and_fleets(), seed=st.integers(0, 3))
def test_every_example_is_held_once_and_every_client_holds_one(
    text: str, drawn: tuple[Integers, list[Holding]], seed: int
) -> None:
    labels, groups = drawn
    clients = sum(group.count for group in groups)
    try:
        shares = parse(text).share(labels, groups, seed)
    except InputError as error:
        assert may_fail(parse(text), labels, groups), error
        return
    assert np.array_equal(np.sort(shares.order), np.arange(len(labels)))
    assert shares.clients == clients and shares.sizes.min() >= 1 and shares.sizes.sum() == len(labels)
    assert np.array_equal(shares.order, np.concatenate([shares.of(client) for client in range(clients)]))
    again = parse(text).share(labels, groups, seed)
    assert np.array_equal(shares.order, again.order) and np.array_equal(shares.bounds, again.bounds)
    check_kind(text, shares, labels, groups)


def may_fail(partition: Partition, labels: Integers, groups: list[Holding]) -> bool:
    """Whether there is a reason to refuse: too few examples, or a cover that cannot be."""
    clients, distinct = sum(group.count for group in groups), len(np.unique(labels))
    reasons = {
        "labels": any(all(few(labels, groups, label) for label in group.labels or ()) for group in groups),
        "shards(2)": len(labels) < 2 * clients,
        "one_class": clients < distinct,
        "remove_labels(1)": clients * (distinct - 1) < distinct,
        "remove_labels(2)": clients * (distinct - 2) < distinct,
    }
    return len(labels) < clients or reasons.get(str(partition), False)


def few(labels: Integers, groups: list[Holding], label: int) -> bool:
    """Whether a label has fewer examples than clients that hold it."""
    holders = sum(group.count for group in groups if label in (group.labels or ()))
    return int(np.count_nonzero(labels == label)) < holders


def check_kind(text: str, shares: Shares, labels: Integers, groups: list[Holding]) -> None:
    """What is peculiar to a kind."""
    table = shares.counts(labels, 5)
    kinds_held = (table > 0).sum(axis=1)
    if text in ("iid", "sorted", "shards(1)"):
        assert np.ptp(shares.sizes) <= 1
    if text == "one_class":
        assert (kinds_held == 1).all()
    if text.startswith("remove_labels"):
        distinct = len(np.unique(labels))
        assert kinds_held.max() <= max(1, distinct - int(text[-2]))
    if text == "labels":
        allowed = [set(group.labels or ()) for group in groups for _ in range(group.count)]
        for row, held in zip(table, allowed, strict=True):
            assert set(np.flatnonzero(row)) <= held
    assert np.array_equal(table.sum(axis=0), np.bincount(labels, minlength=5))
    assert np.array_equal(shares.group_counts(labels, 5, groups).sum(axis=1), group_sizes(shares, groups))


def group_sizes(shares: Shares, groups: list[Holding]) -> Integers:
    """How many examples each group holds."""
    edges = np.cumsum([group.count for group in groups])[:-1]
    return np.array([sizes.sum() for sizes in np.split(shares.sizes, edges)])


@pytest.mark.parametrize("text", KINDS)
def test_what_is_read_is_written_again(text: str) -> None:
    assert parse(str(parse(text))) == parse(text)
    assert parse(parse(text)) == parse(text)


def test_how_a_partition_is_written() -> None:
    assert [str(parse(text)) for text in ("dirichlet(alpha=0.50)", " one_class ", "remove_labels(3)", "labels")] == [
        "dirichlet(0.5)",
        "one_class",
        "remove_labels(3)",
        "labels",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dirichlett(1)", r"there is no partition 'dirichlett': did you mean 'dirichlet'\?"),
        ("dirichlet", r"dirichlet does not fit .* write dirichlet\(alpha\)"),
        ("dirichlet(0)", "alpha of dirichlet is 0, but must be a finite number above 0"),
        ("quantity(-1)", "alpha of quantity is -1"),
        ("shards(0)", "count of shards is 0, but must be a whole number of at least 1"),
        ("shards(1.5)", r"count of shards is 1\.5"),
        ("remove_labels(-1)", "count of remove_labels is -1"),
        ("iid(3)", r"iid\(3\) does not fit"),
        ("3", "the partition '3' cannot be read; write for example dirichlet"),
        ("iid(", r"the partition 'iid\(' cannot be read"),
    ],
)
def test_a_partition_that_cannot_be_read(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse(text)


def test_labels_are_shared_evenly_within_a_group() -> None:
    labels = np.repeat(np.arange(10), 5600)
    groups = [Holding("fast", 10, (4, 5, 6, 7, 8, 9)), Holding("slow", 5, (0, 1, 2, 3))]
    shares = parse("labels").share(labels, groups, seed=0)
    assert shares.sizes.tolist() == [3360] * 10 + [4480] * 5
    assert shares.counts(labels, 10, range(0, 2)).tolist() == [[0] * 4 + [560] * 6] * 2
    assert shares.counts(labels, 10, range(14, 15)).tolist() == [[1120] * 4 + [0] * 6]
    assert shares.group_counts(labels, 10, groups).tolist() == [[0] * 4 + [5600] * 6, [5600] * 4 + [0] * 6]


def test_a_label_of_two_groups_is_shared_in_proportion_to_their_clients() -> None:
    labels = np.repeat([0, 1, 2], 60)
    groups = [Holding("few", 1, (0, 1)), Holding("many", 5, (1, 2))]
    assert parse("labels").share(labels, groups, seed=0).group_counts(labels, 3, groups).tolist() == [
        [60, 10, 0],
        [0, 50, 60],
    ]


def test_what_remains_of_the_labels_does_not_pile_up_at_the_first_client() -> None:
    labels = np.repeat(np.arange(10), 11)
    shares = parse("labels").share(labels, everything(labels, 10), seed=0)
    assert shares.sizes.tolist() == [11] * 10


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([Holding("fast", 2, (0, 1)), Holding("slow", 1)], "group 'slow' names no labels"),
        ([Holding("fast", 2, (0, 1)), Holding("slow", 1, ())], "group 'slow' names no labels"),
        ([Holding("fast", 2, (0,))], "no group holds label 1: the partition 'labels' needs a group for every label"),
        ([Holding("fast", 2, (0, 1, 7))], "group 'fast' holds label 7, but the labels are 0, 1"),
        (
            [Holding("fast", 2, (0,)), Holding("slow", 5, (1,))],
            r"group 'slow' has 3 clients without an example \(of 5\)",
        ),
        (
            [Holding("fast", 2, (0,)), Holding("slow", 3, (1,))],
            r"group 'slow' has 1 client without an example \(of 3\)",
        ),
        ([Holding("all", 11, (0, 1))], "10 training examples cannot be shared among 11 clients"),
        ([], "10 training examples cannot be shared among 0 clients"),
    ],
)
def test_groups_that_cannot_hold_the_labels(groups: list[Holding], words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse("labels").share(np.array([0] * 8 + [1] * 2), groups, seed=0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("shards(4)", r"shards\(4\) needs 12 examples for 3 clients, but there are 10: use at most shards\(3\)"),
        ("one_class", "3 clients cannot hold 10 labels: use at least 10 clients"),
        ("remove_labels(7)", "3 clients that lack 7 of 10 labels each .* remove at most 6, or use more clients"),
        ("remove_labels(99)", "remove at most 6"),
    ],
)
def test_a_partition_that_the_fleet_cannot_have(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse(text).share(np.arange(10), [Holding("all", 3)], seed=0)


def test_a_group_of_nobody_and_a_client_that_is_not_there() -> None:
    with pytest.raises(InputError, match="the number of clients of group 'slow' is 0"):
        Holding("slow", 0)
    shares = parse("iid").share(np.zeros(4, np.int64), [Holding("all", 2)], seed=0)
    with pytest.raises(InputError, match="there is no client -1; clients are numbered 0 to 1"):
        shares.of(-1)


@pytest.mark.parametrize("alpha", [0.02, 0.5, 100])
def test_labels_are_spread_as_the_dirichlet_distribution_says(alpha: float) -> None:
    classes, clients, each = 400, 20, 500
    labels = np.repeat(np.arange(classes), each)
    table = parse(f"dirichlet({alpha})").share(labels, [Holding("all", clients)], seed=0).counts(labels, classes)
    expected = np.random.default_rng(0).dirichlet([alpha] * clients, 10_000)
    # The largest share of a label and the sum of squares: how far it belongs to few clients.
    assert (table / each).max(axis=0).mean() == pytest.approx(expected.max(axis=1).mean(), rel=0.05)
    assert ((table / each) ** 2).sum(axis=0).mean() == pytest.approx((expected**2).sum(axis=1).mean(), rel=0.05)


def test_sizes_vary_as_the_dirichlet_distribution_says() -> None:
    labels, clients, alpha = np.zeros(100_000, np.int64), 2000, 0.7
    sizes = parse(f"quantity({alpha})").share(labels, [Holding("all", clients)], seed=0).sizes
    variance = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    assert (sizes / len(labels)).var() == pytest.approx(variance, rel=0.1)


def test_the_seed_and_nothing_else_decides_what_is_random() -> None:
    labels = np.arange(200) % 10
    first, second = (parse("dirichlet(1)").share(labels, [Holding("all", 5)], seed) for seed in (0, 1))
    assert not np.array_equal(first.order, second.order)
    # Groups only number the clients.
    split = parse("dirichlet(1)").share(labels, [Holding("fast", 2), Holding("slow", 3)], 0)
    assert np.array_equal(first.order, split.order)


@pytest.mark.slow
@pytest.mark.parametrize("text", KINDS)
def test_a_million_clients_take_seconds(text: str) -> None:
    labels = np.random.default_rng(0).integers(0, 10, 2_000_000)
    groups = everything(labels, 600_000, 400_000)
    start = time.perf_counter()
    shares = parse(text).share(labels, groups, seed=0)
    assert time.perf_counter() - start < 10
    assert shares.clients == 1_000_000 and shares.sizes.min() >= 1
    assert np.array_equal(np.sort(shares.order), np.arange(len(labels)))
