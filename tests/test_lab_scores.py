"""Scores by metric: as a run records them, as `Run` answers, and those of runs of before."""

import hashlib
from math import nan
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairlag.analyse.compare import compare
from fairlag.errors import InputError, UnreadableError
from fairlag.lab.run import Run
from fairlag.lab.schema import LAYOUTS
from fairlag.lab.store import Store
from fairlag.lab.verify import verified
from fairlag.text.scored import ACCURACY
from tests.support.edits import changed, of_format_4
from tests.support.runs import made
from tests.support.scores import regressed, scored


def test_a_metric_is_asked_for_by_name(tmp_path: Path) -> None:
    run = regressed(tmp_path, 9.0, 4.0, 5.0)
    assert (run.lead.name, run.score(), run.score("r2"), run.score("loss")) == ("mse", 5.0, 0.5, 1.0)
    assert run.curve()["mse"].tolist() == [9.0, 4.0, 5.0]
    assert run.curve(metric="loss").columns.tolist()[-2:] == ["whole", "loss"]
    assert run.curve(metric="r2").empty and run.curve()["standard_error"].isna().all()
    for ask in (run.accuracy, lambda: run.curve(metric="accuracy"), lambda: run.score("accuracy")):
        with pytest.raises(InputError, match=r"^the run has no metric 'accuracy': choose from loss, mse, r2$"):
            ask()


def test_lower_is_better_in_comparisons(tmp_path: Path) -> None:
    runs = [regressed(tmp_path / "a", 9.0, 4.0, 5.0), regressed(tmp_path / "b", 9.0, 7.0, 3.0, label="B")]
    first, second = compare(runs)
    assert (first.leading.final.mean, first.leading.best.mean, second.leading.best.mean) == (5.0, 4.0, 3.0)
    assert first.mse.mean == 5.0 and first.r2.mean == 0.5
    (goal,), (other,) = first.leading.reached, second.leading.reached
    assert goal.target == 5.27  # 5 / 0.95, rounded up to three digits
    assert (goal.virtual_time.mean, other.virtual_time.mean) == (2.0, 4.0)
    assert goal.chosen == "95 % of it is the highest final MSE, 5.000 of A"
    assert compare(runs, [3.5])[1].leading.reached[0].virtual_time.mean == 4.0
    with pytest.raises(InputError, match="a target MSE is nan, it must be a finite number"):
        compare(runs, [nan])


def test_runs_that_are_judged_by_different_metrics_are_not_compared(tmp_path: Path) -> None:
    one, other = regressed(tmp_path / "a", 9.0), regressed(tmp_path / "b", 9.0, label="B")
    other = changed(other, "DELETE FROM meta WHERE key = 'metrics'")
    with pytest.raises(InputError, match=r"^the runs of 'x' are judged by accuracy and mse: compare them separately$"):
        compare([one, other])


def test_a_run_that_says_something_else_of_its_metrics_cannot_be_read(tmp_path: Path) -> None:
    run = regressed(tmp_path, 9.0)
    for said in ('[{"name": 3, "higher": true, "rate": true}]', '"mse"', '[{"name": "time"}]'):
        with pytest.raises(UnreadableError, match="its metrics is"):
            changed(run, f"REPLACE INTO meta VALUES ('metrics', '{said}')")


def test_a_run_of_format_4_is_read_as_it_was(tmp_path: Path) -> None:
    run = made(tmp_path, classes=3)
    before = run.evaluations
    of_format_4(tmp_path)
    old = Run(tmp_path)
    assert verified(tmp_path)[0] and old.meta["format"] == 4 and old.metrics == (ACCURACY,)
    pd.testing.assert_frame_equal(old.evaluations, before, check_exact=True)


def test_an_unfinished_run_of_format_4_is_not_continued(tmp_path: Path) -> None:
    nobody = np.array([0])
    with Store.create(tmp_path, {}, experiment="", groups=["all"], group_of=nobody, examples=nobody) as store:
        store.evaluated(0, 0.0, [scored("all", "", 4, 3, 0.5)])
        store.commit({}, "", 0)
    of_format_4(tmp_path)
    with pytest.raises(UnreadableError, match="has format 4, which has no metric but accuracy: this fairlag"):
        Store.open(tmp_path)


def test_tables_of_format_4_are_those_that_it_had() -> None:
    """Written down, because no fairlag writes them any more."""
    text = "\n".join(sorted(LAYOUTS[4].definitions))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "c9716ce01e093ffc"
