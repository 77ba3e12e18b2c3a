"""Runs that differ in a setting are named by it, and runs of other parameters are no seeds of each other."""

import json
from pathlib import Path
from typing import Any

import pytest

import fairlag
from fairlag.analyse.compare import repeated
from fairlag.lab.run import Run
from tests.support.edits import edited
from tests.support.experiments import PAPER, tables
from tests.support.runs import runs_of


def ran(folder: Path, *seeds: int, strategy: dict[str, Any] | None = None, **more: Any) -> list[Run]:
    strategies = [strategy or {"use": "fedbuff", "buffer": 2}]
    return runs_of(folder, {**tables(PAPER, *strategies, aggregations=5), **more}, *seeds)


def labels(*runs: list[Run]) -> list[str]:
    return [each.label for each in repeated(run for some in runs for run in some)]


def test_runs_that_differ_in_a_setting_are_named_by_it(tmp_path: Path) -> None:
    small, large = ran(tmp_path / "a", 0, 1, local={"lr": 0.1}), ran(tmp_path / "b", 0, 1, local={"lr": 0.2})
    assert labels(small, large) == ["FedBuff (buffer=2) [local.lr=0.1]", "FedBuff (buffer=2) [local.lr=0.2]"]
    assert labels(small) == ["FedBuff (buffer=2)"]
    other = ran(tmp_path / "c", strategy={"use": "fedavg"}, local={"lr": 0.2})
    assert labels(small, large, other)[-1] == "FedAvg [local.lr=0.2]"


def test_the_local_training_that_a_plan_gives_its_strategies_is_not_named(tmp_path: Path) -> None:
    uses = [{"use": "fedbuff", "local": {"lr": 0.1}}, {"use": "fedavg", "local": {"lr": 0.2}}]
    runs = runs_of(tmp_path / "a", tables(PAPER, *uses, aggregations=5), 0)
    assert labels(runs) == ["FedAvg (local.lr=0.2)", "FedBuff (local.lr=0.1)"]
    assert [dict(each.settings) for each in repeated(runs)] == [{"local.lr": 0.2}, {"local.lr": 0.1}]
    assert labels(runs, ran(tmp_path / "b", local={"lr": 0.3}))[:2] == [
        "FedAvg (local.lr=0.2) [local.lr=0.2]",
        "FedBuff (local.lr=0.1) [local.lr=0.1]",
    ]


def test_groups_and_settings_that_one_lacks_are_named(tmp_path: Path) -> None:
    fast, slow = PAPER
    longer = ran(tmp_path / "a", clients=[fast, {**slow, "steps": 3}])
    assert labels(ran(tmp_path / "b"), longer) == [
        "FedBuff (buffer=2) [no clients.slow.steps]",
        "FedBuff (buffer=2) [clients.slow.steps=3]",
    ]


def test_the_same_label_with_other_parameters_is_another_strategy(tmp_path: Path) -> None:
    five, nine = (
        ran(tmp_path / str(buffer), seed, strategy={"use": "fedbuff", "buffer": buffer, "label": "Mine"})
        for seed, buffer in enumerate((5, 9))
    )
    assert labels(five, nine) == ["Mine [buffer=5]", "Mine [buffer=9]"]
    assert [len(each.runs) for each in repeated([*five, *nine])] == [1, 1]


def test_many_settings_that_differ_are_cut_and_what_is_then_alike_is_named_by_its_folder(tmp_path: Path) -> None:
    plain = ran(tmp_path / "a", local={"lr": 0.1, "batch": 8, "momentum": 0.1, "prox": 0.1, "steps": 2})
    other = ran(tmp_path / "b", local={"lr": 0.2, "batch": 9, "momentum": 0.2, "prox": 0.2, "steps": 3})
    assert labels(plain, other)[0].endswith(" [local.steps=2, local.batch=8, local.lr=0.1 and 2 more]")
    long = "mixture(0.5, uniform(1, 2), 0.5, uniform(1, {}))"
    one, two = (
        ran(tmp_path / f"c{end}", clients=[{**PAPER[0], "delay": long.format(end)}, PAPER[1]]) for end in (3, 4)
    )
    assert labels(one, two) == [f"FedBuff (buffer=2) [{tmp_path / f'c{end}'}]" for end in (3, 4)]


@pytest.mark.parametrize("text", ["[]", "{}", '{"experiment": {"clients": 3, "strategies": [7], "seed": 0}}'])
def test_settings_that_are_none_are_named_by_their_folder(tmp_path: Path, text: str) -> None:
    small, large = ran(tmp_path / "a", local={"lr": 0.1}), ran(tmp_path / "b", local={"lr": 0.2})
    for run in (*small, *large):
        (run.folder / "experiment.json").write_text(text)
        with edited(run.folder):
            pass
    assert labels(small, large) == [f"FedBuff (buffer=2) [{tmp_path / name}]" for name in "ab"]


def test_a_setting_cannot_drive_a_terminal(tmp_path: Path) -> None:
    small, large = ran(tmp_path / "a", local={"lr": 0.1}), ran(tmp_path / "b", local={"lr": 0.2})
    file = large[0].folder / "experiment.json"
    written = json.loads(file.read_text())
    written["experiment"] |= {"data": {"use": "my:\x1b[2J"}, "model": {"use": "logistic"}}
    file.write_text(json.dumps(written))
    with edited(large[0].folder):
        pass
    label = labels(small, large)[1]
    assert "data.use=my:?[2J" in label and label.isprintable()


def test_the_frame_and_the_json_have_what_differs(tmp_path: Path) -> None:
    small, large = ran(tmp_path / "a", local={"lr": 0.1}), ran(tmp_path / "b", local={"lr": 0.2})
    compared = fairlag.compare([*small, *large])
    frame = compared.frame()
    assert list(frame.columns[:4]) == ["experiment", "rank", "strategy", "local.lr"]
    assert sorted(frame["local.lr"]) == [0.1, 0.2]
    assert sorted(each.as_json()["settings"]["local.lr"] for each in compared) == [0.1, 0.2]
    assert "local.lr" not in fairlag.compare(small).frame().columns
