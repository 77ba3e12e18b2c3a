"""The worst tenth of clients, the gap between groups, and where comparisons and trackers tell them."""

import json
from collections.abc import Sequence
from math import inf, isnan, nan
from pathlib import Path

import numpy as np
import pytest

from fairlag.analyse.compare import compare
from fairlag.analyse.own_data import own_data, own_scores
from fairlag.analyse.ranking import ranked
from fairlag.analyse.totals import OwnScores
from fairlag.lab.run import Run
from fairlag.lab.track.points import Points
from fairlag.report.compared import Compared
from tests.support.command import Call
from tests.support.edits import changed
from tests.support.own_data import run_with_tests
from tests.support.runs import played


def scores(values: Sequence[float], *, higher: bool = True) -> OwnScores:
    return OwnScores.of(values, ["fast"] * len(values), higher=higher)


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 500])
def test_the_worst_tenth_is_the_quantile_of_numpy_from_the_bad_side(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    assert scores(values.tolist()).worst_tenth == np.quantile(values, 0.1)
    assert scores(values.tolist(), higher=False).worst_tenth == np.quantile(values, 0.9)
    assert scores((-values).tolist(), higher=False).worst_tenth == pytest.approx(-np.quantile(values, 0.1))


def test_the_worst_tenth_by_hand() -> None:
    eleven = [place / 10 for place in range(11)]
    assert scores(eleven).worst_tenth == pytest.approx(0.1)  # the second of eleven
    assert scores(eleven, higher=False).worst_tenth == pytest.approx(0.9)
    assert scores([0.2, 0.6]).worst_tenth == pytest.approx(0.24)  # a tenth of the way


def test_a_client_without_a_value_does_not_count() -> None:
    own = OwnScores.of([0.5, nan, 0.7], ["fast", "slow", "fast"], higher=True)
    assert own.by_group == {"fast": pytest.approx(0.6)} and isnan(own.group_gap)
    nobody = scores([nan])
    assert isnan(nobody.mean) and isnan(nobody.worst_tenth) and nobody.by_group == {}
    assert scores([1.0, inf], higher=False).mean == inf


def test_comparisons_have_the_worst_tenth_and_the_gap_over_seeds(tmp_path: Path) -> None:
    runs = [
        run_with_tests(tmp_path / "0", [0.9, 0.7, 0.4], [0.9, 0.9, 0.8]),
        run_with_tests(tmp_path / "1", [0.9, 0.7, 0.6], [0.9, 0.9, 0.8], seed=1),
    ]
    (found,) = compare(runs)
    assert found.own_data.mean == pytest.approx((2.0 + 2.2) / 6)
    assert found.worst_tenth.mean == pytest.approx((0.46 + 0.62) / 2)  # a fifth of the way from the worst to the next
    assert found.group_gap.mean == pytest.approx((0.4 + 0.2) / 2)
    assert found.group_gap.deviation == pytest.approx(0.2 / 2**0.5)
    assert found.group_gap_personalised.mean == pytest.approx(0.1)
    told = found.as_json()
    assert told["worst_tenth"]["mean"] == found.worst_tenth.mean and told["worst_tenth_personalised"]["seeds"] == 2
    frame = Compared(ranked([found])).frame()
    assert frame["group_gap"].tolist() == [found.group_gap.mean]


def test_runs_whose_clients_are_not_tested_say_nothing_about_it(tmp_path: Path) -> None:
    run = played(tmp_path, "FedAvg")
    (found,) = compare([run])
    assert not any("own" in name or "tenth" in name or "gap" in name for name in found.as_json())
    assert own_data([run]) is None and run.client_scores().empty
    assert not any("tenth" in name for name in Points(tmp_path, 1, trains=True).last().metrics)
    assert "tenth" not in " ".join(Compared(ranked([found])).frame().columns)


def test_trackers_are_told_at_the_end(tmp_path: Path) -> None:
    run_with_tests(tmp_path, [0.9, 0.7, 0.4], [0.9, 0.9, 0.8])
    told = Points(tmp_path, 1, trains=True).last().metrics
    assert told["group_gap"] == pytest.approx(0.4)
    assert told["worst_tenth_personalised"] == pytest.approx(0.82)


MSE = json.dumps([{"name": "mse", "higher": False, "rate": False}])


def test_groups_of_a_regression_are_scored_on_their_clients_own_data(tmp_path: Path) -> None:
    run = run_with_tests(tmp_path, [3.0, 5.0, 9.0], [2.0, 2.0, 3.0], metric="mse")
    run = changed(run, f"REPLACE INTO meta VALUES ('metrics', '{MSE}')", "DELETE FROM evaluations")
    (found,) = compare([run])
    fast, slow = found.groups
    assert (fast.mse.mean, slow.mse.mean, fast.leading.final.mean) == (4.0, 9.0, 4.0)
    assert found.worst_tenth.mean == pytest.approx(8.2)  # the worst are the highest
    assert any("own test data" in remark for remark in found.remarks)
    assert own_scores(run)[True].group_gap == 1.0


def test_the_comparison_in_a_terminal_has_a_row_per_model(tmp_path: Path, call: Call) -> None:
    run_with_tests(tmp_path / "run", [0.9, 0.7, 0.4], [0.9, 0.9, 0.8])
    lines = call("compare", str(tmp_path)).out.splitlines()
    title = next(place for place, line in enumerate(lines) if "Accuracy on clients' own test data" in line)
    cells = [line.split() for line in lines[title : title + 7]]
    assert ["FedAvg", "66.67", "46.00", "40.00"] in cells
    assert ["after", "own", "local", "steps", "86.67", "82.00", "10.00"] in cells


def test_a_run_counts_once_it_is_finished(tmp_path: Path) -> None:
    run = run_with_tests(tmp_path, [0.9, 0.7, 0.4], finished=False)
    assert isinstance(run, Run) and len(run.client_scores()) == 3
    (found,) = compare([run])
    assert "own_data" not in found.metrics and own_data([run]) is None
