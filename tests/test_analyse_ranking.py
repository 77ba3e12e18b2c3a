"""Rankings of small runs made by hand: the exact order by every criterion, ties, and what lacks a number."""

from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from fairlag.analyse.compare import Comparison, compare
from fairlag.analyse.metrics import criteria
from fairlag.analyse.ranking import least_served, ranked
from fairlag.errors import InputError
from fairlag.lab.run import Run
from fairlag.report.comparison import compare_table
from tests.support.runs import made, played


def order(runs: Sequence[Run], by: str, targets: Sequence[float] = (0.4,)) -> list[tuple[int, str]]:
    (ranking,) = ranked(compare(runs, targets), by)
    return [(row.rank, row.comparison.label) for row in ranking.rows]


@pytest.fixture
def four(tmp_path: Path) -> list[Run]:
    """No two criteria put these in the same order; the last is unfinished, and far from the target."""
    return [
        played(tmp_path / "a", "A", right=(90, 50), influence=(0.45, 0.45, 0.1), time=10.0),
        played(tmp_path / "b", "B", right=(80, 70), influence=(0.25, 0.25, 0.5), time=30.0),
        played(tmp_path / "c", "C", right=(60, 60), influence=(0.6, 0.1, 0.3), time=20.0),
        played(tmp_path / "d", "D", right=(30, 30), influence=(0.33, 0.33, 0.34), time=1.0, finished=False),
    ]


@pytest.mark.parametrize(
    ("by", "labels"),
    [("accuracy", "BACD"), ("group", "BCAD"), ("influence", "DCBA"), ("jain", "DBAC"), ("time", "ACBD")],
)
def test_the_order_by_each_criterion(four: list[Run], by: str, labels: str) -> None:
    assert order(four, by) == list(enumerate(labels, 1))
    assert order(four[::-1], by) == list(enumerate(labels, 1))


def test_every_criterion_is_tried_above() -> None:
    assert list(criteria()) == ["accuracy", "group", "influence", "jain", "time"]


def test_a_row_has_what_it_is_ranked_by(four: list[Run]) -> None:
    (ranking,) = ranked(compare(four, [0.4, 0.7]))
    assert (ranking.experiment, ranking.by, ranking.group) == ("demo", "accuracy", "slow")
    best, last = ranking.rows[0], ranking.rows[-1]
    assert best.group is not None
    assert (best.group.name, best.group.leading.final.mean, best.group.influence.mean) == ("slow", 0.7, 0.5)
    assert best.group.fair == pytest.approx(1 / 3)
    assert best.reached is not None
    assert (best.reached.target, best.reached.virtual_time.mean) == (0.4, 30.0)
    assert last.reached is not None
    assert last.reached.virtual_time.mean is None
    first, second, *_ = ranking.as_json()
    assert first == {**best.comparison.as_json(), "rank": 1, "against_first": None}
    assert second["against_first"]["seeds"] == 1


def test_accuracy_is_the_mean_over_the_seeds_that_finished(tmp_path: Path) -> None:
    runs = [
        played(tmp_path / "a0", "A", right=(90, 90)),
        played(tmp_path / "a1", "A", right=(50, 50), seed=1),
        played(tmp_path / "b0", "B", right=(75, 75)),
        played(tmp_path / "b1", "B", right=(0, 0), seed=1, finished=False),
    ]
    assert order(runs, "accuracy") == [(1, "B"), (2, "A")]


def test_equals_share_a_rank_and_keep_their_order(tmp_path: Path) -> None:
    rights = {"A": 60, "B": 70, "C": 60, "D": 50}
    runs = [played(tmp_path / label, label, right=(right, right)) for label, right in rights.items()]
    assert order(runs, "accuracy") == [(1, "B"), (2, "A"), (2, "C"), (4, "D")]
    assert order(runs[::-1], "accuracy") == [(1, "B"), (2, "C"), (2, "A"), (4, "D")]
    assert order(runs, "jain") == [(1, "A"), (1, "B"), (1, "C"), (1, "D")]


@pytest.mark.parametrize("by", criteria())
def test_what_lacks_the_number_comes_last_and_shares_its_rank(tmp_path: Path, by: str) -> None:
    runs = [
        played(tmp_path / "x", "X", right=(1, 1), sent=(), finished=False),
        played(tmp_path / "y", "Y", right=(1, 1), sent=(), finished=False),
        played(tmp_path / "z", "Z"),
    ]
    assert order(runs, by) == [(1, "Z"), (2, "X"), (2, "Y")]


def test_a_seed_that_has_just_begun_has_no_influence_yet(tmp_path: Path) -> None:
    runs = [
        played(tmp_path / "a0", "A", influence=(0.3, 0.3, 0.4)),
        played(tmp_path / "a1", "A", seed=1, sent=(), finished=False),
        played(tmp_path / "b0", "B", influence=(0.4, 0.4, 0.2)),
    ]
    assert order(runs, "influence") == [(1, "A"), (2, "B")]
    slow = compare(runs)[0].groups[1]
    assert slow.influence.mean == pytest.approx(0.4)
    assert (slow.share.mean, slow.influence.seeds) == (0.2, 1)


