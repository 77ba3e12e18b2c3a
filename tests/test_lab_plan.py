"""Plans: how experiments are written, which folders they refuse, and that they survive being moved."""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag import zoo
from fairlag.errors import InputError
from fairlag.lab.experiment import load, parse
from fairlag.lab.plan import Plan, difference
from fairlag.lab.serialise import key_of, written
from fairlag.lab.simulate import execute
from fairlag.lab.strategies import Use
from fairlag.rules import weigh
from fairlag.rules.rule import factory
from tests.support.experiments import IDLE, idle


@factory
def leaning(power: float) -> weigh.Weigh:
    return lambda buffer, view: np.full(len(buffer), 1 / len(buffer)) ** power


def test_a_strategy_given_as_an_object_is_written_with_its_parameters() -> None:
    texts = {written(idle(replace(zoo.fedbuff(buffer=2), weigh=leaning(power)))) for power in (0.5, 0.9)}
    assert len(texts) == 2
    assert all("weigh=leaning(0." in text for text in texts)


def test_functions_are_written_by_their_labels_and_without_addresses() -> None:
    assert '"<leaning(0.5)>"' in written(idle(leaning(0.5)))

    def mine(buffer: Any, view: Any, power: float = 1.0) -> Any: ...

    first, second = (written(idle(replace(zoo.fedbuff(buffer=2), weigh=partial(mine, power=2)))) for _ in "ab")
    assert first == second
    assert "power=2" in first and "0x" not in first


def test_the_key_is_of_what_a_comparison_must_share(tmp_path: Path) -> None:
    same = [idle(), idle("buffered_fedavg"), idle(seed=9), idle(folder=tmp_path)]
    other = [idle(aggregations=6), idle(name="another")]
    assert [key_of(each) == key_of(idle()) for each in (*same, *other)] == [True] * 4 + [False] * 2


def test_a_delay_per_task_is_not_written_so_that_older_runs_stay_the_same() -> None:
    tables = IDLE["clients"][0]
    assert written(idle(clients=[{**tables, "delay_per": "task"}])) == written(idle())
    assert "delay_per" not in written(idle()) and '"steps"' not in written(idle())
    other = idle(clients=[{**tables, "delay_per": "step", "steps": 4}])
    assert difference(written(idle()), written(other)) == "clients[1].steps is None there and 4 here"
    assert parse(json.loads(written(other))["experiment"]) == other


def test_where_two_experiments_differ_is_said_without_their_folders(tmp_path: Path) -> None:
    assert difference(written(idle()), written(idle(seed=3, folder=tmp_path))) == "seed is 0 there and 3 here"


def test_runs_are_planned_once() -> None:
    plan = Plan(load("demo"), (0, 1), Path("nowhere"))
    assert list(plan) == list(plan) and next(iter(plan)) is next(iter(plan))
    assert len(plan) == len(list(plan)) == 6


@pytest.mark.parametrize("left", ["plan.json.partial", "lock", "experiment.json.partial", "run.sqlite.partial-journal"])
@pytest.mark.parametrize("single", [True, False])
def test_what_a_killed_process_left_is_no_use_of_a_folder(tmp_path: Path, left: str, single: bool) -> None:
    (tmp_path / left).touch()
    plan = Plan(idle(), (0,), tmp_path, single=single)
    (run,) = execute(plan, new=True)
    assert run.status == "finished"


@pytest.mark.parametrize(
    ("single", "advice"), [(True, "resume=True continues it"), (False, "`fairlag resume {}` continues it")]
)
def test_a_folder_in_use_is_refused_with_what_helps(tmp_path: Path, single: bool, advice: str) -> None:
    plan = Plan(idle(), (0,), tmp_path, single=single)
    execute(plan, new=True)
    with pytest.raises(InputError) as caught:
        execute(plan, new=True)
    assert advice.format(tmp_path) in str(caught.value)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InputError, match="exists: choose another"):
        Plan(idle(), (0,), file, single=single).check_new()


def test_labels_that_would_share_a_folder_are_refused(tmp_path: Path) -> None:
    uses = [{"use": "fedbuff", "label": label} for label in ("a b", "a/b")]
    with pytest.raises(InputError, match="two strategies would share the folder 'a-b-seed0'"):
        Plan(idle(*uses), (0,), tmp_path / "out").check_new()


OWN = """
import numpy as np

def even(buffer, view):
    return np.full(len(buffer), 1 / len(buffer))
"""


@pytest.mark.parametrize("stays", [True, False], ids=["modules stay", "modules move too"])
def test_an_experiment_that_was_moved_can_be_resumed(tmp_path: Path, stays: bool) -> None:
    home, moved = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    (home / "moved_rules.py").write_text(OWN)
    plan = Plan(idle("moved_rules:even", folder=home), (0, 1), tmp_path / "out")
    plan.save()
    first, second = plan
    execute(Plan(plan.experiment.checked(seed=0), (0,), first.folder, single=True), new=True)
    shutil.move(plan.folder, moved)
    if not stays:
        shutil.move(home / "moved_rules.py", moved)
        shutil.rmtree(home)
    again = Plan.open(moved)
    assert again.experiment.folder == (home if stays else moved)
    assert [each.sha256 for each in again] == [first.sha256, second.sha256]
    assert [run.status for run in execute(again)] == ["finished"] * 2


def test_a_run_of_another_experiment_is_not_gone_on_with(tmp_path: Path) -> None:
    execute(Plan(idle(), (0,), tmp_path, single=True), new=True)
    with pytest.raises(InputError, match="to a different experiment: aggregations is 5 there and 6 here"):
        execute(Plan(idle(aggregations=6), (0,), tmp_path, single=True))


def test_what_was_given_as_an_object_is_resumed_from_python(tmp_path: Path) -> None:
    plan = Plan(idle(leaning(1.0)).checked(strategies=(Use(use=leaning(1.0)),)), (0,), tmp_path)
    execute(plan, new=True)
    with pytest.raises(InputError, match=r"<leaning\(1.0\)> was given as a Python object"):
        Plan.open(tmp_path)
