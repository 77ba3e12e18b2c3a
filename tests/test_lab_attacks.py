"""One attacker among honest clients of a deployment: what it sends and what it says buy nothing beyond the bounds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from fairlag.lab.deploy import deploy
from fairlag.lab.experiment import parse
from fairlag.lab.resources import Resources
from fairlag.lab.run import Run
from fairlag.runtime.flower.wire import unpacked
from tests.support.command import Call
from tests.support.flower_deploy import FLEET as DIGITS
from tests.support.flower_deploy import Trained
from tests.support.flower_grid import FakeGrid, FakeNode, replied

pytestmark = pytest.mark.usefixtures("quick_grid")

FLEET: dict[str, Any] = {
    "name": "attacked",
    "aggregations": 10,
    "local": {"steps": 5, "lr": 0.1, "momentum": 0.9},
    "clients": [{"group": "all", "count": 4, "delay": 1}],
}
ATTACKER = 3
START = {"weight": np.full(50, 0.5, np.float32)}


def adding(change: float, examples: int = 5, **said: Any) -> Callable[[Message], Message]:
    """A client that adds a number to all weights, or sends only that number if it is enormous."""

    def answer(message: Message) -> Message:
        weight = unpacked(message.content.array_records["arrays"]["weight"])
        return replied(message, {"weight": (weight + np.float32(change)).astype(np.float32)}, examples, **said)

    return answer


def attacked(tmp_path: Path, use: str, attack: Callable[[Message], Message], **options: Any) -> Run:
    """Three honest clients, and one that answers before all others."""
    grid = FakeGrid({each: FakeNode({"partition-id": each}, adding(0.01), 0.02) for each in range(4)})
    grid.nodes[ATTACKER] = FakeNode({"partition-id": ATTACKER}, attack)
    parameters = {"cohort": 4} if use in ("fedavg", "fednova") else {"share": 1.0} if use == "safa" else {"buffer": 2}
    told = {**FLEET, "strategies": [{"use": use, **parameters}]}
    quick = {"insecure": True, "poll": 0.005, "look": 0.01, "backoff": 0.02, "at_least": 4, "max_examples": 10}
    return deploy(grid, told, out=tmp_path / "run", arrays=START, **{**quick, **options})


def weights(run: Run) -> list[float]:
    """The largest weight that an update of each client got."""
    tasks = run.tasks[run.tasks["outcome"] == "aggregated"]
    return [float(tasks[tasks["client"] == each]["weight"].max()) for each in range(4)]


def test_one_enormous_reply_does_not_take_the_fleet(tmp_path: Path) -> None:
    """Real training: a model of 3e38 made every honest update overflow, and the attacker's idle ones went on."""
    enormous = [3e38]

    def answer(message: Message) -> Message:
        sent = {name: unpacked(each) for name, each in message.content.array_records["arrays"].items()}
        value = enormous.pop() if enormous else None
        after = sent if value is None else {name: each * 0 + value for name, each in sent.items()}
        return replied(message, after, 10**9)

    grid = FakeGrid({each: FakeNode({"partition-id": each}, Trained(each), 0.01) for each in range(3)})
    grid.nodes[ATTACKER] = FakeNode({"partition-id": ATTACKER}, answer)
    run = deploy(grid, DIGITS, out=tmp_path / "run", poll=0.005, look=0.01, at_least=4, insecure=True)
    refused = run.tasks[run.tasks["outcome"] == "refused"]
    assert refused["client"].to_list() == [ATTACKER] and run.status == "finished"
    found = run.influence().set_index("client")
    assert found["influence"][ATTACKER] < 0.6
    # Nobody says how many examples a client has at most: then it is what the largest of the experiment has.
    assert found["examples"][ATTACKER] == Resources(parse(DIGITS)).setting(0).examples.max()


def test_an_enormous_update_is_refused_and_nobody_else_is(tmp_path: Path) -> None:
    run = attacked(tmp_path, "buffered_fedavg", adding(3e38))
    assert run.status == "finished" and run.version == 10
    refused = run.tasks[run.tasks["outcome"] == "refused"]
    assert set(refused["client"]) == {ATTACKER} and set(refused["reason"]) == {"longer than 10 times the usual update"}
    shares = run.influence().set_index("client")["influence"]
    assert shares[ATTACKER] == 0 and shares.sum() == pytest.approx(1)
    assert set(run.aggregations["refused"]) == {""}


def test_an_aggregation_with_an_enormous_update_is_refused_and_the_run_says_who(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, call: Call
) -> None:
    run = attacked(tmp_path, "buffered_fedavg", adding(3e38), max_norm=None)
    assert run.status == "finished" and run.version == 10 and run.refusals.empty
    refused = run.aggregations[run.aggregations["refused"] != ""]
    assert len(refused) and set(refused["weight"]) == {0.0}
    named = {"the step is more than 10 times as large as the model, most of it from client 3 (100 %)"}
    assert set(refused["refused"]) == named and "most of it from client 3 (100 %)" in caplog.text
    assert (run.tasks["outcome"] == "aggregated").all()
    page = tmp_path / "page.html"
    for words in (["compare", str(run.folder)], ["report", str(run.folder), "--out", str(page), "--no-incentives"]):
        assert call(*words).code == 0


@pytest.mark.parametrize(("use", "most"), [("fedavg", 10 / 25), ("safa", 10 / 25)])
def test_examples_that_a_client_says_it_has_count_up_to_the_declared_number(
    use: str, most: float, tmp_path: Path
) -> None:
    run = attacked(tmp_path, use, adding(0.01, examples=10**12))
    assert run.version == 10 and max(weights(run)) == weights(run)[ATTACKER] == pytest.approx(most)


@pytest.mark.parametrize("steps", [1, 10**9])
def test_steps_that_a_client_says_it_made_count_if_they_are_near_those_asked_for(steps: int, tmp_path: Path) -> None:
    """Efforts with momentum 0.9: 5 steps 13.1, 10 steps 41.4, 3 steps 5.6; all clients have as many examples."""
    run = attacked(tmp_path, "fednova", adding(0.01, **{"num-steps": steps}))
    efforts = np.array([13.1441, 13.1441, 13.1441, 41.381059609 if steps > 1 else 5.61])
    assert weights(run) == pytest.approx((efforts.mean() / efforts / 4).tolist(), rel=1e-4)
