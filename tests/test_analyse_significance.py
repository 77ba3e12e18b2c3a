"""Whether seeds tell strategies apart: the test against scipy's, how often it errs, and the sentences that use it."""

from itertools import combinations
from math import nan
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fairlag.analyse import significance
from fairlag.analyse.compare import compare
from fairlag.analyse.ranking import ranked
from fairlag.analyse.significance import holm, told_apart
from fairlag.lab.run import Run
from fairlag.lab.store import Store
from fairlag.report.differences import differences
from fairlag.report.page.summary import findings
from fairlag.report.ranking import told_apart as words
from tests.support.runs import strategies
from tests.support.scores import regressed


def by_seed(*values: float, first: int = 0) -> dict[int, float]:
    return {first + place: value for place, value in enumerate(values)}


def test_the_p_value_is_that_of_scipy() -> None:
    generator = np.random.default_rng(0)
    one, other = generator.normal(0, 1, 5).tolist(), generator.normal(1, 2, 4).tolist()
    paired = told_apart(by_seed(*one), by_seed(*other))
    assert (paired.seeds, paired.paired) == (4, True)
    assert paired.p == pytest.approx(stats.ttest_rel(one[:4], other).pvalue)
    welch = told_apart(by_seed(*one), by_seed(*other, first=4))  # only one seed is shared
    assert (welch.seeds, welch.paired) == (4, False)
    assert welch.p == pytest.approx(stats.ttest_ind(one, other, equal_var=False).pvalue)


def test_the_interval_is_that_of_scipy() -> None:
    generator = np.random.default_rng(3)
    one, other = generator.normal(0, 1, 5).tolist(), generator.normal(1, 2, 4).tolist()
    for found, interval in (
        (told_apart(by_seed(*one), by_seed(*other)), stats.ttest_rel(one[:4], other).confidence_interval(0.95)),
        (
            told_apart(by_seed(*one), by_seed(*other, first=9)),
            stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95),
        ),
    ):
        assert found.difference - found.margin == pytest.approx(interval.low)
        assert found.difference + found.margin == pytest.approx(interval.high)


def test_holm_is_the_closed_test_of_all_subsets_by_bonferroni() -> None:
    # The definition: a hypothesis is refused if Bonferroni refuses every set of hypotheses that it belongs to.
    values = np.random.default_rng(4).uniform(0, 0.2, 5).tolist()
    subsets = [each for size in range(1, 6) for each in combinations(range(5), size)]
    closed = [
        max(min(1.0, len(each) * min(values[other] for other in each)) for each in subsets if place in each)
        for place in range(5)
    ]
    found = holm([significance.Test(5, True, p) for p in values])
    assert [test.p for test in found] == pytest.approx(closed)
    assert [test.comparisons for test in found] == [5] * 5


def test_pairs_with_too_few_seeds_do_not_count_for_the_correction() -> None:
    found = holm([significance.Test(5, True, 0.03), significance.Test(2, True, 1.0)])
    assert [(test.p, test.comparisons) for test in found] == [(0.03, 1), (1.0, 1)]


def test_less_than_one_test_example_is_never_clear() -> None:
    other = by_seed(0.90, 0.91, 0.92, 0.93, 0.94)
    one, example = ({seed: score + by for seed, score in other.items()} for by in (0.0009, 0.001))
    assert told_apart(one, other).clear
    found = told_apart(one, other, floor=0.001)
    assert not found.clear
    assert found.words == "they differ by less than one test example"
    assert told_apart(example, other, floor=0.001).clear


def test_one_family_in_twenty_errs() -> None:
    # Five equal strategies that share the noise of their seeds: ten pairs, of which none differs.
    generator = np.random.default_rng(5)
    draws = generator.normal(0.9, 0.02, (1000, 5, 5)) + generator.normal(0, 0.05, (1000, 1, 5))
    alone, together = 0, 0
    for strategies_drawn in draws.tolist():
        pairs = combinations([by_seed(*values) for values in strategies_drawn], 2)
        tests = [told_apart(one, other) for one, other in pairs]
        alone += any(test.clear for test in tests)
        together += any(test.clear for test in holm(tests))
    assert alone / 1000 > 0.2
    assert together / 1000 < 0.05 + 3 * 0.007  # three standard errors


