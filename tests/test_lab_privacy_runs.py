"""Runs with differential privacy: the same bytes, ε as a closed form has it, and budgets that no runtime exceeds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fairlag.analyse.compare import compare
from fairlag.errors import InputError, StrategyError
from fairlag.lab import loop
from fairlag.lab.deploy import deploy
from fairlag.lab.experiment import Experiment, load
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute, simulate
from tests.support.flower_deploy import FLEET, QUICK, Trained
from tests.support.flower_grid import FakeGrid, FakeNode
from tests.support.resuming import contents, stopped_halfway

NOISE: Mapping[str, Any] = {"bound": 0.5, "clip": 0.25, "noise": 1.0, "delta": 1e-3}
STRATEGIES = ["buffered_fedavg", "fedstaleweight", "fairshare(most=0.4)"]


def small(*strategies: str, privacy: Mapping[str, Any] | None = NOISE, **changes: Any) -> Experiment:
    only = load("demo").only([*strategies])
    return only.checked(aggregations=40, privacy=None if privacy is None else dict(privacy), **changes)


def closed_form(loss: float, delta: float) -> float:
    """ε of one Gaussian mechanism (Balle and Wang 2018, theorem 8), solved for here."""
    mu = np.sqrt(2 * loss)

    def excess(epsilon: float) -> float:
        low = np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        return float(norm.cdf(mu / 2 - epsilon / mu) - low - delta)

    return float(brentq(excess, 0.0, 200.0))


@pytest.mark.parametrize("strategy", ["buffered_fedavg", "fairshare"])
def test_bounds_that_nothing_reaches_change_no_byte(strategy: str, tmp_path: Path) -> None:
    plain, bounded = small(strategy, privacy=None), small(strategy, privacy={"bound": 1.0, "clip": 1e6})
    for name, experiment in (("plain", plain), ("bounded", bounded)):
        simulate(experiment, out=tmp_path / name, workers=1)
    assert contents(tmp_path / "plain") == contents(tmp_path / "bounded")


def test_workers_and_a_stop_give_the_bytes_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = small(*STRATEGIES, privacy={**NOISE, "budget": 6.0})
    plans = {how: Plan(chosen, (0,), tmp_path / how) for how in ("alone", "workers", "stopped")}
    monkeypatch.setattr(loop, "_LOOK", 0.0)
    execute(plans["alone"], new=True, workers=1)
    execute(plans["workers"], new=True, workers=2, executor="processes")
    stopped_halfway(plans["stopped"])
    for alone, *others in zip(*plans.values(), strict=True):
        assert "the privacy budgets of" in Run(alone.folder).meta["reason"]
        for other in others:
            assert contents(other.folder) == contents(alone.folder), other.use.label


def test_a_run_ends_well_if_some_budgets_are_spent_and_the_other_clients_left(tmp_path: Path) -> None:
    demo = load("demo").clients
    fleet = [demo[0].model_copy(update={"count": 4}), demo[1].model_copy(update={"leave": 1.0})]
    chosen = small("buffered_fedavg(buffer=2)", privacy={**NOISE, "budget": 6.0}, clients=fleet)
    run = simulate(chosen.checked(aggregations=500), out=tmp_path / "run", workers=1)
    assert run.status == "finished" and run.meta["reason"].startswith("the privacy budgets of 4 clients are spent")
    (compared,) = compare([run])
    assert f"seed 0 ended at {len(run.aggregations)} of 500 aggregations: {run.meta['reason']}" in compared.remarks


def test_noise_depends_on_the_seed_and_changes_the_model_alone(tmp_path: Path) -> None:
    for name, change in (("a", {}), ("b", {"noise": 2.0}), ("c", {"clip": 0.125, "noise": 2.0})):
        simulate(small("fedstaleweight", privacy={**NOISE, **change}), out=tmp_path / name, workers=1)
    one, louder, shorter = (contents(tmp_path / name) for name in "abc")
    assert one["model"] != louder["model"] != shorter["model"]
    for table in ("tasks", "aggregations", "presence"):
        assert one[table] == louder[table] == shorter[table]


def test_the_record_says_where_the_noise_came_from() -> None:
    run = simulate(small("fairshare(most=0.4)"), workers=1)
    assert run.meta["noise_source"] == "seeded" and run.meta["largest_weight"] == 0.4
    assert {"noise_source", "largest_weight"}.isdisjoint(simulate(small("fairshare", privacy=None), workers=1).meta)


def test_epsilon_of_equal_weights_has_a_closed_form() -> None:
    run = simulate(small("buffered_fedavg", privacy={**NOISE, "bound": 0.2}), workers=1)
    frame = run.privacy()
    merges = (
        frame.groupby("client").cumcount() + 1
    )  # in each version a client has one update, of the weight 1/b = α_max
    assert frame["weight"].tolist() == pytest.approx([0.2] * len(frame))
    for count, found in zip(merges.tolist(), frame["epsilon"].tolist(), strict=True):
        assert found == pytest.approx(closed_form(count / 2, 1e-3), rel=1e-6)


def test_epsilon_grows_with_versions_and_weights_and_falls_with_noise() -> None:
    frames = {
        z: simulate(small("fedstaleweight", privacy={**NOISE, "noise": z}), workers=1).privacy() for z in (1.0, 2.0)
    }
    assert (frames[1.0]["epsilon"] > frames[2.0]["epsilon"]).all()
    for _, mine in frames[1.0].groupby("client"):
        assert (np.diff(mine["epsilon"]) > 0).all() and (np.diff(mine["version"]) > 0).all()
    squares = frames[1.0].assign(square=frames[1.0]["weight"] ** 2).groupby("client")["square"].sum()
    assert (frames[1.0].groupby("client")["epsilon"].max().rank() == squares.rank()).all()


def test_a_run_without_noise_has_no_epsilon() -> None:
    with pytest.raises(InputError, match="added no noise, so its clients have no ε"):
        simulate(small("fedbuff", privacy=None), workers=1).privacy()


@pytest.mark.parametrize("strategy", [*STRATEGIES, "fedbuff"])
def test_a_run_ends_when_budgets_are_spent_and_says_so(strategy: str) -> None:
    run = simulate(small(strategy, privacy={**NOISE, "budget": 8.0}).checked(aggregations=2000), workers=1)
    assert run.status == "finished" and run.version < 2000
    assert run.meta["reason"].startswith("the privacy budgets of")
    paid = run.privacy().groupby("client")["epsilon"].max()
    assert paid.max() <= 8.0 * (1 + 1e-6)
    assert paid.max() > 4.0  # and they are used


def test_a_budget_that_allows_no_update_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    experiment = small("fedbuff", privacy={**NOISE, "budget": 0.1})
    with pytest.raises(InputError, match="give more noise, or a larger budget"):
        simulate(experiment, out=tmp_path / "run", workers=1)
    with pytest.raises(InputError, match="give more noise, or a larger budget"):
        deploy(four(), {**FLEET, "privacy": {**NOISE, "budget": 0.1}}, out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


def test_budgets_hold_on_the_wall_clock() -> None:
    experiment = small("fedstaleweight", privacy={**NOISE, "budget": 8.0}).checked(
        aggregations=500, clock="wall", speed=500.0
    )
    run = simulate(experiment, workers=1)
    assert run.meta["reason"].startswith("the privacy budgets of")
    assert run.privacy()["epsilon"].max() <= 8.0 * (1 + 1e-6)


def test_a_model_with_statistics_is_refused(tmp_path: Path) -> None:
    experiment = small("fedbuff", model={"use": "tests.support.models:normalised_mlp"})
    with pytest.raises(StrategyError, match="GroupNorm instead of BatchNorm"):
        simulate(experiment, out=tmp_path / "run", workers=1)


def four() -> FakeGrid:
    return FakeGrid({100 + each: FakeNode({"partition-id": each}, Trained(each), 0.01) for each in range(4)})


@pytest.mark.usefixtures("quick_grid")
def test_a_deployment_clips_adds_strong_noise_and_keeps_budgets(tmp_path: Path) -> None:
    tables = {**FLEET, "privacy": {**NOISE, "budget": 12.0}}
    run = deploy(four(), tables, out=tmp_path / "run", **QUICK)
    assert run.meta["noise_source"] == "system" and run.meta["largest_weight"] == 0.5
    assert run.meta["reason"].startswith("the privacy budgets of")
    assert run.privacy()["epsilon"].max() <= 12.0 * (1 + 1e-6)


@pytest.mark.usefixtures("quick_grid")
def test_a_node_is_one_client_under_differential_privacy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a node counts as 2 clients, but \[privacy\] hides one"):
        deploy(four(), {**FLEET, "privacy": dict(NOISE)}, out=tmp_path / "run", **QUICK, queued=2)


def test_the_fast_pay_for_fedavg_and_the_slow_for_fairness(tmp_path: Path) -> None:
    paid = {}
    for use in load("private").strategies:
        run = simulate("private", strategy=use.label, out=tmp_path / use.use, workers=1)
        group = run.clients.set_index("client")["group"]
        paid[use.use] = run.privacy().groupby("client")["epsilon"].max().groupby(group).mean()
        assert run.accuracy() > 0.5
    assert paid["buffered_fedavg"]["fast"] > 2 * paid["buffered_fedavg"]["slow"]
    assert paid["fairshare"]["slow"] > 2 * paid["fairshare"]["fast"]
    assert paid["fedstaleweight"]["slow"] > 2 * paid["fedstaleweight"]["fast"]


@pytest.mark.usefixtures("quick_grid")
def test_a_node_without_a_lasting_name_gets_no_tasks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After a restart it would be another client, with a budget of its own."""
    grid = four()
    nameless = grid.nodes[999] = FakeNode({}, grid.nodes[100].answer)
    run = deploy(grid, {**FLEET, "privacy": NOISE}, out=tmp_path / "run", **QUICK)
    assert run.status == "finished" and 999 in grid.greeted and not nameless.sent
    assert "Node 999 gets no tasks: with noise in [privacy] it needs a name or partition-id" in caplog.text
