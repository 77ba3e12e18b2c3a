"""Experiments on a user's own files: natural clients, recorded times, test files, resuming, and messages."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from fairlag.errors import InputError, Interrupted
from fairlag.lab import loop
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.plan import Plan
from fairlag.lab.resources import Resources
from fairlag.lab.run import Run
from fairlag.lab.serialise import toml, written
from fairlag.lab.simulate import execute, simulate
from tests.support.command import Call
from tests.support.models import successor
from tests.support.resuming import CtrlC, contents

FILE = """name = "wards"
aggregations = 8

[[clients]]
group = "slow"
names = ["w1"]
delay = 4

[[clients]]
group = "others"
delay = "uniform(1, 2)"

[[strategies]]
use = "fedbuff"
buffer = 2

[data]
use = "file"
path = "wards.csv"
target = "outcome"
client = "ward"

[model]
use = "logistic"

[evaluate]
every = 4
"""
WARDS = 5


def rows(count: int = 60, shift: float = 0.0) -> str:
    """A CSV file with five wards and two outcomes; a day has ten patients."""
    rng = np.random.default_rng(0)
    text = "ward,day,a,b,outcome\n"
    for row in range(count):
        stays = row % 2
        a, b = rng.standard_normal(2) + 3 * stays + shift
        text += f"w{row % WARDS},{row // 10},{a:.3f},{b:.3f},{('home', 'stay')[stays]}\n"
    return text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the experiment and its data."""
    (tmp_path / "wards.toml").write_text(FILE)
    (tmp_path / "wards.csv").write_text(rows())
    return tmp_path


def tables(**data: Any) -> dict[str, Any]:
    """An experiment with one group that has all clients of the data."""
    return {
        "name": "wards",
        "aggregations": 6,
        "clients": [{"group": "all", "delay": "uniform(1, 2)"}],
        "strategies": [{"use": "fedbuff", "buffer": 2}],
        "data": {"use": "file", "path": "wards.csv", "target": "outcome", "client": "ward", **data},
        "model": {"use": "logistic"},
    }


def held(experiment: Experiment) -> list[set[int]]:
    """The examples of each client."""
    train, shares = Resources(experiment).shares(0)
    return [set(train[shares.of(client)].tolist()) for client in range(shares.clients)]


def test_a_csv_file_with_natural_clients_runs_and_is_reported(folder: Path, call: Call) -> None:
    done = call("run", str(folder / "wards.toml"), "--workers", "1", "--out", str(folder / "out"))
    assert done.code == 0, done.err
    (run,) = (each for each in (folder / "out").iterdir() if each.is_dir())
    made = json.loads((run / "experiment.json").read_text())["experiment"]
    assert [(table["group"], table["count"]) for table in made["clients"]] == [("slow", 1), ("others", 4)]
    shown = call("data", "show", str(folder / "wards.toml"))
    assert shown.code == 0 and "home: " in shown.out and "stay: " in shown.out


def test_who_holds_what_is_the_datas_own(folder: Path) -> None:
    named = {"group": "slow", "names": ["w1", "w4"], "delay": 4}
    experiment = parse({**tables(), "clients": [named, {"group": "rest", "delay": 1}]}, folder)
    assert [table.count for table in experiment.clients] == [2, 3]
    assert Resources(experiment).names(0) == ["w1", "w4", "w0", "w2", "w3"]
    assert Resources(parse(tables(partition="iid"), folder)).names(0)[3] == "all 3"
    for ward, mine in zip((1, 4, 0, 2, 3), held(experiment), strict=True):
        assert mine and {example % WARDS for example in mine} == {ward}


def test_counts_and_names_are_written_so_that_looking_at_a_run_reads_no_data(folder: Path) -> None:
    experiment = parse(tables(), folder)
    (folder / "wards.csv").unlink()
    again = parse(json.loads(written(experiment))["experiment"], folder, code=False)
    assert written(again) == written(experiment) and again.population == WARDS
    assert 'path = "wards.csv"' in toml(experiment)


