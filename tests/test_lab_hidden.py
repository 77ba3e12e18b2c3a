"""Simulations with secure aggregation: the same bytes with and without masks, and no single update at the server."""

import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag.core.server import Server
from fairlag.core.state import pack
from fairlag.core.types import Dispatch, Update
from fairlag.core.vector import Vector
from fairlag.errors import InputError, StrategyError
from fairlag.execute import Learning
from fairlag.lab.executors import ExecutorChoice
from fairlag.lab.experiment import Experiment, load
from fairlag.lab.hidden import check_extra, hidden
from fairlag.lab.plan import Plan
from fairlag.lab.resources import Resources
from fairlag.lab.simulate import execute, simulate
from fairlag.privacy.fixed import quantise
from fairlag.runtime.virtual import Simulation
from tests.support.resuming import BY_ACCOUNT, contents, experiment, killed_again_and_again, stopped_halfway

USES: dict[str, Mapping[str, Any]] = {
    "buffered_fedavg": {"use": "buffered_fedavg", "buffer": 3},
    "fedbuff": {"use": "fedbuff", "buffer": 3, "concurrency": 5},
    "fedstaleweight": {"use": "fedstaleweight", "buffer": 3},
    "fairshare": BY_ACCOUNT,
    "fedadam": {"use": "fedadam", "cohort": 3, "lr": 0.01},
}


def secure(use: Mapping[str, Any], aggregations: int = 20, *, masks: bool = True) -> Experiment:
    return experiment(use, aggregations).checked(privacy={"secure": True, "bound": 0.6, "masks": masks})


def made(folder: Path, chosen: Experiment, workers: int = 1, executor: str = "serial") -> dict[str, Any]:
    plan = Plan(chosen, (3,), folder)
    (run,) = execute(plan, new=True, workers=workers, executor=executor)
    return contents(run.folder)


@pytest.mark.parametrize("name", USES)
def test_masked_and_plain_runs_have_the_same_bytes(tmp_path: Path, name: str) -> None:
    masked = made(tmp_path / "masked", secure(USES[name]))
    assert masked == made(tmp_path / "plain", secure(USES[name], masks=False))
    # The same clients meet with the same weights as without secure aggregation; only the last bits of models differ.
    clear = made(tmp_path / "clear", experiment(USES[name], 20).checked(privacy={"bound": 0.6}))
    assert masked["tasks"] == clear["tasks"] and masked["model"] != clear["model"]
    assert all(refused == "" for *_, refused in masked["aggregations"])


def test_workers_and_a_resume_change_nothing(tmp_path: Path) -> None:
    alone = made(tmp_path / "alone", secure(USES["fedbuff"]))
    assert alone == made(tmp_path / "workers", secure(USES["fedbuff"]), workers=2, executor="processes")
    plan = Plan(secure(USES["fedbuff"]), (3,), tmp_path / "stopped")
    stopped_halfway(plan)
    (stopped,) = plan
    assert contents(stopped.folder) == alone


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_with_the_same_bytes(tmp_path: Path) -> None:
    whole = made(tmp_path / "whole", secure(USES["fairshare"], 200))
    plan = Plan(secure(USES["fairshare"], 200), (3,), tmp_path / "killed")
    plan.save()
    assert killed_again_and_again(plan.folder, workers=2) >= 2
    execute(plan, workers=2)
    (killed,) = plan
    assert contents(killed.folder) == whole


def test_on_the_wall_clock_clients_mask_too(tmp_path: Path) -> None:
    chosen = load("demo").checked(
        aggregations=5, clock="wall", speed=200, privacy={"secure": True, "bound": 0.6}, evaluate={"every": 5}
    )
    run = simulate(chosen, strategy="buffered_fedavg", out=tmp_path / "run", workers=1)
    assert run.version == 5 and not run.aggregations["refused"].any()
    assert np.isclose(run.tasks["weight"].sum(), 5) and run.refusals.empty


class Listening:
    """An executor that keeps the updates in the clear, as no server could."""

    def __init__(self, inner: Learning) -> None:
        self.inner, self.updates = inner, list[Vector]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def result(self, task: Dispatch) -> Update:
        update = self.inner.result(task)
        self.updates.append(update.delta.copy())
        return update