def test_too_few_seeds_tell_nothing() -> None:
    assert told_apart(by_seed(0.9, 0.91), by_seed(0.1, 0.11)).words == "2 seeds are too few"
    assert told_apart(by_seed(0.9), by_seed(0.1, 0.2, 0.3, first=7)).words == "1 seed is too few"
    assert not told_apart({}, by_seed(0.1, 0.2, 0.3)).clear


def test_equal_values_and_equal_differences() -> None:
    assert not told_apart(by_seed(0.1, 0.2, 0.3), by_seed(0.1, 0.2, 0.3)).clear
    assert told_apart(by_seed(0.5, 0.5, 0.5), by_seed(0.25, 0.25, 0.25)).clear
    assert told_apart(by_seed(0.5, 0.5, 0.5), by_seed(0.25, 0.25, 0.25, first=5)).clear


def test_equal_differences_are_no_more_certain_than_scores_rounded_to_examples() -> None:
    # Five times the same six of 359 examples apart. By hand: t = 6 / sqrt(1 / 6 / 5) = 32.9 with 4 degrees of freedom.
    one, other = by_seed(*[342 / 359] * 5), by_seed(*[336 / 359] * 5)
    found = told_apart(one, other, 1 / 359)
    assert found.clear and found.p == pytest.approx(2 * stats.t.sf(6 * 30**0.5, 4), rel=1e-6)
    assert found.margin == pytest.approx(stats.t.ppf(0.975, 4) * 30**-0.5 / 359)
    # Two examples apart in all of three seeds: t = 2 * sqrt(18) with 2 degrees of freedom, p = 0.014; one: p = 0.051.
    apart = [told_apart(by_seed(*[(200 + by) / 359] * 3), by_seed(*[200 / 359] * 3), 1 / 359) for by in (2, 1)]
    assert [round(test.p, 3) for test in apart] == [0.014, 0.051]
    unpaired = told_apart(one, by_seed(*[336 / 359] * 5, first=9), 1 / 359)
    assert unpaired.margin == pytest.approx(stats.t.ppf(0.975, 8) * 30**-0.5 / 359)


@pytest.mark.parametrize("shared", [True, False])
def test_equal_strategies_are_told_apart_about_once_in_twenty(shared: bool) -> None:
    generator = np.random.default_rng(1)
    draws = generator.normal(0.9, 0.02, (2000, 2, 5))
    found = [told_apart(by_seed(*one), by_seed(*other, first=0 if shared else 9)) for one, other in draws.tolist()]
    # The standard error of 2000 is 0.5 %; Welch's test is a little conservative with five seeds each.
    assert np.mean([test.clear for test in found]) == pytest.approx(0.05, abs=0.016)


def test_the_first_sentence_crowns_nobody_whom_seeds_do_not_carry(tmp_path: Path) -> None:
    first = findings(compare(strategies(tmp_path / "two", A=[93, 91], B=[93, 90])))[0]
    assert first == (
        "The strategies are not distinguishable by accuracy (2 seeds are too few): it ranges from "
        "91.5\u00a0% for B to 92.0\u00a0% for A."
    )
    runs = strategies(tmp_path / "five", A=[93, 91, 90, 94, 92], B=[91, 92, 92, 91, 93], C=[60, 58, 59, 61, 57])
    assert findings(compare(runs))[0] == (
        "No strategy is clearly the most accurate: A, 92.0\u00a0%, is not distinguishable from B (paired t-test over "
        "5 seeds, p = 0.85 after Holm for 3 comparisons). C ended with the lowest, 59.0\u00a0%."
    )


