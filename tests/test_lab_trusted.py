"""Defences that compare updates with a step of the server's own refuse an attacker in a deployment, too."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message
from torch import nn

from fairlag.core.types import Dispatch, Update
from fairlag.core.view import View
from fairlag.errors import InputError
from fairlag.lab.deploy import deploy
from fairlag.lab.experiment import parse
from fairlag.lab.resources import Resources
from fairlag.lab.run import Run
from fairlag.lab.simulate import simulate
from fairlag.rules import reads_reference, reads_updates
from fairlag.runtime.flower.wire import unpacked
from fairlag.zoo import buffered_fedavg
from tests.support.flower_deploy import FLEET, QUICK, Trained, adding, values_of
from tests.support.flower_grid import FakeGrid, FakeNode, replied

pytestmark = pytest.mark.usefixtures("quick_grid")

REASONS = {"zeno": "against the server's own step", "aflguard(1.5)": "far from the server's own step"}
FIVE = {
    **FLEET,
    "data": {"use": "digits", "partition": "iid", "trusted": 100},
    "clients": [{"group": "all", "count": 5, "delay": 1}],
}


def defended(defence: str, tables: dict[str, Any]) -> dict[str, Any]:
    return {**tables, "strategies": [{"use": "buffered_fedavg", "buffer": 2, "defence": defence}]}


def own(defence: str = "zeno") -> dict[str, Any]:
    return defended(defence, {key: table for key, table in FIVE.items() if key not in ("data", "model")})


def turned(reply: Message, message: Message) -> Message:
    """The reply with ten times the opposite of what was trained."""
    before = values_of(message)
    after = {name: unpacked(each) for name, each in reply.content.array_records["arrays"].items()}
    return replied(message, {name: 11 * each - 10 * after[name] for name, each in before.items()}, 5)


def adding_everywhere(message: Message) -> Message:
    return replied(message, {name: each + np.float32(1) for name, each in values_of(message).items()}, 5)


def five(answers: list[Any]) -> FakeGrid:
    """Five nodes, of which the last one flips the sign of its updates."""
    nodes = {each: FakeNode({"partition-id": each}, answer, 0.01) for each, answer in enumerate(answers)}
    nodes[4].answer = lambda message: turned(answers[4](message), message)
    return FakeGrid(nodes)


@pytest.mark.parametrize("defence", REASONS)
def test_a_function_of_ones_own_trains_once_per_version(tmp_path: Path, defence: str) -> None:
    """Honest updates are 1 everywhere, as is the server's own step; the attacker's are −10."""
    told: list[dict[str, Any]] = []

    def trained(arrays: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
        assert arrays.pop("batches") == 3
        told.append(config)
        arrays["weight"] += 1  # they are a copy
        return arrays

    start = {"weight": np.zeros(2, np.float32), "batches": np.array(3)}
    how = {**QUICK, "at_least": 5, "queued": 2}
    run = deploy(five([adding] * 5), own(defence), out=tmp_path / "run", arrays=start, trusted=trained, **how)
    assert run.tensors()["weight"].tolist() == [30, 30]
    refused = run.tasks[run.tasks["outcome"] == "refused"]
    assert set(refused["client"]) <= {8, 9} and set(refused["reason"]) == {REASONS[defence]}
    assert (run.influence()["updates"][8:] == 0).all()
    assert [each["version"] for each in told] == sorted({each["version"] for each in told})
    asked = {"local-steps": 3, "lr": 0.2, "batch-size": 16, "client": 5, "version": 0, "ordinal": 0, "server-round": 1}
    assert {name: told[0][name] for name in asked} == asked


def test_the_examples_of_the_experiment_are_trained_on(tmp_path: Path) -> None:
    resources = Resources(parse(FIVE))
    with torch.random.fork_rng():
        grid = five([Trained(each, resources) for each in range(5)])
        run = deploy(grid, defended("aflguard(2)", FIVE), out=tmp_path / "run", **{**QUICK, "at_least": 5})
    refused = run.tasks[run.tasks["outcome"] == "refused"]
    assert set(refused["reason"]) == {"far from the server's own step"}
    updates = run.influence()["updates"].to_list()
    assert updates[4] == 0 and min(updates[:4]) > 0 and run.accuracy() > 0.7
    assert (refused["client"] == 4).mean() > 0.5  # now and then, an honest one is far from it, too


def test_the_step_is_the_same_as_in_a_simulation(tmp_path: Path) -> None:
    """From the first version, which both have in common."""
    steps = []

    @reads_reference
    @reads_updates
    def noting(update: Update, task: Dispatch, view: View) -> str | None:
        if view.version == 0:
            steps.append(view.reference.tobytes())
        return None

    strategy = replace(buffered_fedavg(buffer=2), admit=noting)
    short = {**FIVE, "aggregations": 2}
    simulate(short, strategy=strategy, workers=1)
    deploy(five([adding_everywhere] * 5), short, strategy=strategy, out=tmp_path / "run", **QUICK)
    assert len(steps) >= 4 and len(set(steps)) == 1
    assert np.frombuffer(steps[0], np.float32).any()


@pytest.mark.parametrize(
    ("experiment", "options", "sentence"),
    [
        (
            own(),
            {"arrays": nn.Linear(1, 1)},
            "compares updates with a step on the server's own examples: give `trusted`, a function that trains",
        ),
        (own(), {"arrays": nn.Linear(1, 1), "trusted": 100}, "trusted is 100, it must be a function of arrays and a"),
        (defended("zeno", FIVE), {"trusted": dict}, "has [data], so the function `trusted` must not be given: `truste"),
    ],
)
def test_wrong_input_is_one_sentence_and_leaves_nothing(
    experiment: dict[str, Any], options: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        deploy(five([adding] * 5), experiment, out=tmp_path / "run", **{**QUICK, **options})
    assert sentence in str(caught.value)
    assert not (tmp_path / "run").exists()


def failing(arrays: Mapping[str, Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("trusted", "sentence"),
    [
        (failing, r"^trusted failed at version 0: OSError: the disk is gone \(test_lab_trusted\.py, line \d+\)$"),
        (lambda arrays, config: None, "trusted returned None, it must return the arrays that it was given, trained"),
        (
            lambda arrays, config: {"weight": arrays["weight"]},
            r"that it was given, trained: the arrays are named \['weight'\], the layout expects \['bias', 'weight'\]$",
        ),
        (
            lambda arrays, config: {**arrays, "bias": np.full(2, np.nan)},
            "^trusted returned values that are not finite at version 0$",
        ),
    ],
)
def test_a_function_that_does_not_train_ends_the_run_with_a_sentence(
    trusted: Any, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=sentence):
        deploy(five([adding] * 5), own(), out=tmp_path / "run", arrays=nn.Linear(3, 2), trusted=trusted, **QUICK)
    assert Run(tmp_path / "run").status == "failed"