def halfway(masks: bool) -> tuple[Server, list[Vector]]:
    """A server in the middle of a buffer, and the updates that its clients computed so far."""
    chosen = secure(USES["buffered_fedavg"], masks=masks)
    with closing(Resources(chosen, ExecutorChoice("serial", 1, None))) as resources:
        setting, strategy = resources.setting(3), chosen.strategy(chosen.strategies[0])
        executor = resources.executor(setting, strategy)
        assert executor is not None
        listening: Any = Listening(executor)
        masked, sums = hidden(chosen, setting, listening)
        server = Server(
            strategy, clients=9, parameters=setting.parameters, layout=setting.layout, aggregations=9, secure=sums
        )
        simulation = Simulation(server, chosen.fleet(3), masked)
        while server.view.version < 2 or server.view.buffered < 2:
            simulation.proceed(1)
    return server, listening.updates


def holds(server: Server, update: Vector) -> bool:
    """Do the server's rows, or anything else that a checkpoint would hold, contain the update in the clear?"""
    arrays, _ = pack(server.state())
    everything = b"".join(array.tobytes() for array in arrays.values())
    everything += server._merger._rows.tobytes()  # also what earlier buffers left there
    # Eight numbers in a row that are not 0, because an update may begin with zeros.
    places = np.flatnonzero(update)[:1]
    short = update[places[0] : places[0] + 8]
    return short.tobytes() in everything or quantise(short).tobytes() in everything


def test_the_server_never_holds_a_single_update_in_the_clear() -> None:
    server, updates = halfway(masks=True)
    assert len(updates) >= 8 and not any(holds(server, update) for update in updates)
    # The search would find them: without masks, the rows of the buffer are quantised updates.
    server, updates = halfway(masks=False)
    assert holds(server, updates[-1])


def test_an_update_that_is_not_finite_is_not_masked(tmp_path: Path) -> None:
    chosen = secure(USES["buffered_fedavg"])

    class Diverged(Listening):
        def result(self, task: Dispatch) -> Update:
            update = self.inner.result(task)
            return update._replace(delta=update.delta * np.float32("nan")) if task.client == 0 else update

    with closing(Resources(chosen, ExecutorChoice("serial", 1, None))) as resources:
        setting, strategy = resources.setting(3), chosen.strategy(chosen.strategies[0])
        diverged: Any = Diverged(resources.executor(setting, strategy))  # type: ignore[arg-type]
        masked, sums = hidden(chosen, setting, diverged)
        server = Server(
            strategy, clients=9, parameters=setting.parameters, layout=setting.layout, aggregations=5, secure=sums
        )
        Simulation(server, chosen.fleet(3), masked).to_the_end()
    assert server.refusals == {"not finite": server.refusals["not finite"]} and server.refusals["not finite"] > 0


def test_updates_are_clipped_before_they_are_masked(tmp_path: Path) -> None:
    """Without noise, the server with masks makes what the server without masks makes of clipped updates."""
    models = []
    for privacy in ({"bound": 0.6, "clip": 0.05}, {"bound": 0.6, "clip": 0.05, "secure": True}):
        chosen = experiment(USES["fedstaleweight"], 20).checked(privacy=privacy)
        models.append(np.concatenate([each.ravel() for each in simulate(chosen, workers=1).tensors().values()]))
    clear, masked = models
    assert 0 < np.abs(clear - masked).max() < 1e-5
    free = simulate(secure(USES["fedstaleweight"]), workers=1).tensors().values()
    assert np.abs(np.concatenate([each.ravel() for each in free]) - masked).max() > 0.01


def test_noise_is_the_same_with_and_without_masks(tmp_path: Path) -> None:
    privacy = {"secure": True, "bound": 0.6, "clip": 0.5, "noise": 0.5, "delta": 1e-3}
    chosen = experiment(USES["fedstaleweight"], 20)
    masked = made(tmp_path / "masked", chosen.checked(privacy=privacy))
    assert masked == made(tmp_path / "plain", chosen.checked(privacy={**privacy, "masks": False}))


def test_models_with_statistics_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    chosen = secure(USES["fedbuff"]).checked(model={"use": "tests.support.models:normalised_mlp"})
    with pytest.raises(StrategyError, match="the model has statistics"):
        simulate(chosen, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_without_the_extra_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fairlag.privacy.secure")
    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    with pytest.raises(InputError, match=r"secure aggregation needs .* pip install .*'fairlag\[privacy\]'"):
        check_extra(secure(USES["fedbuff"]))
    check_extra(experiment(USES["fedbuff"], 5))


def test_secure_aggregation_costs_no_accuracy(tmp_path: Path) -> None:
    chosen = load("demo").checked(aggregations=300, evaluate={"every": 300})
    scores = []
    for privacy in ({"bound": 0.6}, {"secure": True, "bound": 0.6, "masks": False}):
        scores.append(simulate(chosen.checked(privacy=privacy), strategy="fedstaleweight", workers=1).accuracy())
    clear, masked = scores
    assert abs(clear - masked) < 0.01 and masked > 0.85
