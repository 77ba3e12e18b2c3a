"""Whether seeds tell strategies apart: the test against scipy's, how often it errs, and the sentences that use it."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fairlag.analyse.compare import compare
from fairlag.analyse.ranking import ranked
from fairlag.analyse.significance import told_apart
from fairlag.lab.run import Run
from fairlag.report.page.summary import findings
from fairlag.report.ranking import told_apart as words
from tests.support.runs import played


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


def test_too_few_seeds_tell_nothing() -> None:
    assert told_apart(by_seed(0.9, 0.91), by_seed(0.1, 0.11)).words == "2 seeds are too few"
    assert told_apart(by_seed(0.9), by_seed(0.1, 0.2, 0.3, first=7)).words == "1 seed is too few"
    assert not told_apart({}, by_seed(0.1, 0.2, 0.3)).clear


def test_equal_values_and_equal_differences() -> None:
    assert not told_apart(by_seed(0.1, 0.2, 0.3), by_seed(0.1, 0.2, 0.3)).clear
    assert told_apart(by_seed(0.5, 0.5, 0.5), by_seed(0.25, 0.25, 0.25)).clear
    assert told_apart(by_seed(0.5, 0.5, 0.5), by_seed(0.25, 0.25, 0.25, first=5)).clear


@pytest.mark.parametrize("shared", [True, False])
def test_equal_strategies_are_told_apart_about_once_in_twenty(shared: bool) -> None:
    generator = np.random.default_rng(1)
    draws = generator.normal(0.9, 0.02, (2000, 2, 5))
    found = [told_apart(by_seed(*one), by_seed(*other, first=0 if shared else 9)) for one, other in draws.tolist()]
    # The standard error of 2000 is 0.5 %; Welch's test is a little conservative with five seeds each.
    assert np.mean([test.clear for test in found]) == pytest.approx(0.05, abs=0.016)


def strategies(folder: Path, **rights: list[int]) -> list[Run]:
    """One run per seed: how many of a hundred were right in the end."""
    return [
        played(folder / f"{label}{seed}", label, right=(right, right), seed=seed)
        for label, values in rights.items()
        for seed, right in enumerate(values)
    ]


def test_the_first_sentence_crowns_nobody_whom_seeds_do_not_carry(tmp_path: Path) -> None:
    first = findings(compare(strategies(tmp_path / "two", A=[93, 91], B=[93, 90])))[0]
    assert first == (
        "The strategies are not distinguishable by accuracy (2 seeds are too few): it ranges from "
        "91.5\u00a0% for B to 92.0\u00a0% for A."
    )
    runs = strategies(tmp_path / "five", A=[93, 91, 90, 94, 92], B=[91, 92, 92, 91, 93], C=[60, 58, 59, 61, 57])
    assert findings(compare(runs))[0] == (
        "No strategy is clearly the most accurate: A, 92.0\u00a0%, is not distinguishable from B (t-test over seeds, "
        "paired over those that both have, p ≥ 0.05). C ended with the lowest, 59.0\u00a0%."
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
    assert line == "not distinguishable from the first: B (paired t-test over 5 seeds, p = 0.85)"
    for by in ("influence", "jain", "time"):
        (line,) = words(ranked(compared, by)[0])
        assert line == "not distinguishable from the first: B, C (paired t-test over 5 seeds, p = 1)"
    (clear,) = words(ranked(compare([*runs[:5], *runs[10:]]), "accuracy")[0])
    assert clear.startswith("the first is distinguishable from all others (t-test over seeds, ")
    assert list(words(ranked(compare(runs[:5]), "accuracy")[0])) == []
