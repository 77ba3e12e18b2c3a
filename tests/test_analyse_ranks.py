"""Mean ranks over experiments and seeds: the tests against published tables and formulas, and failed runs."""

from math import sqrt
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fairlag.analyse.ranks import ranks, ranks_of
from fairlag.errors import InputError
from fairlag.lab.run import Run
from fairlag.lab.store import Store
from tests.support.command import Call
from tests.support.runs import played, strategies


@pytest.mark.parametrize(("many", "q"), [(3, 2.343), (4, 2.569), (5, 2.728), (7, 2.949), (10, 3.164)])
def test_the_critical_difference_is_that_of_the_published_table(many: int, q: float) -> None:
    # Demšar 2006, table 5(a), for p = 0.05.
    losses = np.random.default_rng(many).normal(size=(12, many))
    found = ranks_of([str(each) for each in range(many)], losses)
    assert found.critical == pytest.approx(q * sqrt(many * (many + 1) / (6 * 12)), rel=3e-4)


def test_the_p_value_is_that_of_friedmans_formula() -> None:
    losses = np.random.default_rng(2).normal(size=(9, 4)) + np.arange(4)
    found = ranks_of(["A", "B", "C", "D"], losses)
    sums = np.argsort(np.argsort(losses, axis=1), axis=1).sum(axis=0) + 9  # ranks start with 1
    statistic = 12 / (9 * 4 * 5) * float((sums**2).sum()) - 3 * 9 * 5
    assert found.p == pytest.approx(float(stats.chi2.sf(statistic, 3)))
    assert sorted(found.means) == pytest.approx(sorted(sums / 9))


def test_strategies_without_a_difference_are_alike() -> None:
    found = ranks_of(["A", "B", "C"], np.ones((5, 3)))
    assert (found.p, found.means, found.alike) == (1.0, (2.0, 2.0, 2.0), [(0, 2)])


def test_equal_strategies_are_seldom_told_apart() -> None:
    draws = np.random.default_rng(6).normal(size=(400, 8, 4))
    wrong = sum(ranks_of(["A", "B", "C", "D"], losses).alike != [(0, 3)] for losses in draws)
    assert wrong / 400 < 0.05 + 3 * 0.011  # three standard errors


def test_a_clear_order() -> None:
    losses = np.tile([3.0, 1.0, 2.0], (20, 1))
    found = ranks_of(["C", "A", "B"], losses)
    assert (found.labels, found.means, found.alike) == (("A", "B", "C"), (1.0, 2.0, 3.0), [])


def failing(folder: Path, label: str, seed: int) -> Run:
    meta = {"experiment": "demo", "label": label, "seed": seed, "aggregations": 9}
    group_of, examples = np.array([0, 0, 1]), np.array([1, 1, 1])
    with Store.create(
        folder, meta, experiment="", groups=("fast", "slow"), group_of=group_of, examples=examples
    ) as store:
        store.fail("version 3 is not finite: the model diverged")
    return Run(folder)


def test_a_failed_run_has_the_last_rank_and_an_unfinished_one_leaves_its_seed_out(tmp_path: Path) -> None:
    runs = strategies(tmp_path, A=[90, 91, 92, 93], B=[80, 81, 82], C=[70, 71, 72, 73])
    unfinished = played(tmp_path / "B4", "B", seed=3, finished=False)
    failed = failing(tmp_path / "A9", "A", 9)
    others = [played(tmp_path / f"{label}9", label, right=(50, 50), seed=9) for label in "BC"]
    found = ranks([*runs, unfinished, failed, *others])
    assert (found.labels, found.means) == (("A", "B", "C"), (1.5, 1.875, 2.625))
    assert found.failed == ("A on demo, seed 9",)
    assert found.left_out == ("demo, seed 3",)


def test_what_cannot_be_ranked_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ranks need at least 3 strategies, but there are 2"):
        ranks(strategies(tmp_path / "two", A=[90, 91, 92], B=[80, 81, 82]))
    with pytest.raises(InputError, match=r"at least 3 pairs of experiment and seed .* but there are 2"):
        ranks(strategies(tmp_path / "short", A=[90, 91, 92], B=[80, 81], C=[70, 71]))


def test_ranks_are_drawn_with_their_numbers(call: Call, tmp_path: Path) -> None:
    strategies(tmp_path / "runs", A=[90, 91, 92, 93], B=[80, 81, 82, 83], C=[70, 71, 72, 73])
    file = tmp_path / "ranks.svg"
    assert call("figure", str(tmp_path / "runs"), "--kind", "ranks", "--out", str(file)).code == 0
    found = pd.read_csv(tmp_path / "ranks.numbers.csv")
    assert found[found["label"].isin(["A", "B", "C"])]["x"].tolist() == [1.0, 2.0, 3.0]
    assert "critical difference 1.66" in file.read_text()
