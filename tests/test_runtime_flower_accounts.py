"""FairShare's accounts over a Grid: kept through restarts and rejoining, and what clients say cannot raise them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag.core.server import Server
from fairlag.core.types import Aggregation, Floats
from fairlag.lab.deploy import deploy
from fairlag.lab.events import Event, Kept, Tell
from fairlag.lab.run import Run
from fairlag.zoo import fairshare
from tests.support.flower_bench import Bench
from tests.support.flower_deploy import OWN, QUICK, Crash, adding
from tests.support.flower_grid import FakeGrid, FakeNode, replied
from tests.support.states import books, through_a_file

pytestmark = pytest.mark.usefixtures("quick_grid")

BY_ACCOUNT: dict[str, Any] = {"buffer": 2, "estimator": "account", "cap": 2.0}


def devices() -> FakeGrid:
    """Four nodes; the partitions that they ask for are their numbers."""
    told = [{"name": f"device {each}", "partition-id": each} for each in range(4)]
    nodes = [FakeNode(each, seconds=0.01 * (1 + place), key=bytes([place])) for place, each in enumerate(told)]
    return FakeGrid({100 + place: node for place, node in enumerate(nodes)})


def balances(server: Server) -> Floats:
    return server.view.balance(np.arange(len(server.view.earned)))


def check_sums(server: Server) -> None:
    """Nobody spent more than it earned, and what was earned adds up to the versions."""
    assert server.view.earned.sum() == pytest.approx(server.view.version)
    assert balances(server).min() >= -1e-9


def first_weight(made: Bench, client: int) -> float:
    """What the first update of a client weighed."""
    for row in made.rows:
        if isinstance(row, Aggregation):
            for task, weight in zip(row.tasks, row.weights.tolist(), strict=True):
                if task.client == client:
                    return float(weight)
    raise AssertionError(f"client {client} was never heard")


@pytest.mark.parametrize("terms", [{}, {"entitled": "known", "limit": 0.6, "reward": 0.3}], ids=["usual", "others"])
def test_accounts_go_on_after_a_crash_exactly_where_they_were(
    bench: Callable[..., Bench], terms: dict[str, Any]
) -> None:
    strategy, grid = fairshare(**BY_ACCOUNT, **terms), devices()
    first = bench(grid, strategy, aggregations=60, at_least=4)
    first.until(lambda: first.server.view.version >= 30 and first.server.running)
    state, held, earned = first.link.state(), balances(first.server), first.server.view.earned
    first.link.close()
    assert held.max() > 0
    second = bench(grid, strategy, aggregations=60, at_least=4)
    second.link.restore(through_a_file(state))
    # Everyone is gone until it is seen again: that costs nothing.
    assert second.server.view.present == 0
    assert balances(second.server).tobytes() == held.tobytes()
    assert second.server.view.earned.tobytes() == earned.tobytes()
    second.to_the_end()
    assert len(second.server.view.earned) == 4 and (second.server.view.earned >= earned).all()
    check_sums(second.server)


def comes_back(made: Bench, node: FakeNode) -> tuple[float, float]:
    """Client 2 leaves, and this node comes later: what the client held when it left, and what once the node is in."""
    grid, server = made.grid, made.server
    made.until(lambda: server.view.version >= 20)
    gone = grid.nodes[102]
    gone.answer, asked = lambda message: None, len(gone.sent)
    made.until(lambda: len(gone.sent) > asked)  # the task that it is killed in
    version = server.view.version
    made.until(lambda: server.view.version >= version + 2)  # until then, an update of it may wait in the buffer
    del grid.nodes[102]
    made.until(lambda: made.ended)
    before, version = float(balances(server)[2]), server.view.version
    made.until(lambda: server.view.version >= version + 10)
    assert balances(server)[2] == before > 0  # it is away, and earns nothing
    grid.nodes[555] = node
    made.until(lambda: server.view.present == 4)
    return before, float(balances(server)[2])


@pytest.mark.parametrize("by_key", [False, True], ids=["by its name", "by its key"])
def test_a_node_that_returns_has_its_old_account(bench: Callable[..., Bench], by_key: bool) -> None:
    grid = devices()
    made = bench(grid, fairshare(**BY_ACCOUNT), aggregations=100, at_least=4, by_key=by_key)
    name = "somebody new" if by_key else "device 2"
    node = FakeNode({"name": name}, seconds=0.03, key=grid.nodes[102].key)
    before, after = comes_back(made, node)
    assert after == before
    made.to_the_end()
    assert len(made.server.view.earned) == 4 and made.roster.holder(2).node == 555
    check_sums(made.server)


def test_a_node_that_returns_under_a_new_name_is_a_new_client_with_a_grant(bench: Callable[..., Bench]) -> None:
    """Without keys nobody can know better; the account that it had stays where it is, unspent."""
    made = bench(devices(), fairshare(**BY_ACCOUNT), aggregations=100, at_least=4)
    before, after = comes_back(made, FakeNode({"name": "somebody new"}, seconds=0.01))
    assert after == before
    made.to_the_end()
    assert len(made.server.view.earned) == 5 and balances(made.server)[2] == before
    assert first_weight(made, 4) == 1 / 2  # one of two updates: what it weighs in FedAvg
    check_sums(made.server)


def claiming(partition: int, examples: int) -> FakeNode:
    """A node that says that it has so many examples."""
    return FakeNode(
        {"partition-id": partition}, lambda message: replied(message, {"weight": np.ones(2, np.float32)}, examples)
    )


def deployed(out: Path, nodes: dict[int, FakeNode], watch: Tell | None = None, **use: Any) -> Run:
    told = {**OWN, "strategies": [{"use": "fairshare", **BY_ACCOUNT, **use}]}
    start = {"weight": np.zeros(2, np.float32)}
    options = {**QUICK, "at_least": len(nodes), "max_examples": 50}
    return deploy(FakeGrid(nodes), told, out=out, arrays=start, watch=watch, **options)


def test_no_client_is_more_important_by_its_examples_than_was_declared(tmp_path: Path) -> None:
    nodes = {each: claiming(each, 20 if each < 3 else 10**12) for each in range(4)}
    run = deployed(tmp_path / "run", nodes, importance="examples")
    assert run.version == 30
    assert books(tmp_path / "run").importance == [20.0, 20.0, 20.0, 50.0]
    assert run.influence()["examples"].to_list() == [20, 20, 20, 50]


def test_groups_have_the_importance_that_the_experiment_gives_them(tmp_path: Path) -> None:
    """A node that is one more than expected, too."""
    nodes = {each: FakeNode({"partition-id": each}, adding) for each in range(4)}
    nodes[9] = FakeNode({"name": "one more", "group": "slow"}, adding)
    deployed(tmp_path / "run", nodes, importance={"fast": 0.5, "slow": 3.0})
    assert books(tmp_path / "run").importance[:5] == [0.5, 0.5, 3.0, 3.0, 3.0]


def test_a_deployment_that_crashed_continues_with_the_accounts_of_its_last_version(tmp_path: Path) -> None:
    nodes = {each: FakeNode({"partition-id": each}, adding, 0.01 * (1 + each)) for each in range(4)}

    def stop(event: Event) -> None:
        if isinstance(event, Kept) and event.version == 12:
            raise Crash

    with pytest.raises(Crash):
        deployed(tmp_path / "run", nodes, stop)
    before = books(tmp_path / "run")
    assert before.earned.sum() == pytest.approx(12)
    deployed(tmp_path / "run", nodes)
    after = books(tmp_path / "run")
    assert len(after.spent) == 4 and (after.earned >= before.earned).all()
    assert after.earned.sum() + after.accounts.kept == pytest.approx(30)
    assert after.accounts.balances.min() >= -1e-9
