"""Experiments whose fleet is read from files: groups by the file, digests, the model's size, and runs that continue."""

import json
import tomllib
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag.analyse.fit.fleet import fit_fleet
from fairlag.errors import InputError, Interrupted
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.override import changed
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.serialise import key_of, sha256, toml, written
from fairlag.lab.simulate import execute, simulate
from tests.support.resuming import CtrlC, contents
from tests.support.traces import CAPACITY, put, tables

DATA: dict[str, Any] = {"data": {"use": "digits"}, "model": {"use": "logistic"}, "model_bytes": 0}
PHONES = {"group": "phone", "capacity": 'file("capacity.csv")'}


def read(folder: Path, *clients: dict[str, Any], **others: Any) -> Experiment:
    return parse(tables(*clients, **others), put(folder))


def test_one_table_becomes_the_groups_of_its_file(tmp_path: Path) -> None:
    experiment = read(tmp_path)
    assert [(table.group, table.count) for table in experiment.clients] == [("phone", 2), ("desk", 1), ("watch", 1)]
    fleet = experiment.fleet()
    # Each with the presence of the client of the same name: the phones are a and b.
    periods = [[next(each), next(each, None)] for each in map(fleet.periods, range(4))]
    assert periods == [[(0, 20), (80, 120)], [(30, 70), (130, 170)], [(0, np.inf), None], [(10, 50), (110, 150)]]
    assert fleet.duration(0, 0) == pytest.approx(4 * 0.5 + 8 / 16 + 8 / 4)


def test_a_table_with_a_group_takes_that_group_with_keys_of_its_own(tmp_path: Path) -> None:
    desk = {"group": "desk", "capacity": 'file("capacity.csv")', "timing": "throttle(2)"}
    experiment = read(tmp_path, {**PHONES, "count": 1, "steps": 9}, desk)
    fleet = experiment.fleet()
    assert fleet.clients == 2
    assert fleet.duration(0, 0) == pytest.approx(9 * 0.5 + 2.5)
    assert fleet.duration(1, 0) == pytest.approx(2 * (4 * 0.05 + 0.2))


def test_presence_alone_is_given_out_in_the_order_of_the_file(tmp_path: Path) -> None:
    experiment = read(tmp_path, {"group": "x", "count": 3, "delay": 1, "availability": 'file("presence.csv", 100)'})
    assert [next(experiment.fleet().periods(client)) for client in range(3)] == [(0, 20), (30, 70), (0, np.inf)]


