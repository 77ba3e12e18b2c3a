"""`clients` and `personalise` in [evaluate]: whole runs, tested on what their clients hold back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score, roc_auc_score  # type: ignore[import-untyped]
from torch import nn
from torch.nn import functional

from fairlag.data.dataset import Dataset
from fairlag.errors import ExperimentError, InputError
from fairlag.lab.experiment import load, parse
from fairlag.lab.resources import Resources
from fairlag.lab.run import Run
from fairlag.lab.serialise import as_tables
from fairlag.lab.simulate import simulate
from fairlag.lab.store import Store
from tests.support.resuming import contents

FLEET: dict[str, Any] = {
    "name": "own",
    "aggregations": 12,
    "clients": [
        {"group": "fast", "count": 5, "delay": "uniform(1, 2)"},
        {"group": "slow", "count": 3, "delay": "uniform(5, 9)"},
    ],
    "strategies": [{"use": "fedbuff", "buffer": 3, "concurrency": 6}],
    "data": {"use": "digits", "partition": "dirichlet(1.0)"},
    "model": {"use": "tests.support.models:dropout_mlp"},
    "local": {"steps": 2, "batch": 16, "lr": 0.1},
    "evaluate": {"every": 5, "sample": 50, "clients": 0.2, "personalise": 3},
}


def tables(**evaluate: Any) -> dict[str, Any]:
    return {**FLEET, "evaluate": {"every": 5, "sample": 50, **evaluate}}


def held_back(run: Run, experiment: Any) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """The inputs and labels that each client is tested on: what it would train on without `clients`, but does not."""
    plain = experiment.checked(evaluate={"every": 5, "sample": 50})
    found = []
    for client in range(experiment.population):
        some, every = (Resources(each).held(client, run.seed) for each in (experiment, plain))
        train = {each.tobytes() for each in some[0]}
        left = [place for place, each in enumerate(every[0]) if each.tobytes() not in train]
        found.append((every[0][left], every[1][left]))
    return found


def test_every_client_is_tested_on_what_it_holds_back(tmp_path: Path) -> None:
    experiment = parse(tables(clients=0.2))
    run = simulate(experiment, out=tmp_path / "run", workers=1)
    frame, model = run.client_scores(), run.model()
    assert frame.columns.tolist() == ["client", "group", "examples", "value"]
    assert frame["group"].tolist() == ["fast"] * 5 + ["slow"] * 3
    losses = run.client_scores("loss")["value"]
    for client, (inputs, labels) in enumerate(held_back(run, experiment)):
        with torch.no_grad():
            output = model(torch.from_numpy(inputs))
        assert frame["examples"][client] == len(labels) == round(0.2 * (len(labels) + run.clients["examples"][client]))
        assert frame["value"][client] == pytest.approx((output.argmax(1).numpy() == labels).mean())
        assert losses[client] == pytest.approx(float(functional.cross_entropy(output, torch.from_numpy(labels))), 1e-5)
    assert run.client_scores(personalised=True).empty
    assert run.client_scores().dtypes.astype(str).tolist()[2:] == ["int64", "float64"]


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), classes))


class Counting(nn.Module):
    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.table = nn.Embedding(tokens, tokens)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.table(ids)
        return found


def numbers() -> Dataset:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(240, 3)).astype(np.float32)
    return Dataset("numbers", inputs, (inputs @ [[1.0], [-2.0], [0.5]]).astype(np.float32), 1, official=240)


def labels() -> Dataset:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(240, 3)).astype(np.float32)
    return Dataset("labels", inputs, (inputs[:, :2] > 0).astype(np.int64), 2, official=240)


def tokens() -> Dataset:
    ids = np.random.default_rng(0).integers(0, 5, (240, 6))
    return Dataset("tokens", ids, (ids + 1) % 5, 5, official=240)


def _auroc(output: torch.Tensor, target: torch.Tensor) -> float:
    """The mean over the labels that some of the client's examples have and others do not."""
    mixed = [each for each in (0, 1) if 0 < target[:, each].sum() < len(target)]
    return float(np.mean([roc_auc_score(target[:, each], output[:, each]) for each in mixed]))


def _perplexity(output: torch.Tensor, target: torch.Tensor) -> float:
    return float(functional.cross_entropy(output.flatten(0, 1), target.flatten()).exp())


TASKS: dict[str, Any] = {
    "mse": ("regression", numbers, linear, lambda out, target: float((out - target).square().mean())),
    "r2": ("regression", numbers, linear, lambda out, target: r2_score(target.numpy(), out.numpy())),
    "auroc": ("multilabel", labels, linear, _auroc),
    "perplexity": ("next_token", tokens, lambda shape, classes: Counting(classes), _perplexity),
}


@pytest.mark.parametrize("metric", TASKS)
def test_clients_of_any_task_are_tested(tmp_path: Path, metric: str) -> None:
    task, data, model, by_hand = TASKS[metric]
    made = {"data": {"use": data, "holdout": 0.2}, "model": {"use": model}, "task": {"use": task}}
    experiment = parse({**tables(clients=0.25), **made})
    run = simulate(experiment, out=tmp_path / "run", executor="serial")
    found, final = run.client_scores(metric), run.model()
    for client, (inputs, target) in enumerate(held_back(run, experiment)):
        with torch.no_grad():
            output = final(torch.from_numpy(inputs))
        assert found["value"][client] == pytest.approx(by_hand(output, torch.from_numpy(target)), rel=1e-4)