def test_a_winner_that_seeds_carry_is_named(tmp_path: Path) -> None:
    runs = strategies(tmp_path, A=[93, 91, 90, 94, 92], B=[90, 89, 87, 90, 89], C=[60, 58, 59, 61, 57])
    assert findings(compare(runs))[0] == (
        "A ended with the highest accuracy, 92.0\u00a0%. C ended with the lowest, 59.0\u00a0%."
    )
    assert findings(compare(runs[:5]))[0] == "A ended with an accuracy of 92.0\u00a0%."


def test_every_ranking_says_whether_the_first_is_distinguishable(tmp_path: Path) -> None:
    runs = strategies(tmp_path, A=[93, 91, 90, 94, 92], B=[91, 92, 92, 91, 93], C=[60, 58, 59, 61, 57])
    compared = compare(runs)
    (by_accuracy,) = ranked(compared, "accuracy")
    (line,) = words(by_accuracy)
    assert (
        line
        == "not distinguishable from the first: B (paired t-test over 5 seeds, p = 0.85 after Holm for 3 comparisons)"
    )
    for by in ("influence", "jain", "time"):
        (line,) = words(ranked(compared, by)[0])
        assert line.startswith("not distinguishable from the first: B, C (paired t-test over 5 seeds, p = 1 after Holm")
    (clear,) = words(ranked(compare([*runs[:5], *runs[10:]]), "accuracy")[0])
    assert clear.startswith("the first is distinguishable from all others (t-test over seeds, ")
    assert list(words(ranked(compare(runs[:5]), "accuracy")[0])) == []


def test_strategies_less_than_one_example_apart_share_a_rank(tmp_path: Path) -> None:
    # A test set of 200: B's mean is 0.4 examples below A's.
    runs = strategies(tmp_path, A=[93, 91, 90, 94, 92], B=[93, 91, 90, 93, 92], C=[60, 58, 59, 61, 57])
    (ranking,) = ranked(compare(runs))
    assert ranking.floor == pytest.approx(1 / 200)
    assert [(row.rank, row.comparison.label) for row in ranking.rows] == [(1, "A"), (1, "B"), (3, "C")]
    assert ranked(compare(runs), "jain")[0].floor == 0


def test_the_table_of_differences(tmp_path: Path) -> None:
    runs = strategies(tmp_path, A=[93, 91, 90, 94, 92], B=[91, 92, 92, 91, 93], C=[60, 58, 59, 61, 57])
    found = differences(ranked(compare(runs))[0])
    assert found is not None
    assert found.title == "Differences from A: accuracy %"
    assert found.rows == (
        ("B", "-0.20", "-2.89 to +2.49", "0.847", "5", "no"),
        ("C", "-33.00", "-34.76 to -31.24", "< 0.001", "5", "yes"),
    )
    assert differences(ranked(compare(runs[:2] + runs[5:7]))[0]) is None  # two seeds are too few


def test_seeds_that_failed_or_diverged_are_named(tmp_path: Path) -> None:
    runs = strategies(tmp_path, A=[93, 91, 90], B=[91, 92])
    meta = {"experiment": "demo", "label": "B", "seed": 2, "aggregations": 9}
    with Store.create(
        tmp_path / "B2",
        meta,
        experiment="",
        groups=("fast", "slow"),
        group_of=np.array([0, 0, 1]),
        examples=np.array([1, 1, 1]),
    ) as store:
        store.fail("version 3 is not finite: the model diverged, smaller steps may help")
    _, second = compare([*runs, Run(tmp_path / "B2")])
    assert (
        "seed 2 failed: version 3 is not finite: the model diverged, smaller steps may help; it was last saved at "
        "0 of 9 aggregations"
    ) in second.remarks


def test_a_finished_run_without_a_finite_score_is_named(tmp_path: Path) -> None:
    (found,) = compare([regressed(tmp_path / "0", 3.0, 2.0), regressed(tmp_path / "1", 3.0, nan, seed=1)])
    assert "seed 1 diverged: its final MSE is not finite" in found.remarks
    assert found.leading.final.seeds == 1
