"""Deployments with masked clients and the keeper's real process: sums, restarts, and what the server never holds."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message

from fairlag.errors import InputError, KeeperError, StrategyError
from fairlag.lab.deploy import deploy
from fairlag.lab.events import Event, Kept
from fairlag.lab.experiment import parse
from fairlag.lab.resources import Resources
from fairlag.lab.run import Run
from fairlag.privacy.fixed import quantise
from fairlag.privacy.secure.keys import make_keys
from tests.support.flower_deploy import FLEET, QUICK, Crash, adding, values_of
from tests.support.flower_grid import FakeGrid, FakeNode, replied
from tests.support.keeper_process import Started, started
from tests.support.masked_fleet import PRIVACY, SECURE, SECURE_OWN, at, fleet, keys, masks, terms

pytestmark = pytest.mark.usefixtures("quick_grid")
START = {"weight": np.zeros(650, np.float32)}


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """One process for all tests, because each start imports everything."""
    with started(keys(tmp_path_factory.mktemp("keys")), terms=terms(650)) as process:
        yield process


@pytest.fixture(autouse=True)
def _own_generator() -> Iterator[None]:
    with torch.random.fork_rng():
        yield


def deployed(keeper: Started, grid: FakeGrid, out: Path, tables: Any = SECURE_OWN, **options: Any) -> Run:
    options = {"secure": at(keeper.folder, keeper.address), **QUICK, **options}
    if "data" not in tables:
        options["arrays"] = START
    return deploy(grid, tables, out=out, **options)


def descending(client: int) -> Callable[[Message], Message]:
    """A client that descends the cross-entropy of softmax regression on all its digits, by hand."""
    inputs, labels = Resources(parse(FLEET)).held(client)
    inputs = inputs.reshape(len(inputs), -1)

    def train(message: Message) -> Message:
        arrays = values_of(message)
        for _ in range(5):
            scores = inputs @ arrays["1.weight"].T + arrays["1.bias"]
            parts = np.exp(scores - scores.max(axis=1, keepdims=True))
            error = (parts / parts.sum(axis=1, keepdims=True) - np.eye(10)[labels]) / len(labels)
            slopes = {"1.weight": error.T @ inputs, "1.bias": error.sum(axis=0)}
            arrays = {name: (each - 0.5 * slopes[name]).astype(np.float32) for name, each in arrays.items()}
        return replied(message, arrays, len(labels))

    return train


def test_masked_clients_learn_as_well_as_clients_in_the_clear(keeper: Started, tmp_path: Path) -> None:
    together = {"strategies": [{"use": "buffered_fedavg", "buffer": 4}]}  # no chance: all four are in every version
    run = deployed(keeper, fleet(keeper.folder, descending), tmp_path / "masked", {**SECURE, **together})
    assert run.version == 30 and run.refusals.empty and not run.aggregations["refused"].any()
    grid = FakeGrid({100 + each: FakeNode({"partition-id": each}, descending(each)) for each in range(4)})
    clear = deploy(grid, {**FLEET, **together}, out=tmp_path / "clear", **QUICK)
    assert abs(run.accuracy() - clear.accuracy()) < 0.01 and run.accuracy() > 0.8
    for name, values in clear.tensors().items():
        assert 0 < np.abs(values - run.tensors()[name]).max() < 1e-5


def test_a_step_is_the_mean_of_the_updates(keeper: Started, tmp_path: Path) -> None:
    """Every client adds 1, so every version adds 1, up to the error that quantising and the keeper's blur may have."""
    run = deployed(keeper, fleet(keeper.folder, lambda client: adding), tmp_path / "run", SECURE_OWN)
    assert np.abs(run.tensors()["weight"] - 30).max() < 30 * 2.0**-23  # 2^-30 per step, and the rounding of float32


def noisy(sent: list[Any]) -> Callable[[int], Callable[[Message], Message]]:
    """Clients that add random numbers, and note them."""
    generator = np.random.default_rng(0)

    def train(message: Message) -> Message:
        arrays = values_of(message)
        change = generator.normal(0, 0.01, 650).astype(np.float32)
        after = arrays["weight"] + change
        sent.append(after - arrays["weight"])
        return replied(message, {"weight": after}, 5)

    return lambda client: train


def test_neither_messages_nor_checkpoints_hold_a_single_update(keeper: Started, tmp_path: Path) -> None:
    updates: list[Any] = []
    grid, seen = fleet(keeper.folder, noisy(updates)), b""
    heard: list[bytes] = []
    for node in grid.nodes.values():
        node.answer = listened(node.answer, heard)

    def watch(event: Event) -> None:
        nonlocal seen
        if isinstance(event, Kept):
            seen += b"".join(file.read_bytes() for file in (tmp_path / "run").rglob("checkpoint-*"))

    # With two versions in reach of the buffer, a checkpoint holds updates that are not merged yet.
    held = {**SECURE_OWN, "aggregations": 8}
    deployed(keeper, grid, tmp_path / "run", held, watch=watch)
    assert len(updates) >= 16 and len(heard) >= 16 and seen
    for update in updates:
        for needle in (update[:8].tobytes(), quantise(update)[:4].tobytes()):
            assert needle not in seen and not any(needle in each for each in heard)