@pytest.mark.parametrize("workers", [1, 2])
def test_examples_arrive_when_they_were_recorded(workers: int, folder: Path) -> None:
    experiment = parse(tables(time="day", stream="recorded(2)"), folder)
    setting = Resources(experiment).setting(0)
    days = np.arange(60) // 10
    assert setting.placement is not None
    for client in range(WARDS):
        mine = days[setting.placement.of(client)]
        assert mine.tolist() == sorted(mine.tolist())
        assert setting.visible[client] == max(np.count_nonzero(mine == 0), 1)
    made = simulate(experiment, out=folder / "out", workers=workers, executor="serial" if workers == 1 else "processes")
    other = simulate(experiment, out=folder / "other", workers=1)
    assert contents(made.folder) == contents(other.folder)


def test_recorded_is_the_default_and_another_stream_keeps_the_order(folder: Path) -> None:
    as_recorded, paced = (
        Resources(parse(tables(time="day", **more), folder)) for more in ({}, {"stream": "linear(0.1, 0.01)"})
    )
    assert (str(as_recorded.stream), str(paced.stream)) == ("recorded", "linear(0.1, 0.01)")
    assert np.array_equal(as_recorded.shares(0)[1].order, paced.shares(0)[1].order)
    assert Resources(parse(tables(), folder)).stream is None


def test_whoever_names_a_test_file_is_tested_on_it(folder: Path) -> None:
    (folder / "test.csv").write_text(rows(10))
    experiment = parse(tables(test="test.csv"), folder)
    placement = Resources(experiment).setting(0).placement
    assert experiment.data is not None and experiment.data.holdout == "official" and placement is not None
    assert sorted(placement.tests.tolist()) == list(range(60, 70))
    drawn = parse(tables(test="test.csv", holdout=0.25), folder)
    assert drawn.data is not None and drawn.data.holdout == 0.25


def test_a_file_divides_any_data_set(folder: Path) -> None:
    (folder / "map.csv").write_text("".join(f"c{example % 3}\n" for example in range(90)))
    data = {"use": "synthetic", "examples": 90, "classes": 2, "partition": "file(map.csv)"}
    experiment = parse({**tables(), "data": data}, folder)
    assert experiment.population == 3
    assert [{example % 3 for example in mine} for mine in held(experiment)] == [{0}, {1}, {2}]