def test_a_strategy_whose_every_seed_got_there_is_before_one_of_which_only_some_did(tmp_path: Path) -> None:
    runs = [
        played(tmp_path / "a0", "Lucky", time=5.0),
        played(tmp_path / "a1", "Lucky", time=5.0, right=(10, 10), seed=1),
        played(tmp_path / "b0", "Sure", time=9.0),
        played(tmp_path / "b1", "Sure", time=9.0, seed=1),
        played(tmp_path / "c0", "Never", right=(10, 10)),
        played(tmp_path / "c1", "Never", right=(10, 10), seed=1),
    ]
    assert order(runs, "time") == [(1, "Sure"), (2, "Lucky"), (3, "Never")]
    assert order(runs, "time", [0.1]) == [(1, "Never"), (2, "Lucky"), (3, "Sure")]


def test_the_least_served_group_is_the_same_in_all_rows(tmp_path: Path) -> None:
    (one,) = compare([played(tmp_path / "a", "A", sent=(0, 1, 0, 2, 2))])
    # Two fast clients sent more than the slow one, but less each.
    assert least_served([one]) == "fast"
    one, other = compare([Run(tmp_path / "a"), played(tmp_path / "b", "B", sent=(0, 1, 0, 1, 0, 1, 0, 1))])
    # The slow one sent 2 of 5 and 0 of 8 where 1 of 3 would be fair: 0.6 of that on average; the fast ones 1.2.
    assert least_served([one, other]) == "slow"
    (ranking,) = ranked([one, other], "group")
    assert {row.group.name for row in ranking.rows if row.group} == {"slow"}


def test_no_group_is_named_while_nobody_has_sent_anything(tmp_path: Path) -> None:
    (ranking,) = ranked(compare([played(tmp_path, "A", sent=(), finished=False)]))
    assert (ranking.group, ranking.rows[0].group) == (None, None)
    assert ranked([]) == []


def test_a_fleet_without_that_group_comes_last(tmp_path: Path) -> None:
    runs = [
        played(tmp_path / "a/0", "A", groups=("near", "far"), sent=(0, 1, 2), right=(99, 99)),
        played(tmp_path / "b/0", "B", right=(40, 40)),
    ]
    assert order(runs, "group") == [(1, "B"), (2, "A")]
    assert order(runs, "influence") == [(1, "B"), (2, "A")]
    assert order(runs, "accuracy") == [(1, "A"), (2, "B")]


def test_other_words_are_refused(tmp_path: Path) -> None:
    words = "cannot rank the strategies of 'demo' by 'speed': choose from accuracy, group, influence, jain"
    with pytest.raises(InputError, match=words):
        ranked(compare([made(tmp_path)]), "speed")


# As a table


def shown(comparisons: Sequence[Comparison], by: str, width: int = 80) -> list[str]:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(compare_table(ranked(comparisons, by)), highlight=False)
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def drawn(runs: Sequence[Run], by: str = "accuracy") -> list[str]:
    return shown(compare(runs, [0.4]), by)


def test_the_table_of_a_ranking(four: list[Run]) -> None:
    expected = """\
Comparison of demo, ranked by the group's influence; group: slow

  strategy  accuracy %  group %  ▾influence   fair   Jain  time
1 D                  –        –       0.340  0.333  1.000     –
2 C              60.00    60.00       0.300  0.333  0.725    20
3 B              75.00    70.00       0.500  0.333  0.889    30
4 A              70.00    50.00       0.100  0.333  0.803    10

▾ the closest to fair first
accuracy: final, on all test examples; mean ± deviation over finished seeds
group: the same on the labels of slow, whose clients send the fewest updates
influence: group slow's share of all weight; fair: its share of all clients
time: virtual time to 40 % accuracy
"""
    assert drawn(four, "influence")[: expected.count("\n")] == expected.splitlines()


def test_twenty_strategies_with_long_labels_fit_80_columns_and_are_told_apart(tmp_path: Path) -> None:
    long = "FedStaleWeight (scaling=algorithm1, window=5, buffer=10, mu={:02})"
    runs = [
        played(tmp_path / f"{place}-{seed}", long.format(place), seed=seed, right=(100, 100 - seed), time=1e7)
        for place in range(20)
        for seed in (0, 1)
    ]
    comparisons = compare(runs, [0.4])
    for by in criteria():
        lines = shown(comparisons, by)
        assert max(map(len, lines)) <= 80
        rows = lines[3:23]
        cut = [row.partition("99.75 ±0.35 99.50 ±0.71 ") for row in rows]
        assert [label.split()[0] for label, _, _ in cut] == ["1"] * 20
        assert [label.rstrip()[-6:] for label, _, _ in cut] == [f"mu={place:02})" for place in range(20)]
        assert all("…" in label and rest.endswith(" 10,000,000") for label, _, rest in cut)
    wide = shown(comparisons, "time", width=200)
    assert [row.split("  ")[0].strip() for row in wide[3:23]] == [f"1 {long.format(place)}" for place in range(20)]


def test_the_table_says_of_how_many_seeds_the_time_is(tmp_path: Path) -> None:
    runs = [played(tmp_path / "0", "A", time=5.0), played(tmp_path / "1", "A", right=(10, 10), seed=1)]
    lines = drawn(runs, "time")
    assert lines[3].endswith(" 5 (1/2)")
    assert "time: virtual time to 40 % accuracy; (1/2): only one of two seeds reached it" in lines
    assert "Jain" in lines[2]
    assert lines[2].endswith("▾time")


def test_what_has_no_number_is_shown_last_without_a_rank(four: list[Run]) -> None:
    assert [line.split()[:2] for line in drawn(four)[3:7]] == [["1", "B"], ["2", "A"], ["3", "C"], ["–", "D"]]


def test_brackets_in_a_label_are_no_style(tmp_path: Path) -> None:
    assert drawn([played(tmp_path, "A [red]")])[3].startswith("1 A [red] ")