def listened(answer: Callable[[Message], Message | None], heard: list[bytes]) -> Callable[[Message], Message | None]:
    def both(message: Message) -> Message | None:
        reply = answer(message)
        assert reply is not None
        heard.append(b"".join(each.data for each in reply.content.array_records["arrays"].values()))
        return reply

    return both


@pytest.mark.slow
def test_a_killed_keeper_costs_buffers_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlag.privacy.secure.link._PAUSE", 0.01)
    folder = keys(tmp_path / "keys")
    with started(folder, terms=terms(650)) as first:
        address = first.address

        def kill(event: Event) -> None:
            if isinstance(event, Kept) and event.version == 3:
                first.end()
            if isinstance(event, Kept) and event.version == 5:
                raise Crash

        with pytest.raises(Crash):
            deployed(first, fleet(folder, lambda client: adding), tmp_path / "run", watch=kill)
    reasons = Run(tmp_path / "run").aggregations["refused"].to_list()
    assert reasons[:3] == ["", "", ""] and all("cannot reach the keeper" in each for each in reasons[3:5])
    assert "Version 4 repeats the last one: cannot reach the keeper" in caplog.text
    with pytest.raises(KeeperError, match="cannot reach the keeper at"):
        deployed(first, fleet(folder, lambda client: adding), tmp_path / "run")
    # The keeper and the server are started again: the run continues, and only those buffers are lost.
    with started(folder, listen=address, terms=terms(650)) as second:
        run = deployed(second, fleet(folder, lambda client: adding), tmp_path / "run")
    refused = run.aggregations["refused"] != ""
    assert run.version == 30 and refused.sum() == 2
    assert np.abs(run.tensors()["weight"] - 28).max() < 30 * 2.0**-23


def test_a_restarted_server_loses_its_buffer_at_most(keeper: Started, tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, Kept) and event.version == 7:
            raise Crash

    grid = fleet(keeper.folder, lambda client: adding)
    with pytest.raises(Crash):
        deployed(keeper, grid, tmp_path / "run", watch=stop)
    run = deployed(keeper, grid, tmp_path / "run")
    assert run.version == 30 and not run.aggregations["refused"].any()
    assert set(run.tasks[run.tasks["outcome"] == "lost"]["reason"]) == {"the server was restarted"}
    assert np.abs(run.tensors()["weight"] - 30).max() < 30 * 2.0**-23


def test_a_client_in_the_clear_is_refused(keeper: Started, tmp_path: Path) -> None:
    grid = fleet(keeper.folder, lambda client: adding)
    grid.nodes[100].answer = adding
    run = deployed(keeper, grid, tmp_path / "run")
    assert run.version == 30 and set(run.refusals["reason"]) == {"it is not masked"}
    assert 0 not in set(run.tasks[run.tasks["outcome"] == "aggregated"]["client"])


def test_a_client_that_the_keeper_does_not_know_is_left_out(
    keeper: Started, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = keeper.folder / "client-9"
    make_keys(stranger, "client")
    grid = fleet(keeper.folder, lambda client: adding)
    grid.nodes[100].answer = masks(keeper.folder, 9, adding)
    three = {**SECURE_OWN, "strategies": [{"use": "buffered_fedavg", "buffer": 3}]}
    run = deployed(keeper, grid, tmp_path / "run", three)
    weights = run.tasks.dropna(subset=["weight"]).groupby("client")["weight"].sum()
    assert weights[0] == 0 and weights[1] > 0 and not run.aggregations["refused"].any()
    assert "the update of client 0 is left out: the keeper refused: update" in caplog.text


def test_wrong_input_is_one_sentence(keeper: Started, tmp_path: Path) -> None:
    grid, address = fleet(keeper.folder, lambda client: adding), at(keeper.folder, keeper.address)
    small = {"weight": np.zeros(3, np.float32)}
    plain = {name: table for name, table in SECURE_OWN.items() if name != "privacy"}
    wrong: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (plain, {}, "`secure` names a keeper, but the experiment does not ask for secure aggregation"),
        (
            SECURE_OWN,
            {"secure": None},
            "secure = true in \\[privacy\\] needs a keeper: give deploy secure=KeeperAddress",
        ),
        (SECURE_OWN, {"arrays": small}, "is for a model of 650 parameters, but this one has 3: start .* --size 3"),
        (SECURE_OWN, {"queued": 2}, "queued is 2, so a node counts as 2 clients, but \\[privacy\\] hides one: use 1"),
        ({**SECURE_OWN, "privacy": {**PRIVACY, "bound": 0.7}}, {}, "bound is 0.7 in .* at most 0.6 of the weight"),
        ({**SECURE_OWN, "privacy": {**PRIVACY, "masks": False}}, {}, "masks = false in .* is for simulations"),
    ]
    for tables, options, sentence in wrong:
        with pytest.raises(InputError, match=sentence):
            deploy(grid, tables, out=tmp_path / "run", **{"secure": address, "arrays": START, **QUICK, **options})
    normal = {**START, "norm.running_mean": np.zeros(1, np.float32)}
    with pytest.raises(StrategyError, match="the model has statistics"):
        deploy(grid, SECURE_OWN, out=tmp_path / "run", arrays=normal, secure=address, **QUICK)
    assert not (tmp_path / "run").exists()
