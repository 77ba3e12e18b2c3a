"""A deployment makes the same kind of run as a simulation: read, compared, resumed; wrong input is one sentence."""

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message
from safetensors import safe_open
from torch import nn

from fairlag.core.server import Server
from fairlag.core.types import Arrived, Dispatch, Floats
from fairlag.core.vector import Matrix, Vector
from fairlag.errors import InputError, Interrupted, StoreError
from fairlag.lab.checkpoints import found
from fairlag.lab.database import Database
from fairlag.lab.deploy import deploy
from fairlag.lab.events import Begun, Event, Kept, Progress
from fairlag.lab.experiment import parse
from fairlag.lab.resources import Resources
from fairlag.lab.run import Run
from fairlag.lab.simulate import simulate
from fairlag.runtime.flower.courier import Courier
from fairlag.zoo import buffered_fedavg
from tests.support.command import Call
from tests.support.flower_deploy import FLEET, OWN, QUICK, Crash, Trained, adding, counted, values_of
from tests.support.flower_grid import FakeGrid, FakeNode, failing, replied
from tests.test_lab_task import sugar

pytestmark = pytest.mark.usefixtures("quick_grid")


def four() -> FakeGrid:
    return FakeGrid({100 + each: FakeNode({"partition-id": each}, Trained(each), 0.01) for each in range(4)})


@pytest.fixture(autouse=True)
def _own_generator() -> Iterator[None]:
    with torch.random.fork_rng():
        yield


def test_a_deployment_is_a_run_like_any_other(tmp_path: Path, call: Call) -> None:
    heard: list[Event] = []
    run = deploy(four(), FLEET, out=tmp_path / "run", watch=heard.append, **QUICK)
    assert run.status == "finished" and run.version == 30 and run.meta["runtime"] == "flower"
    assert run.accuracy() > 0.5 and set(run.evaluations["version"]) == {0, 5, 10, 15, 20, 25, 30}
    assert {name for name in run.evaluated("group")["name"]} == {"fast", "slow"}
    assert len(run.tasks) == run.meta["counts"]["aggregated"] == 60
    assert run.influence("group")["updates"].sum() == 60 and run.influence()["examples"].min() > 0
    assert run.model()(torch.zeros(1, 1, 8, 8)).shape == (1, 10)
    versions = [event.version for event in heard if isinstance(event, Kept)]
    assert versions == [*range(1, 31), 30]  # each as it is made, and once more at the end
    assert [event.version for event in heard if isinstance(event, Progress)][-1] == 30
    for words in (["runs", str(tmp_path)], ["compare", str(tmp_path / "run")]):
        assert call(*words).code == 0
    assert call("report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html"), "--no-incentives").code == 0


def test_a_regression_is_deployed_and_judged_by_its_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tables = sugar(tmp_path, aggregations=20, model={"use": "logistic"}, strategies=FLEET["strategies"])
    experiment = parse(tables, tmp_path)
    resources = Resources(experiment)

    def node(client: int) -> FakeNode:
        inputs, targets = resources.held(client)

        def descended(message: Message) -> Message:
            """One step down the mean squared error of a linear model, by hand."""
            arrays = values_of(message)
            error = inputs @ arrays["1.weight"].T + arrays["1.bias"] - targets
            slopes = {"1.weight": 2 * error.T @ inputs / len(error), "1.bias": 2 * error.mean(axis=0)}
            after = {name: (each - 0.02 * slopes[name]).astype(np.float32) for name, each in arrays.items()}
            return replied(message, after, len(error))

        return FakeNode({"partition-id": client}, descended)

    heard: list[Event] = []
    grid = FakeGrid({100 + each: node(each) for each in range(10)})
    run = deploy(grid, experiment, out=tmp_path / "run", watch=heard.append, **QUICK)
    curve, progress = run.curve(), [event for event in heard if isinstance(event, Progress)]
    assert curve["mse"].iloc[-1] < 0.8 * curve["mse"].iloc[0]
    assert (progress[-1].lead.name, progress[-1].scores) == ("mse", {"": run.score()})
    assert "accuracy" not in caplog.text


