"""Partitions by owner: the data's own clients, and a file that names them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.data.load import Dataset
from fairlag.data.natural import placed
from fairlag.data.partition import File, Holding, parse
from fairlag.data.split import split
from fairlag.errors import InputError

CLIENTS = ("ann", "bob", "cy", "dee")


def owned(owners: list[int], official: int | None = None) -> Dataset:
    """A data set whose clients are four."""
    inputs, labels = np.zeros((len(owners), 1), np.uint8), np.arange(len(owners)) % 2
    return Dataset(
        "mine", inputs, labels, 2, official or len(owners), clients=CLIENTS, owners=np.array(owners, np.int64)
    )


def test_clients_fill_the_groups_in_order_and_named_ones_keep_their_group() -> None:
    data = owned([3, 0, 2, 1, 0])
    groups = [Holding("first", 2), Holding("named", 1, names=("bob",)), Holding("last", 1)]
    shares = parse("natural").bound(data, np.arange(5)).share(data.labels, groups, seed=0)
    assert [shares.of(client).tolist() for client in range(4)] == [[1, 4], [2], [3], [0]]


def test_only_training_examples_are_shared() -> None:
    data = owned([0, 1, 2, 3, 0, -1], official=5)
    train = np.array([1, 2, 3, 4])
    shares = parse("natural").bound(data, train).share(data.labels[train], [Holding("all", 4)], seed=0)
    assert [train[shares.of(client)].tolist() for client in range(4)] == [[4], [1], [2], [3]]


@given(st.permutations(CLIENTS), st.integers(1, 3))
def test_every_client_has_one_number(names: list[str], count: int) -> None:
    groups = [Holding("rest", 4 - count), Holding("named", count, names=tuple(names[:count]))]
    found = placed("mine", CLIENTS, groups, np.random.default_rng(0)).tolist()
    assert sorted(found) == [0, 1, 2, 3]
    assert [found[CLIENTS.index(name)] for name in names[:count]] == list(range(4 - count, 4))


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (
            [Holding("all", 3)],
            "mine has 4 clients, but the groups have 3: change a count, or leave it out of one group, which then takes "
            'the rest, or draw some by partition = "natural(3)"',
        ),
        ([Holding("a", 1, names=("anne",)), Holding("b", 3)], "but mine has none of that name: did you mean 'ann'?"),
        (
            [Holding("a", 1, names=("ann",)), Holding("b", 3, names=("ann", "bob", "cy"))],
            "groups 'a' and 'b' both name the client 'ann'",
        ),
    ],
)
def test_groups_that_do_not_fit_the_clients(groups: list[Holding], words: str) -> None:
    data = owned([0, 1, 2, 3])
    with pytest.raises(InputError) as caught:
        parse("natural").bound(data, np.arange(4)).share(data.labels, groups, seed=0)
    assert words in str(caught.value)


def sampled(text: str, groups: list[Holding], seed: int = 0) -> list[list[int]]:
    """The examples of each client; example i belongs to client i modulo 4."""
    data = owned([0, 1, 2, 3] * 3)
    shares = parse(text).bound(data, np.arange(12)).share(data.labels, groups, seed)
    return [shares.of(client).tolist() for client in range(shares.clients)]


def test_a_sample_of_the_clients_is_drawn_by_the_seed() -> None:
    groups = [Holding("a", 1), Holding("named", 1, names=("bob",))]
    every = {client: [client, client + 4, client + 8] for client in range(4)}
    found = [sampled("natural(2)", groups, seed) for seed in range(30)]
    assert found[0] == sampled("natural(2)", groups)
    assert {bob for _, (bob, *_) in found} == {1} and {first for (first, *_), _ in found} == {0, 2, 3}
    assert all(mine == every[mine[0]] for each in found for mine in each)
    pairs = {tuple(mine[0] for mine in sampled("natural(2)", [Holding("all", 2)], seed)) for seed in range(99)}
    assert pairs == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}
    assert sampled("natural(4)", [Holding("all", 4)]) == sampled("natural", [Holding("all", 4)]) == [*every.values()]
    assert str(parse("natural(sample=2)")) == "natural(2)" and str(parse("natural")) == "natural"


@pytest.mark.parametrize(
    ("text", "count", "words"),
    [
        ("natural(2)", 3, "mine has 4 clients, of which 2 are drawn, but the groups have 3: change a count"),
        ("natural(5)", 5, "the partition natural(5) draws 5 clients, but mine has 4"),
        ("natural(0)", 1, "sample of natural is 0, but must be a whole number of at least 1"),
        ("natural(0.5)", 1, "sample of natural is 0.5, but must be a whole number of at least 1"),
    ],
)
def test_a_sample_that_cannot_be_drawn(text: str, count: int, words: str) -> None:
    with pytest.raises(InputError) as caught:
        sampled(text, [Holding("all", count)])
    assert words in str(caught.value)


def test_data_without_clients_and_examples_without_one() -> None:
    plain = Dataset("plain", np.zeros((2, 1), np.uint8), np.array([0, 1]), 2, 2)
    with pytest.raises(InputError, match="natural needs data that says which client holds an example, but plain"):
        parse("natural").bound(plain, np.arange(2))
    with pytest.raises(InputError, match="example 4 of mine has no client"):
        parse("natural").bound(owned([0, 1, 2, 3, -1], official=4), np.arange(5))
    with pytest.raises(InputError, match="the partition natural cannot be used without a data set"):
        parse("natural").share(np.zeros(4, np.int64), [Holding("all", 4)], seed=0)


@given(st.lists(st.integers(0, 3), min_size=20, max_size=40), st.integers(0, 9))
def test_every_client_keeps_an_example_for_training(others: list[int], seed: int) -> None:
    data = owned([0, 1, 2, 3, *others])
    train, test = split(data, 0.5, seed)
    assert data.owners is not None
    assert set(data.owners[train]) == {0, 1, 2, 3} and len(test) == round(len(data) / 2)


def test_more_cannot_be_held_out_than_clients_can_spare() -> None:
    with pytest.raises(InputError, match=r"holdout is 0\.5, but at most 1 of 5 examples of mine can be held out"):
        split(owned([0, 1, 2, 3, 3]), 0.5, seed=0)


# A file that names the clients.


def mapped(text: str, tmp_path: Path, official: int = 4) -> Dataset:
    (tmp_path / "map.csv").write_text(text)
    chosen = parse("file(map.csv)")
    assert isinstance(chosen, File)
    data = Dataset("tiny", np.zeros((4, 1), np.uint8), np.array([0, 1, 0, 1]), 2, official)
    return chosen.owned(data, tmp_path)


@pytest.mark.parametrize("text", ["file(map.csv)", "file('map.csv')", 'file("map.csv")', " file( map.csv ) "])
def test_the_name_of_the_file_may_stand_without_quotes(text: str) -> None:
    assert str(parse(text)) == "file('map.csv')" == str(parse(str(parse(text))))


@pytest.mark.parametrize(
    ("text", "clients", "owners"),
    [
        ("example,client\n2,b\n0,a\n1,a\n3,b\n", ("a", "b"), [0, 0, 1, 1]),
        ("client,why,example\nb,x,2\na,x,0\nc,x,1\n", ("a", "b", "c"), [0, 2, 1, -1]),
        ("\ufeffexample,client\n0,a\n\n", ("a",), [0, -1, -1, -1]),
        ("10\n9\n10\n9\n", ("9", "10"), [1, 0, 1, 0]),
        (f"{'9' * 30}\n1\n1\n1\n", ("1", "9" * 30), [1, 0, 0, 0]),
        ("client\n01\n1\n01\n1\n\n", ("01", "1"), [0, 1, 0, 1]),
    ],
)
def test_a_file_names_the_clients(text: str, clients: tuple[str, ...], owners: list[int], tmp_path: Path) -> None:
    data = mapped(text, tmp_path)
    assert data.owners is not None
    assert (data.clients, data.owners.tolist()) == (clients, owners)


def test_one_client_per_line_may_leave_the_test_part_out(tmp_path: Path) -> None:
    data = mapped("b\na\nb\n", tmp_path, official=3)
    assert data.owners is not None and data.owners.tolist() == [1, 0, 1, -1]


def test_clients_with_nothing_but_test_examples_are_nobody(tmp_path: Path) -> None:
    data = mapped("b\nb\nc\na\n", tmp_path, official=3)
    assert data.owners is not None
    assert (data.clients, data.owners.tolist()) == (("b", "c"), [0, 0, 1, -1])


def test_the_content_of_the_file_counts_for_the_fingerprint(tmp_path: Path) -> None:
    assert mapped("a\na\nb\nb\n", tmp_path).fingerprint != mapped("a\nb\nb\nb\n", tmp_path).fingerprint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("example,client\n0,a\n4,b\n", "line 3 of the partition file"),
        ("example,client\n0,a\n4,b\n", "has the example '4', but must have a number from 0 to 3"),
        (f"example,client\n{'9' * 5000},a\n", "but must have a number from 0 to 3"),
        ("example,client\n-1,a\n", "has the example '-1', but must have a number"),
        ("example,client\n1,a\n2,b\n1,b\n", "has the example 1 again: it is in line 2, too"),
        ("example,client\n1,\n", "line 2 of the partition file"),
        ("example,client\n1,a,b\n", "has 3 cells, but the header has 2"),
        ("a\n\nb\nb\n", "names no client"),
        ("a\nb,c\nb\nb\n", "has 2 cells, but without a header it must be one client"),
        ("a\nb\n", "names 2 clients, but tiny has 4 examples: write one client per line, or the header"),
        ("", "names 0 clients"),
    ],
)
def test_a_mistake_in_the_file(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        mapped(text, tmp_path)
    assert words in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    data = owned([0, 1, 2, 3])
    with pytest.raises(InputError, match="cannot be opened"):
        File(Path("gone.csv")).owned(data, tmp_path)
    (tmp_path / "map.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not a CSV file in UTF-8"):
        File(Path("map.csv")).owned(data, tmp_path)
    with pytest.raises(InputError, match=r"path of file is 3, but must be a file name"):
        File(3)  # type: ignore[arg-type]