def test_workers_change_nothing(tmp_path: Path) -> None:
    one, two = (
        simulate(FLEET, out=tmp_path / str(workers), workers=workers, executor=executor)
        for workers, executor in ((1, "serial"), (2, "processes"))
    )
    assert contents(one.folder) == contents(two.folder)
    assert len(contents(one.folder)["client_scores"]) == 8 * 2 * 2  # clients, with and without steps, metrics


def test_training_does_not_notice_that_clients_are_tested(tmp_path: Path) -> None:
    both, alone = (
        contents(simulate(tables(clients=0.2, **more), out=tmp_path / name, workers=1).folder)
        for name, more in (("both", {"personalise": 3}), ("alone", {}))
    )
    scores, fewer = (set(map(repr, found.pop("client_scores"))) for found in (both, alone))
    assert both == alone and fewer < scores


def test_own_steps_help_clients_whose_labels_are_their_own(tmp_path: Path) -> None:
    demo = load("demo").checked(aggregations=40, evaluate={"every": 50, "clients": 0.2, "personalise": 20})
    run = simulate(demo, strategy="buffered_fedavg", out=tmp_path / "run", workers=1)
    before, after = (run.client_scores(personalised=each)["value"].mean() for each in (False, True))
    assert after > before + 0.1


def test_a_run_that_is_killed_while_clients_are_tested_ends_with_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = simulate(FLEET, out=tmp_path / "whole", workers=1)

    class Killed(BaseException):
        pass

    finish = Store.finish

    def killed(self: Store, *_: object, **__: object) -> None:
        raise Killed

    monkeypatch.setattr("fairlag.lab.loop.CHECKPOINT", 0.0)
    monkeypatch.setattr("fairlag.lab.loop._COSTLY", 0)
    monkeypatch.setattr(Store, "finish", killed)
    for _ in range(2):  # the second time, the scores of the last version are in the database already
        with pytest.raises(Killed):
            simulate(FLEET, out=tmp_path / "killed", workers=1, resume=True)
    assert Run(tmp_path / "killed").status == "interrupted"
    monkeypatch.setattr(Store, "finish", finish)
    simulate(FLEET, out=tmp_path / "killed", workers=1, resume=True)
    assert contents(tmp_path / "killed") == contents(whole.folder)


def test_streams_and_the_wall_clock(tmp_path: Path) -> None:
    data = {"data": {"use": "digits", "stream": "linear(start=0.1, per_second=0.01)"}}
    run = simulate({**FLEET, **data, "clock": "wall", "speed": 400.0}, out=tmp_path / "run", workers=1)
    assert run.client_scores(personalised=True)["examples"].tolist() == run.client_scores()["examples"].tolist()


def test_clients_with_too_few_examples_are_not_tested(tmp_path: Path) -> None:
    few = {"clients": [{"group": "all", "count": 300, "delay": "uniform(1, 2)"}], "aggregations": 2}
    run = simulate({**tables(clients=0.1), **few}, out=tmp_path / "run", workers=1)
    counted = int((np.floor(0.1 * _sizes(run) + 0.5) > 0).sum())
    assert run.meta["clients_with_tests"] == len(run.client_scores()) == counted < 300


def _sizes(run: Run) -> np.ndarray[Any, Any]:
    """How many examples the clients would have without tests of their own."""
    plain = parse({**run.settings, "evaluate": {}, "model": FLEET["model"]})
    _, shares = Resources(plain).shares(run.seed)
    return shares.sizes


def test_keys_that_are_not_given_are_not_written() -> None:
    assert as_tables(load("demo"))["evaluate"] == {"every": 50, "sample": 2000}
    written = as_tables(parse(FLEET))["evaluate"]
    assert (written["clients"], written["personalise"]) == (0.2, 3)


@pytest.mark.parametrize(
    ("evaluate", "sentence"),
    [
        ({"clients": 1.5}, "evaluate.clients: it is 1.5, but must be a number between 0 and 1, such as 0.1"),
        ({"clients": 0}, "evaluate.clients: it is 0, but must be a number between 0 and 1, such as 0.1"),
        (
            {"personalise": 3},
            "evaluate: personalise is 3, but clients have no test data of their own: give `clients`, such as 0.1",
        ),
        ({"clients": 0.1, "personalise": -1}, "evaluate.personalise is -1: it must be greater than or equal to 1"),
    ],
)
def test_mistakes_are_one_sentence(evaluate: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        parse(tables(**evaluate))
    assert str(caught.value) == sentence


def test_without_data_there_is_nothing_to_hold_back() -> None:
    idle = {name: value for name, value in FLEET.items() if name not in ("data", "model", "local")}
    with pytest.raises(ExperimentError, match=r"^evaluate.clients is 0.2, but there is no \[data\] that clients could"):
        parse(idle)


def test_a_part_too_small_for_every_client_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^evaluate.clients is 0.0001, but no client has enough examples for a test"):
        simulate(tables(clients=0.0001), out=tmp_path / "run", workers=1)
    assert not (tmp_path / "run").exists()


def test_a_real_fleet_keeps_its_data(tmp_path: Path) -> None:
    deploy = pytest.importorskip("fairlag.lab.deploy").deploy
    with pytest.raises(InputError, match=r"^evaluate.clients is 0.2, but the clients of a real fleet keep their data"):
        deploy(None, FLEET, out=tmp_path / "run")
