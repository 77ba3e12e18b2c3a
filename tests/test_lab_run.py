"""Reading a run: exact frames of a small run made by hand, also while another process writes it."""

import os
import subprocess
import sys
import time
from math import inf, isnan, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from fairlag.errors import InputError
from fairlag.lab.run import Run
from fairlag.lab.runs import runs
from fairlag.lab.simulate import simulate
from fairlag.lab.store import Store
from tests.support.experiments import DROPPING
from tests.support.runs import made, scores


def test_frames_of_a_run(tmp_path: Path) -> None:
    run = made(tmp_path)
    assert (run.experiment, run.label, run.seed, run.groups) == ("demo", "FedAvg", 0, ["fast", "slow"])
    assert (run.status, run.version, run.virtual_time, run.planned) == ("finished", 2, 9.0, 2)
    assert run.aggregations.to_numpy().tolist() == [[1, 2.0, 2, 1.0, False, ""], [2, 9.0, 2, 1.0, True, ""]]
    assert run.clients.to_numpy().tolist() == [[0, "fast", 10], [1, "fast", 10], [2, "slow", 20]]
    assert run.refusals.to_numpy().tolist() == [["too old", 1]]
    tasks = run.tasks
    assert tasks["outcome"].tolist() == [*["aggregated"] * 4, "refused"]
    assert tasks["staleness"].iloc[:4].tolist() == [0, 0, 1, 0]
    assert tasks["aggregation"].isna().tolist() == [False] * 4 + [True]
    assert tasks["reason"].iloc[4] == "too old"
    assert run.tensors()["bias"].tolist() == [1, 1]


def test_influence_is_the_part_of_all_weight(tmp_path: Path) -> None:
    frame = made(tmp_path).influence()
    assert frame["updates"].tolist() == [2, 1, 1]
    assert frame["share"].tolist() == [0.5, 0.25, 0.25]
    assert frame["influence"].tolist() == [0.375, 0.25, 0.375]
    assert frame["fair"].tolist() == [1 / 3] * 3
    assert frame["staleness"].tolist() == [0.0, 0.0, 1.0]


def test_influence_of_groups_is_the_sum_over_their_clients(tmp_path: Path) -> None:
    frame = made(tmp_path).influence("group")
    assert frame[["group", "clients", "examples", "updates"]].to_numpy().tolist() == [
        ["fast", 2, 20, 3],
        ["slow", 1, 20, 1],
    ]
    assert frame["share"].tolist() == [0.75, 0.25]
    assert frame["influence"].tolist() == [0.625, 0.375]
    assert frame["fair"].tolist() == [2 / 3, 1 / 3]
    assert frame["staleness"].tolist() == [0.0, 1.0]
    with pytest.raises(InputError, match="influence was asked for by 'label', it must be by 'client' or by 'group'"):
        Run(tmp_path).influence("label")


def test_accuracy_is_on_the_whole_test_set_and_the_curve_on_one_sample(tmp_path: Path) -> None:
    run = made(tmp_path)
    assert run.accuracy() == 0.64
    assert run.accuracy("group", "slow") == 0.64
    assert run.curve()["accuracy"].tolist() == [0.5, 0.7]
    assert run.curve()["standard_error"].tolist() == pytest.approx([0.05, sqrt(0.7 * 0.3 / 100)])
    assert run.curve("group", "fast")["time"].tolist() == [2.0, 9.0]
    with pytest.raises(InputError, match="more than one group: give a name, one of fast, slow"):
        run.accuracy("group")


@pytest.mark.parametrize(
    ("scope", "name", "words"),
    [
        ("group", "slwo", "the run has no group 'slwo': it must be one of fast, slow"),
        ("class", 3, "the run has no class 3: it must be from 0 to 2"),
        ("class", "two", "the run has no class 'two': it must be from 0 to 2"),
        ("class", 1.0, "the run has no class 1.0: it must be from 0 to 2"),
        ("nonsense", None, "evaluations were asked for by 'nonsense', it must be one of all, class, group"),
        ("all", "slow", "evaluations on all examples have no name, but 'slow' was given: leave it out"),
    ],
)
def test_what_no_run_can_have_evaluated_is_refused(tmp_path: Path, scope: str, name: Any, words: str) -> None:
    run = made(tmp_path, classes=3)
    for ask in (run.accuracy, run.curve):
        with pytest.raises(InputError, match=f"^{words}$"):
            ask(scope, name)
    assert isnan(run.accuracy("class", 2))  # there is one, but no test example has it
    assert isnan(run.accuracy("class", "2"))


def evaluated(folder: Path, *rounds: tuple[int, bool, int]) -> Run:
    """A run of evaluations alone: the version, whether on the whole test set, and how many were right."""
    groups, nobody = ["fast", "slow"], np.array([0, 1])
    with Store.create(folder, {}, experiment="", groups=groups, group_of=nobody, examples=nobody) as store:
        for version, whole, right in rounds:
            store.evaluated(version, float(version), scores(whole=whole, right=right))
        store.commit({}, "", 0)
    return Run(folder)


def test_the_curve_leaves_out_a_last_version_that_is_on_other_examples(tmp_path: Path) -> None:
    sampled = evaluated(tmp_path / "sampled", (0, False, 10), (5, False, 50), (7, True, 90))
    assert sampled.curve()["version"].tolist() == [0, 5]
    assert sampled.curve("group", "slow")["accuracy"].tolist() == [0.1, 0.5]
    assert sampled.accuracy() == 0.9
    whole = evaluated(tmp_path / "whole", (0, True, 10), (5, True, 50), (7, True, 90))
    assert whole.curve()["version"].tolist() == [0, 5, 7]