def test_a_crash_costs_no_version(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grid = four()

    def stop(event: Event) -> None:
        if isinstance(event, Kept) and event.version == 12:
            raise Crash

    with pytest.raises(Crash):
        deploy(grid, FLEET, out=tmp_path / "run", watch=stop, **QUICK)
    before = Run(tmp_path / "run")
    assert before.status == "interrupted" and before.version == 12
    history = before.influence()["updates"].to_list()
    run = deploy(grid, FLEET, out=tmp_path / "run", **QUICK)
    assert "continues from version 12" in caplog.text
    assert run.status == "finished" and run.version == 30
    assert (
        run.aggregations["version"].to_list() == list(range(1, 31)) and run.aggregations["time"].is_monotonic_increasing
    )
    assert all(now >= then for now, then in zip(run.influence()["updates"], history, strict=True))
    lost = run.tasks[run.tasks["outcome"] == "lost"]
    assert set(lost["reason"]) == {"the server was restarted"}
    counts = run.meta["counts"]
    assert counts["dispatched"] == sum(count for name, count in counts.items() if name != "dispatched")
    again = deploy(grid, FLEET, out=tmp_path / "run", **QUICK)
    assert again.version == 30 and "there is nothing to do" in caplog.text


@pytest.mark.parametrize("version", [0, 5])
def test_only_its_app_continues_a_deployment(tmp_path: Path, call: Call, version: int) -> None:
    """`fairlag resume` would simulate it."""
    out = tmp_path / "run"

    def stop(event: Event) -> None:
        if isinstance(event, Kept if version else Begun) and Run(out).version == version:
            raise Crash

    with pytest.raises(Crash):
        deploy(four(), FLEET, out=out, watch=stop, **QUICK)
    before = Run(out).meta
    done = call("resume", str(out))
    assert (done.code, done.err) == (2, f"fairlag: the run in {str(out)!r} is a deployment: run its app again\n")
    assert Run(out).meta == before and Run(out).version == version
    with pytest.raises(InputError, match="has no final model yet: it is interrupted; run its app again to continue"):
        Run(out).tensors()


def test_after_a_full_disk_the_app_is_to_be_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **options: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    def fill(event: Event) -> None:
        monkeypatch.setattr("fairlag.lab.store.put", full)

    with pytest.raises(StoreError, match=r"a checkpoint to .*: the disk is full; make room, then run the app again"):
        deploy(counted(), OWN, out=tmp_path, arrays=nn.Linear(3, 2), watch=fill, **QUICK)
    monkeypatch.setattr(Database, "__init__", full)
    with pytest.raises(StoreError, match=r"the run to .*: the disk is full; make room, then do the same again"):
        deploy(counted(), OWN, out=tmp_path, arrays=nn.Linear(3, 2), **QUICK)


def test_a_simulation_is_not_continued_by_an_app(tmp_path: Path) -> None:
    simulate({**OWN, "aggregations": 3}, out=tmp_path, workers=1)
    with pytest.raises(InputError, match="is a simulation: give another `out`"):
        deploy(counted(), {**OWN, "aggregations": 3}, out=tmp_path, arrays=nn.Linear(3, 2), **QUICK)


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_version_is_on_disk_before_a_node_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    """Otherwise a crash in between would make it again: with noise, from other numbers, and nobody would know."""
    rounds = {**OWN, "strategies": [{"use": "fedavg", "cohort": 4}]} if interrupted else OWN
    begin: dict[str, Any] = {"out": tmp_path, "arrays": {"weight": np.zeros(2, np.float32)}, **QUICK}
    kept, early = 0, []
    send, handle = Courier.send, Server.handle

    def look(event: Event) -> None:
        nonlocal kept
        kept = event.version if isinstance(event, Kept) else kept

    def sent(self: Courier, name: Any, message: Message) -> None:
        if isinstance(name, Dispatch) and name.version > kept:
            early.append((name.version, kept))
        send(self, name, message)

    def handled(self: Server, event: Any) -> Any:
        if isinstance(event, Arrived):
            signal.raise_signal(signal.SIGINT)
        return handle(self, event)

    if interrupted:  # in the middle of a round, which ends when the run continues and its other clients are gone
        with monkeypatch.context() as patched, pytest.raises(Interrupted):
            patched.setattr(Server, "handle", handled)
            deploy(counted(), rounds, **begin)
    monkeypatch.setattr(Courier, "send", sent)
    deploy(counted(), rounds, watch=look, **begin)
    assert kept == 30 and not early


def test_a_model_of_ones_own_and_its_own_judge(tmp_path: Path) -> None:
    def judge(arrays: dict[str, Any]) -> tuple[int, int, float]:
        assert arrays["batches"] == 3
        return 200, int(min(arrays["weight"][0], 100)), 7.0

    start = {"weight": np.zeros(2, np.float32), "batches": np.array(3)}
    run = deploy(counted(), OWN, out=tmp_path / "run", arrays=start, evaluate=judge, **QUICK)
    assert run.version == 30 and run.tensors()["weight"].tolist() == [30, 30]
    assert run.accuracy() == pytest.approx(30 / 200)
    assert set(run.evaluations["scope"]) == {"all"}
    assert run.clients["examples"].to_list() == [5, 5, 5, 5]


def test_arrays_may_be_a_model_and_need_no_judge(tmp_path: Path) -> None:
    run = deploy(counted(), OWN, out=tmp_path / "run", arrays=nn.Linear(3, 2), **QUICK)
    assert set(run.tensors()) == {"weight", "bias"} and run.evaluations.empty


def normalising(message: Message) -> Message:
    """Half way to a mean of 8 and a variance of 4, whatever it is handed; client 3 claims what cannot be."""
    arrays = values_of(message)
    assert arrays["norm.num_batches_tracked"] == 0
    arrays["last.weight"] = arrays["last.weight"] + np.float32(1)
    wrong = message.content.config_records["config"]["client"] == 3
    for name, aim in (("running_mean", 8), ("running_var", 4), ("scale", 2)):
        values = (arrays[f"norm.{name}"] + np.float32(aim)) / 2
        arrays[f"norm.{name}"] = -values if wrong and name == "running_var" else values
    return replied(message, arrays, 5)


@pytest.mark.parametrize("given", ["module", "state_dict"])
def test_statistics_of_ones_own_model_are_mixed_as_values(tmp_path: Path, given: str) -> None:
    """Their changes, added up from stale versions, would overshoot; here they only come near."""
    model = nn.Sequential()
    model.add_module("norm", nn.BatchNorm1d(2))
    model.add_module("last", nn.Linear(2, 1, bias=False))
    model[0].register_buffer("scale", torch.zeros(1))
    grid = FakeGrid({each: FakeNode({"partition-id": each}, normalising, 0.01 * each) for each in range(4)})
    start = model.state_dict()["last.weight"].numpy().copy()
    arrays = model if given == "module" else model.state_dict()
    run = deploy(grid, OWN, out=tmp_path / "run", arrays=arrays, **QUICK)
    tensors = run.tensors()
    assert tensors["last.weight"] == pytest.approx(start + 30, abs=1e-4)
    assert tensors["norm.running_mean"] == pytest.approx(8, abs=0.1) and tensors["norm.running_mean"].max() <= 8
    assert tensors["norm.running_var"] == pytest.approx(4, abs=0.1) and tensors["norm.running_var"].max() <= 4
    if given == "module":  # it alone says that this is a buffer
        assert tensors["norm.scale"] == pytest.approx(2, abs=0.1) and tensors["norm.scale"].max() <= 2
    refused = run.tasks[run.tasks["outcome"] == "refused"]
    assert set(refused["client"]) == {3} and set(refused["reason"]) == {"a running variance is negative"}


def test_two_tasks_a_node_are_two_clients(tmp_path: Path) -> None:
    run = deploy(counted(), OWN, out=tmp_path / "run", arrays=nn.Linear(3, 2), queued=2, **QUICK)
    assert len(run.clients) == 8 and run.clients["group"].to_list() == ["fast"] * 4 + ["slow"] * 4


def test_nodes_beyond_those_expected_have_rows_too(tmp_path: Path) -> None:
    grid = counted()
    grid.nodes[9] = FakeNode({"name": "another", "group": "fast"}, adding)
    run = deploy(grid, OWN, out=tmp_path / "run", arrays=nn.Linear(3, 2), **{**QUICK, "at_least": 5})
    assert run.clients["group"].to_list() == ["fast", "fast", "slow", "slow", "fast"]
    assert run.influence()["updates"].iloc[4] > 0


def test_local_training_is_told_what_the_strategy_asks_for(tmp_path: Path) -> None:
    grid = counted()
    told = {
        **OWN,
        "local": {"steps": 4, "lr": 0.5, "momentum": 0.9},
        "strategies": [{"use": "fedprox", "cohort": 3, "mu": 0.1}],
    }
    deploy(grid, told, out=tmp_path / "run", arrays=nn.Linear(3, 2), **QUICK)
    config = dict(grid.nodes[2].sent[0][1].content.config_records["config"])
    expected = {
        "local-steps": 4,
        "lr": 0.5,
        "momentum": 0.9,
        "proximal-mu": 0.1,
        "client": 2,
        "ordinal": 0,
        "version": 0,
    }
    assert {name: config[name] for name in expected} == expected


def median(weights: Floats, updates: Matrix) -> Vector:
    middle: Vector = np.median(updates, axis=0)
    return middle


MEDIAN = replace(buffered_fedavg(buffer=2), reduce=median)


@pytest.mark.parametrize(
    ("experiment", "options", "sentence"),
    [
        (OWN, {}, "has no [data] and [model]: give the initial `arrays`"),
        (FLEET, {"arrays": nn.Linear(1, 1)}, "so `arrays` must not be given"),
        (OWN, {"arrays": {"count": np.array(3)}}, "none of the arrays ['count'] has type float32"),
        (
            OWN,
            {"arrays": {"norm.running_var": np.ones(1, np.float32)}},
            "has type float32, except statistics: there is no",
        ),
        (
            OWN,
            {"arrays": nn.BatchNorm1d(2), "strategy": MEDIAN},
            "the reduction median does not declare that it can mix",
        ),
        (OWN, {"arrays": nn.Linear(1, 1), "poll": -1}, "poll is -1, it must be a positive number of seconds"),
        (OWN, {"arrays": nn.Linear(1, 1), "by_key": "yes"}, "by_key is 'yes', it must be True or False"),
        (OWN, {"arrays": nn.Linear(1, 1), "queued": 0}, "queued is 0, it must be a whole number of at least 1"),
        (OWN, {"arrays": nn.Linear(1, 1), "max_examples": None}, "give max_examples, the largest number of training"),
        (OWN, {"arrays": nn.Linear(1, 1), "max_examples": 1.5}, "max_examples is 1.5, it must be a whole number of at"),
        (
            OWN,
            {"arrays": nn.Linear(1, 1), "max_norm": 0.5},
            "max_norm is 0.5, it must be a number of at least 1, or None",
        ),
        (
            OWN,
            {"arrays": nn.Linear(1, 1), "steps_within": None},
            "steps_within is None, it must be a number of at least",
        ),
        (OWN, {"arrays": nn.Linear(1, 1), "strategy": "asofed"}, "needs clients that remember vectors"),
        (
            {**OWN, "local": {"train": "own:train"}},
            {"arrays": nn.Linear(1, 1)},
            "train of [local] is 'own:train', which fairlag does not ask of a Flower ClientApp",
        ),
        (
            {**OWN, "local": {"optimiser": "adam", "optimiser_state": "kept"}},
            {"arrays": nn.Linear(1, 1)},
            "optimiser_state of [local] is 'kept', which fairlag does not ask",
        ),
        (OWN, {"arrays": nn.Linear(1, 1), "strategy": "fedstaleweigth"}, "did you mean 'fedstaleweight'?"),
    ],
)
def test_wrong_input_is_one_sentence_and_leaves_nothing(
    experiment: dict[str, Any], options: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        deploy(counted(), experiment, out=tmp_path / "run", **{**QUICK, **options})
    assert sentence in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_folder_of_another_experiment_is_refused(tmp_path: Path) -> None:
    deploy(counted(), OWN, out=tmp_path / "run", arrays=nn.Linear(3, 2), **QUICK)
    with pytest.raises(InputError, match="belongs to a different experiment: aggregations is 30 there and 31 here"):
        deploy(counted(), {**OWN, "aggregations": 31}, out=tmp_path / "run", arrays=nn.Linear(3, 2), **QUICK)


def test_clients_of_qfedavg_tell_their_loss_before_training_or_are_refused(tmp_path: Path) -> None:
    """All send the same update, so weights are in the ratio of the losses; client 0 does not tell its own."""

    def telling(client: int) -> FakeNode:
        def answer(message: Message) -> Message:
            assert message.content.config_records["config"]["start-loss"] is True
            after = {**(arrays := values_of(message)), "weight": arrays["weight"] + np.float32(1)}
            return replied(message, after, 5, **({"start-loss": 1.0 + client} if client else {}))

        return FakeNode({"partition-id": client}, answer)

    grid = FakeGrid({each: telling(each) for each in range(4)})
    asked = {**OWN, "aggregations": 4, "strategies": [{"use": "qfedavg", "cohort": 4, "local_lr": 0.2}]}
    run = deploy(grid, asked, out=tmp_path / "run", arrays={"weight": np.ones(3, np.float32)}, **QUICK)
    refused = run.tasks[run.tasks["outcome"] == "refused"]
    assert set(refused["client"]) == {0}
    assert set(refused["reason"]) == {"its metrics have no number start-loss, which the strategy needs"}
    merged = run.tasks[run.tasks["outcome"] == "aggregated"]
    for _, version in merged.groupby("aggregation"):
        ratios = version["weight"] / (1 + version["client"])
        assert ratios.to_numpy() == pytest.approx(ratios.iloc[0])
    assert set(merged["client"]) == {1, 2, 3}


def test_who_only_fails_does_not_keep_the_others_from_training(tmp_path: Path) -> None:
    grid = counted()
    grid.nodes[3].answer = failing
    run = deploy(grid, OWN, out=tmp_path / "run", arrays=nn.Linear(3, 2), **QUICK)
    assert run.version == 30
    lost = run.tasks[run.tasks["outcome"] == "lost"]
    assert set(lost["client"]) == {3} and set(lost["reason"]) == {"its ClientApp raised an exception"}


def test_a_judge_that_raises_fails_the_run_by_name(tmp_path: Path) -> None:
    def judge(arrays: dict[str, Any]) -> tuple[int, int, float]:
        raise ValueError("no test data")

    with pytest.raises(InputError, match="evaluating version 0 failed: ValueError: no test data"):
        deploy(counted(), OWN, out=tmp_path / "run", arrays=nn.Linear(3, 2), evaluate=judge, **QUICK)
    assert Run(tmp_path / "run").status == "failed"


def test_evaluations_slower_than_versions_do_not_pile_up(tmp_path: Path) -> None:
    waiting: list[int] = []

    def judge(arrays: dict[str, Any]) -> tuple[int, int, float]:
        time.sleep(0.5)
        return 100, 50, 7.0

    def look(event: Event) -> None:
        if isinstance(event, Kept):
            newest, *_ = found(tmp_path / "run")
            with safe_open(newest.file, "np") as tensors:
                waiting.append(sum("pending" in name for name in list(tensors.keys())))

    told = {**OWN, "evaluate": {"every": 1}}
    run = deploy(counted(), told, out=tmp_path / "run", arrays=nn.Linear(3, 2), evaluate=judge, watch=look, **QUICK)
    versions = run.evaluations["version"].to_list()
    assert versions[0] == 0 and versions[-1] == 30 and len(versions) < 31
    assert max(waiting) <= 3  # with the last of all; each is a whole model in every checkpoint


def test_a_run_whose_last_evaluation_failed_is_finished_by_the_next(tmp_path: Path) -> None:
    broken = [True]

    def judge(arrays: dict[str, Any]) -> tuple[int, int, float]:
        if broken[0] and arrays["weight"][0] >= 30:
            raise OSError("the disk of the test data is gone")
        return 100, 50, 7.0

    begin: dict[str, Any] = {"arrays": {"weight": np.zeros(2, np.float32)}, "evaluate": judge, **QUICK}
    with pytest.raises(InputError, match="evaluating version 30 failed"):
        deploy(counted(), OWN, out=tmp_path / "run", **begin)
    broken[0] = False
    run = deploy(counted(), OWN, out=tmp_path / "run", **begin)
    assert run.status == "finished" and run.evaluations["version"].max() == 30


def test_times_are_those_of_the_clock(tmp_path: Path) -> None:
    grid = FakeGrid({each: FakeNode({"partition-id": each}, adding, 0.05) for each in range(4)})
    began = time.monotonic()
    run = deploy(grid, {**OWN, "aggregations": 5}, out=tmp_path / "run", arrays=nn.Linear(3, 2), **QUICK)
    took = time.monotonic() - began
    durations = run.tasks["ended"] - run.tasks["dispatched"]
    assert durations.min() >= 0.05 and run.virtual_time <= took