@pytest.mark.parametrize("changed", ["wards.csv", "map.csv"])
def test_a_run_whose_file_has_changed_is_not_resumed(
    changed: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_LOOK", 0.0)
    (folder / "map.csv").write_text("".join(f"c{example % 3}\n" for example in range(60)))
    experiment = tables() if changed == "wards.csv" else tables(partition="file(map.csv)")
    with pytest.raises(Interrupted):
        simulate(parse(experiment, folder), out=folder / "out", workers=1, watch=CtrlC(3))
    text = (folder / changed).read_text()
    (folder / changed).write_text(rows(shift=1) if changed == "wards.csv" else text.replace("c0\nc1", "c1\nc0", 1))
    with pytest.raises(InputError, match="has changed since it was begun"):
        simulate(parse(experiment, folder), out=folder / "out", workers=1, resume=True)
    (folder / changed).write_text(text)
    resumed = simulate(parse(experiment, folder), out=folder / "out", workers=1, resume=True)
    whole = simulate(parse(experiment, folder), out=folder / "whole", workers=1)
    assert contents(resumed.folder) == contents(whole.folder)


@pytest.mark.parametrize("stream", [None, "linear(0.1, 0.01)", "recorded"])
def test_a_sample_of_the_clients_trains_on_its_own_examples(stream: str | None, folder: Path) -> None:
    data = tables(partition="natural(3)", time="day", **({"stream": stream} if stream else {}))
    clients = [{"group": "named", "names": ["w4"], "delay": 2}, {"group": "drawn", "delay": 1}]
    experiment = parse({**data, "clients": clients}, folder)
    assert [table.count for table in experiment.clients] == [1, 2]
    resources = Resources(experiment)
    train, shares = resources.shares(0)
    names, setting = resources.names(0), resources.setting(0)
    assert names[0] == "w4" and len(set(names)) == 3 and len({tuple(resources.names(seed)) for seed in range(20)}) == 6
    assert len(train) == 48 > len(shares.order) == setting.examples.sum()
    for name, mine in zip(names, held(experiment), strict=True):
        assert mine == {example for example in train.tolist() if f"w{example % WARDS}" == name}
    one = simulate(experiment, out=folder / "one", workers=1)
    two = simulate(experiment, out=folder / "two", workers=2, executor="processes")
    assert contents(one.folder) == contents(two.folder)


def test_seeds_with_samples_of_different_size_share_workers(folder: Path) -> None:
    (folder / "wards.csv").write_text(rows(43))  # wards with eight and with nine rows
    data = tables(partition="natural(3)") | {"evaluate": {"clients": 0.3, "personalise": 1}}
    experiment = parse({**data, "clients": [{"group": "drawn", "delay": 1}]}, folder)
    assert len({len(Resources(experiment).shares(seed)[1].order) for seed in range(3)}) > 1
    found = []
    for workers, executor in ((1, "serial"), (2, "processes")):
        plan = Plan(experiment, (0, 1, 2), folder / executor)
        execute(plan, new=True, workers=workers, executor=executor)
        found.append([contents(each.folder) for each in plan])
    assert found[0] == found[1]


def homes(folder: Path, rows: int = 200) -> None:
    """A CSV file with two prices and two marks, each of which follows from two measures."""
    rng = np.random.default_rng(0)
    text = "agent,a,b,price,rent,garden,lift\n"
    for row in range(rows):
        a, b = rng.standard_normal(2)
        text += f"{row % WARDS},{a:.3f},{b:.3f},{3 * a - b + 1:.3f},{a + b:.3f},{int(a > 0)},{b > 0}\n"
    (folder / "homes.csv").write_text(text)


def learnt(folder: Path, task: str, **data: Any) -> Run:
    """A run of 40 versions that learns this task from a file."""
    changes = {"aggregations": 40, "task": {"use": task}, "local": {"steps": 5, "lr": 0.1}, "evaluate": {"every": 40}}
    return simulate(parse({**tables(**data), **changes}, folder), out=folder / task, workers=1)


def test_a_regression_from_one_column_and_from_two(folder: Path) -> None:
    homes(folder)
    inputs: dict[str, Any] = {"path": "homes.csv", "client": "agent", "features": ["a", "b"]}
    one = learnt(folder, "regression", target="price", **inputs)
    assert one.curve()["mse"].iloc[0] > 5 and one.score() < 1e-3 and one.model()(torch.zeros(3, 2)).shape == (3, 1)
    experiment = parse({**tables(target=["price", "rent"], **inputs), "task": {"use": "regression"}}, folder)
    two = simulate(experiment, out=folder / "two", workers=1)
    assert two.score() < two.curve()["mse"].iloc[0] and two.model()(torch.zeros(3, 2)).shape == (3, 2)


def test_labels_in_several_columns_have_names(folder: Path) -> None:
    homes(folder)
    run = learnt(folder, "multilabel", path="homes.csv", client="agent", target=["garden", "lift"], features=["a", "b"])
    assert run.score("auroc", "class", 0) > 0.95 < run.score("auroc", "class", 1)
    assert run.meta["class_names"] == ["garden", "lift"]


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_next_tokens_from_a_file(kind: str, folder: Path) -> None:
    tokens = (np.random.default_rng(0).integers(7, size=(300, 1)) + np.arange(6)) % 7
    columns = {"tokens": tokens[:, :-1].copy(), "next": tokens[:, 1:].copy(), "who": np.arange(300) % WARDS}
    file = folder / f"counting.{kind}"
    np.savez(file, **columns) if kind == "npz" else save_file(columns, file)  # type: ignore[arg-type]
    read = tables(path=file.name, features=["tokens"], target="next", client="who")
    changes = {"aggregations": 40, "task": {"use": "next_token"}, "local": {"steps": 5, "lr": 3.0}}
    run = simulate(parse({**read, **changes, "model": {"use": successor}}, folder), out=folder / "out", workers=1)
    assert run.curve()["perplexity"].iloc[0] > 5 > 1.5 > run.score() and run.meta["classes"] == 7
    with pytest.raises(InputError) as caught:
        simulate(parse({**read, **changes}, folder), out=folder / "refused", workers=1)
    assert "the model 'logistic' cannot take token ids of shape (5,): " in str(caught.value)
    assert "(whole numbers in arrays are token ids: save measurements as float32)" in str(caught.value)


@pytest.mark.parametrize(
    ("clients", "data", "words"),
    [
        ([{"group": "a", "delay": 1}, {"group": "b", "delay": 1}], {}, "the key 'clients[1].count' is missing"),
        ([{"group": "a", "delay": 1, "count": 4}], {}, "wards.csv has 5 clients, but the groups have 4"),
        (
            [{"group": "a", "delay": 1, "count": 5}, {"group": "b", "delay": 1}],
            {},
            "group 'b' has no count, but the other groups take all 5 clients of wards.csv",
        ),
        ([{"group": "a", "delay": 1}], {"partition": "natural(6)"}, "natural(6) draws 6 clients, but wards.csv has 5"),
        (
            [{"group": "a", "delay": 1, "count": 3}, {"group": "b", "delay": 1}],
            {"partition": "natural(3)"},
            "group 'b' has no count, but the other groups take all 3 clients of wards.csv",
        ),
        ([{"group": "a", "delay": 1}], {"client": "wards"}, "wards.csv has no column 'wards': did you mean 'ward'?"),
        ([{"group": "a", "delay": 1}], {"holdout": 3}, "data.holdout: it is 3, but must be a share"),
        ([{"group": "a", "delay": 1, "names": ["w1"], "count": 2}], {}, "it names 1 clients, but count is 2"),
        (
            [{"group": "a", "delay": 1, "names": ["w1"]}],
            {"partition": "iid"},
            "group 'a' names clients of the data, but the partition is iid: only natural and file know them",
        ),
        ([{"group": "a", "delay": 1}], {"stream": "recorded"}, "the stream recorded needs data that says when each"),
        (
            [{"group": "a", "delay": 1}],
            {"stream": "recorded(0)"},
            "speed of recorded is 0, but must be a finite number",
        ),
    ],
)
def test_a_mistake(clients: list[dict[str, Any]], data: dict[str, Any], words: str, folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        Resources(parse({**tables(**data), "clients": clients}, folder)).setting(0)
    assert words in str(caught.value)


def test_a_group_without_a_count_needs_data_with_clients(folder: Path) -> None:
    with pytest.raises(InputError, match="group 'all' has no count, and digits does not say who holds what"):
        parse({**tables(), "data": {"use": "digits"}}, folder)
    without = {key: value for key, value in tables().items() if key not in ("data", "model")}
    with pytest.raises(InputError, match=r"the key 'clients\[1\]\.count' is missing"):
        parse(without, folder)


def test_a_mistake_ends_the_command_with_exit_code_2(folder: Path, call: Call) -> None:
    (folder / "wards.csv").write_text(rows().replace("home", "", 1))
    done = call("run", str(folder / "wards.toml"), "--out", str(folder / "out"))
    assert done.code == 2 and "has no value in row 1" in " ".join(done.err.split())
    assert not (folder / "out").exists()