def learnt(folder: Path, tensors: dict[str, np.ndarray]) -> Run:
    """A finished run of the model "logistic" on two features and two classes, which ended with these tensors."""
    text = '{"experiment": {"model": {"use": "logistic"}}, "folder": null}'
    meta, one = {"shape": [2], "classes": 2}, np.array([0])
    with Store.create(folder, meta, experiment=text, groups=["all"], group_of=one, examples=one) as store:
        store.finish(tensors, "done")
    return Run(folder)


def test_the_model_is_the_one_that_the_run_ended_with(tmp_path: Path) -> None:
    weight, bias = np.array([[1, 2], [3, 4]], np.float32), np.array([5, 6], np.float32)
    model = learnt(tmp_path / "same", {"1.weight": weight, "1.bias": bias}).model()
    assert not model.training
    assert {name: each.tolist() for name, each in model.state_dict().items()} == {
        "1.weight": weight.tolist(),
        "1.bias": bias.tolist(),
    }
    renamed = learnt(tmp_path / "renamed", {"weight": weight, "1.bias": bias})
    with pytest.raises(InputError, match=r"the model of the run in '.*renamed' has changed: .* named \['1.bias'"):
        renamed.model()
    wider = learnt(tmp_path / "wider", {"1.weight": weight, "1.bias": np.zeros(3, np.float32)})
    with pytest.raises(InputError, match=r"in '.*wider' has changed: array '1.bias' has shape \(3,\)"):
        wider.model()


def test_a_model_that_was_given_as_a_function_is_built_by_it(tmp_path: Path) -> None:
    def mine(classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))

    run = simulate({**DROPPING, "model": {"use": mine}}, executor="serial", out=tmp_path / "run")
    weight = run.tensors()["1.weight"].tolist()
    assert run.model().state_dict()["1.weight"].tolist() == weight
    later = Run(run.folder)  # as in another session
    with pytest.raises(
        InputError, match=r"was given as the Python function <mine>: give it again, as in run.model\(function\)$"
    ):
        later.model()
    assert later.model(mine).state_dict()["1.weight"].tolist() == weight


def test_numbers_that_are_not_finite_come_back(tmp_path: Path) -> None:
    frame = made(tmp_path).evaluations
    assert frame.loc[frame["scope"] == "all", "loss"].tolist() == [inf] * 3
    assert frame.loc[frame["name"] == "slow", "loss"].isna().all()
    assert frame["loss"].dtype == float


def test_a_run_without_rows_has_frames_of_the_same_kinds(tmp_path: Path) -> None:
    full = made(tmp_path / "full")
    with Store.create(
        tmp_path / "empty", {}, experiment="", groups=["a"], group_of=np.array([0]), examples=np.array([0])
    ) as store:
        empty = Run(store.folder)
        assert empty.status == "running"
        assert (empty.version, empty.virtual_time) == (0, 0.0)
        assert isnan(empty.accuracy())
        assert empty.influence()[["share", "influence", "fair"]].to_numpy().tolist() == [[0.0, 0.0, 1.0]]
        for name in ("aggregations", "tasks", "evaluations"):
            kinds = getattr(full, name).dtypes
            numbers = [column for column, kind in kinds.items() if kind not in ("object", "str")]
            assert getattr(empty, name).dtypes[numbers].tolist() == kinds[numbers].tolist()
        assert "0 aggregations, virtual time 0.0, not evaluated yet" in repr(empty)


def test_an_unfinished_run_has_no_model_yet(tmp_path: Path) -> None:
    run = made(tmp_path, finished=False)
    assert run.status == "interrupted"
    with pytest.raises(InputError, match=r"no final model yet: it is interrupted; `fairlag resume .*` continues it"):
        run.tensors()


def test_it_says_what_it_is(tmp_path: Path) -> None:
    run = made(tmp_path, label="a<b")
    assert repr(run) == (
        f"Run({str(tmp_path)!r}: a<b on demo, seed 0, finished, 2 of 2 aggregations, virtual time 9.0, "
        "accuracy 64.00 %)"
    )
    assert "<b>a&lt;b</b> on demo, seed 0: finished" in run._repr_html_()


def test_runs_are_found_up_to_two_folders_down(tmp_path: Path) -> None:
    for name in ("b/2", "b/1", "a", "c/d/e"):
        made(tmp_path / name)
    assert [str(run.folder.relative_to(tmp_path)) for run in runs(tmp_path)] == ["a", "b/1", "b/2"]
    assert [run.folder for run in runs(tmp_path / "a")] == [tmp_path / "a"]
    with pytest.raises(InputError, match="there is no folder"):
        runs(tmp_path / "z")


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root may write everywhere")
def test_a_finished_run_can_be_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    run.folder.chmod(0o555)
    assert run.accuracy() == 0.64
    run.folder.chmod(0o755)


def test_a_run_is_read_while_it_is_written(tmp_path: Path) -> None:
    """Whatever moment a reader sees, it is one of a commit: each writes a version with its two tasks."""
    code = f"from pathlib import Path; from tests.support.stores import write; write(Path({str(tmp_path)!r}))"
    with subprocess.Popen([sys.executable, "-c", code]) as writer:
        while not (tmp_path / "run.sqlite").exists():
            time.sleep(0.01)
        run = Run(tmp_path)
        seen: set[int] = set()
        while len(seen) < 20:
            version = run.version
            assert len(run.tasks) >= 2 * version
            assert len(run.aggregations) % 3 == 0
            seen.add(version)
        assert run.status == "running"
        writer.kill()
    assert run.status == "interrupted"
    assert len(run.tasks) == 2 * run.version


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    heavy = (
        "import sys, fairlag.lab.run, fairlag.lab.store; print([m for m in ('pandas', 'torch') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout == "[]\n"