@pytest.mark.parametrize(
    ("clients", "parts"),
    [
        ([{**PHONES, "delay": 3}], ["'phone'", "capacity and 'delay'"]),
        ([{**PHONES, "upload": 3}], ["'phone'", "capacity and 'upload'"]),
        ([{"group": "x", "count": 2}], ["'x' has no speed"]),
        ([{**PHONES, "group": "fone"}], ["no group 'fone'", "'phone'"]),
        ([{**PHONES, "count": 3}], ["capacity of group 'phone'", "2 clients", "count is 3"]),
        ([{**PHONES, "capacity": "file('nowhere.csv')"}], ["nowhere.csv", "cannot be opened"]),
        ([{"capacity": "appfl('profiles.json', 1)"}], ["'profiles.json' names no groups"]),
        ([{"capacity": "file('capacity.csv')"}, PHONES], ["two groups have the same name"]),
        (
            [{**PHONES, "availability": "file('other.csv')"}],
            ["availability of group 'phone'", "client 'a'", "other.csv"],
        ),
        (
            [{"group": "x", "count": 5, "delay": 1, "availability": "file('presence.csv')"}],
            ["availability of group 'x'", "4 clients", "5"],
        ),
        ([{**PHONES, "timing": "rejoin(5, 5)", "availability": "file('presence.csv')"}], ["must be always"]),
    ],
)
def test_what_does_not_fit_is_one_sentence(clients: list[dict[str, Any]], parts: list[str], tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("client,start,end\nb,0,9\n")
    with pytest.raises(InputError) as error:
        read(tmp_path, *clients)
    assert all(part in str(error.value) for part in parts), str(error.value)


def test_epochs_have_no_number_of_steps(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="group 'phone' has a capacity per step, which needs"):
        read(tmp_path, local={"epochs": 1}, **{**DATA, "model_bytes": 9})


def test_the_content_of_files_counts(tmp_path: Path) -> None:
    experiment = read(tmp_path)
    assert experiment.files is not None and set(experiment.files) == {"capacity.csv", "presence.csv"}
    again = parse(json.loads(written(experiment))["experiment"], tmp_path)
    assert again == experiment and sha256(again) == sha256(experiment)
    (tmp_path / "capacity.csv").write_text(CAPACITY.replace("0.5", "0.6"))
    with pytest.raises(InputError, match=r"the file 'capacity.csv' has changed since"):
        experiment.checked(seed=3)
    other = parse(tables(), tmp_path)
    assert sha256(other) != sha256(experiment) and key_of(other) != key_of(experiment)


def test_an_experiment_without_such_files_is_written_as_before(tmp_path: Path) -> None:
    experiment = read(tmp_path, {"group": "x", "count": 3, "delay": 1})
    assert not {"files", "capacity"} & (json.loads(written(experiment))["experiment"].keys())
    assert "capacity" not in written(experiment)


def test_it_is_written_as_toml_and_changed_by_set(tmp_path: Path) -> None:
    experiment = read(tmp_path)
    assert "files" not in toml(experiment)
    assert parse(tomllib.loads(toml(experiment)), tmp_path) == experiment
    fewer = changed(experiment, ["clients.phone.count=1"])
    assert fewer.population == 3
    assert changed(experiment, ["clients.desk.availability=always"]).clients[1].availability == "always"


def test_the_size_of_the_model_is_taken_from_it(tmp_path: Path) -> None:
    experiment = read(tmp_path, **DATA)
    assert experiment.model_bytes == 4 * (64 * 10 + 10)
    assert experiment.fleet().duration(0, 0) == pytest.approx(4 * 0.5 + 2600 * 8e-6 * (1 / 16 + 1 / 4))
    assert experiment.checked(seed=4).model_bytes == 2600
    assert changed(experiment, ["model.use=mlp"]).model_bytes > 2600
    assert "model_bytes" not in toml(experiment)
    assert read(tmp_path, **{**DATA, "model_bytes": 77}).model_bytes == 77


def test_the_example_of_the_guide(tmp_path: Path) -> None:
    guide = Path(__file__).parents[1].joinpath("docs", "own-fleet.md").read_text().partition("## Recorded fleets")[2]
    for name, header in (("capacity.csv", "client,seconds"), ("presence.csv", "client,start")):
        block = guide[guide.index(header) :].partition("\n\n")[0]
        (tmp_path / name).write_text("\n".join(line.strip() for line in block.splitlines()))
    experiment = parse(tomllib.loads(guide.partition("```toml")[2].partition("```")[0]), tmp_path)
    fleet = experiment.fleet()
    assert [(group.name, group.count) for group in fleet.groups] == [("phone", 2), ("desk", 1)]
    assert list(islice(fleet.periods(0), 2)) == [(0, 21_600), (79_200, 108_000)]
    assert fleet.duration(0, 0) == pytest.approx(20 * 0.5 + 16 / 4 + 16 / 16)


def test_single_clients_are_not_fitted(tmp_path: Path) -> None:
    run = simulate(read(tmp_path), out=tmp_path / "run", workers=1)
    with pytest.raises(InputError, match="group 'phone' has the recorded speed or presence of single clients"):
        fit_fleet([run])


def test_no_model_is_built_to_look_at_an_experiment(tmp_path: Path) -> None:
    own = {**DATA, "model": {"use": "nowhere:model"}}
    with pytest.raises(InputError, match="the size of the model is not known"):
        parse(tables(**own), put(tmp_path), code=False)
    assert parse(tables(**{**own, "model_bytes": 5}), tmp_path, code=False).model_bytes == 5


def test_lines_without_a_model_to_send_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="group 'phone' has line speeds, but the size of the model is not known"):
        read(tmp_path, model_bytes=0)


@pytest.mark.parametrize("engine", ["standard", "compiled"])
def test_a_recorded_fleet_trains_with_labels_of_its_groups(engine: str, tmp_path: Path) -> None:
    phone = {**PHONES, "labels": [0, 1, 2, 3, 4]}
    desk = {"group": "desk", "capacity": 'file("capacity.csv")', "labels": [5, 6, 7, 8, 9]}
    local = {"steps": 4, "engine": engine}
    run = simulate(read(tmp_path, phone, desk, aggregations=6, local=local, **DATA), out=tmp_path / "run", workers=1)
    tasks = run.tasks
    done = tasks[(tasks.outcome == "aggregated") & (tasks.client == 2)]
    assert run.status == "finished" and len(done) > 1
    assert (done.ended - done.dispatched).tolist() == pytest.approx([4 * 0.05 + 2600 * 8e-6 * (2 / 80)] * len(done))


def test_a_run_that_was_stopped_continues_to_the_same_bytes(tmp_path: Path) -> None:
    experiment = read(tmp_path, aggregations=3000)  # 20 cycles of presence
    whole, stopped = (Plan(experiment, (0,), tmp_path / name) for name in ("whole", "stopped"))
    whole.save()
    execute(whole, workers=1)
    stopped.save()
    with pytest.raises(Interrupted):
        execute(stopped, workers=1, watch=CtrlC(201))
    assert 200 < Run(next(iter(stopped)).folder).version < 3000
    execute(Plan.open(stopped.folder), workers=1)
    (one,), (other,) = whole, stopped
    assert contents(one.folder) == contents(other.folder)


def test_a_run_is_not_continued_with_another_file(tmp_path: Path) -> None:
    experiment = read(tmp_path)
    simulate(experiment, out=tmp_path / "run", workers=1)
    (tmp_path / "presence.csv").write_text("client,start,end\na,0,9\nb,0,9\nc,0,9\nd,0,9\n")
    with pytest.raises(InputError, match=r"the file 'presence.csv' has changed since"):
        Plan.open(tmp_path / "run")
