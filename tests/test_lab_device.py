"""The device of a run: chosen by file or option, recorded, kept by its plan, and never changed halfway."""

import json
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from fairlag.errors import InputError, Interrupted
from fairlag.execute import children, processes
from fairlag.lab.events import Event, Progress
from fairlag.lab.executors import ExecutorChoice
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.plan import Plan
from fairlag.lab.serialise import key_of, sha256, toml, written
from fairlag.lab.simulate import simulate
from fairlag.learn.blueprint import Blueprint
from tests.support.command import Call
from tests.support.devices import cards, meta_machine
from tests.support.experiments import three_on_digits
from tests.support.learning import PLACEMENT, blueprint, data


def experiment(**changes: Any) -> Experiment:
    tables = three_on_digits("placed", slow="uniform(4, 5)", model="logistic", lr=0.1)
    return parse({**tables, "aggregations": 4, "strategies": [{"use": "fedbuff", "buffer": 2}], **changes})


def interrupt(event: Event) -> None:
    if isinstance(event, Progress):
        raise Interrupted("enough")


def test_the_default_is_the_cpu_and_is_not_written() -> None:
    plain, on_cpu, on_cuda = experiment(), experiment(device="cpu"), experiment(device="cuda:1")
    assert plain == on_cpu and plain.device is None
    assert written(plain) == written(on_cuda), "a device is how a run is executed"
    assert (sha256(plain), key_of(plain)) == (sha256(on_cuda), key_of(on_cuda))
    assert 'device = "cuda:1"' in toml(on_cuda) and "device" not in toml(plain)


def test_a_run_on_the_cpu_records_it(tmp_path: Path) -> None:
    run = simulate(experiment(device="auto"), out=tmp_path / "run", workers=1)
    assert run.meta["device"] == "cpu"
    assert run.meta["device_name"] == torch.backends.cpu.get_cpu_capability()
    assert "engine_reason" not in run.meta


def test_a_whole_run_on_another_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meta_machine(monkeypatch)
    run = simulate(experiment(), device="auto", out=tmp_path / "run")
    assert (run.status, run.version) == ("finished", 4)
    assert (run.meta["device"], run.meta["device_name"], run.meta["engine"]) == ("meta", "Nothing", "standard")
    assert run.meta["engine_reason"] == "training many small models at once does not implement 'device'"
    compiled = experiment(local={"engine": "compiled"})
    run = simulate(compiled, device="auto", out=tmp_path / "compiled")
    assert run.meta["engine_reason"] == "compiled training does not implement 'device'"


def test_a_run_is_not_continued_on_a_different_kind_of_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        meta_machine(elsewhere)
        with pytest.raises(Interrupted):
            simulate(experiment(device="auto"), out=tmp_path / "run", watch=interrupt)
    with pytest.raises(InputError, match="was begun on the device meta and cannot be continued on cpu"):
        simulate(experiment(device="auto"), out=tmp_path / "run", resume=True)


def test_a_run_is_continued_on_a_different_model_with_a_remark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "OLD")
        with pytest.raises(Interrupted):
            simulate(experiment(), out=tmp_path / "run", watch=interrupt)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "NEW")
    assert simulate(experiment(), out=tmp_path / "run", resume=True).status == "finished"
    assert "begun on cpu with OLD, resumed on one with NEW: results may differ" in capsys.readouterr().err


def test_a_plan_keeps_the_device_beside_the_experiment(tmp_path: Path) -> None:
    for device, kept in (("cuda:1", "cuda:1"), ("cpu", None)):
        plan = Plan(experiment(device=device), (0,), tmp_path / device)
        plan.save()
        assert json.loads((plan.folder / "plan.json").read_text()).get("device") == kept
        assert Plan.open(plan.folder).experiment.device == kept


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("cuda:7", "there is no device 'cuda:7' on this machine: it has cpu"),
        ("mps", "there is no device 'mps' on this machine: it has cpu"),
        ("tpu", "there is no device 'tpu': it must be auto, cpu, cuda, cuda:1 (or another number) or mps"),
    ],
)
def test_a_device_that_is_not_there(call: Call, tmp_path: Path, device: str, sentence: str) -> None:
    for given in (["--device", device], ["--set", f"device={device}"]):
        done = call("run", "demo", *given, "--out", str(tmp_path / "runs"))
        assert (done.code, done.out) == (2, "") and done.err.endswith(f"{sentence}\n")
        assert not (tmp_path / "runs").exists()


def test_accelerators_have_one_worker_each_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, 2)
    assert ExecutorChoice().on("cuda").workers == 2
    assert ExecutorChoice().on("cuda:1").workers == 1
    assert ExecutorChoice(workers=5).on("cuda").workers == 5
    assert ExecutorChoice().on("cpu") == ExecutorChoice()
    with pytest.raises(InputError, match="the executor ray trains on CPUs only, but the device is cuda"):
        ExecutorChoice("ray", address="auto").on("cuda")


def test_worker_processes_take_turns_on_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, 2)
    begun: list[str] = []

    def start(work: object, plan: Blueprint, *_: object, files: object) -> tuple[Any, Any]:
        begun.append(plan.device)
        return Mock(), Pipe()[0]

    monkeypatch.setattr(children, "started", start)
    pool = processes.Processes(replace(blueprint(), device="cuda"), data(), PLACEMENT, workers=3)
    pool._restart(pool._workers[1])
    pool.close()
    assert begun == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"], "and a worker that is replaced keeps its device"
