"""Every algorithm of the zoo: ends in any time, the same bytes anywhere and through a stop, learns, is audited."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairlag
from fairlag.analyse.audit import audit
from fairlag.core.server import Server
from fairlag.core.state import State, take, unpack
from fairlag.errors import Interrupted
from fairlag.fleet import availability
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse as delay
from fairlag.lab import loop
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute
from fairlag.lab.strategies import Use
from fairlag.runtime import threads
from fairlag.zoo import ALGORITHMS
from tests.support.experiments import small, three_on_digits
from tests.support.resuming import BY_ACCOUNT, CtrlC, contents, experiment, stopped_halfway
from tests.support.worlds import lived

every = pytest.mark.parametrize("name", ALGORITHMS)

# Training: one process, several, and a stop in the middle

LENGTH = 12
UNEQUAL: dict[str, Any] = {"delay_per": "step", "steps": 3}
"""So that what FedNova and AsyncFedED do to the steps of a task, and by them to its duration, is seen."""


def training(*names: str) -> Experiment:
    """Digits, dropout and BatchNorm, on a fleet whose members come, go and vanish, some with steps of their own."""
    whole = experiment(small("fedavg"), LENGTH)
    fast, slow = whole.clients
    uses = tuple(Use(**small(name, 3)) for name in names)
    model, clients = {"use": "tests.support.models:normalised_cnn"}, (fast, slow.model_copy(update=UNEQUAL))
    return whole.checked(name="every", clients=clients, model=model, strategies=uses)


class Made(dict[int, dict[str, Path]]):
    """The folders of the runs of every strategy, by the number of workers and the name, made when first asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, workers: int) -> dict[str, Path]:
        plan = Plan(training(*ALGORITHMS), (3,), self._folder / str(workers))
        execute(plan, new=True, workers=workers)
        self[workers] = {planned.use.name: planned.folder for planned in plan}
        return self[workers]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("every"))


@every
def test_it_trains_to_the_end(made: Made, name: str) -> None:
    run = Run(made[1][name])
    assert (run.status, run.version) == ("finished", LENGTH)
    assert run.meta["reason"] == f"{LENGTH} aggregations were made"


@every
@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_workers_give_the_bytes_and_rows_of_one_process(made: Made, name: str, workers: int) -> None:
    assert contents(made[workers][name]) == contents(made[1][name])


def test_small_models_give_the_same_bytes_together_apart_and_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is trained together depends on the workers, and on when a run was stopped: what comes out does not."""
    names = ("fedstaleweight", "fedavg", "fednova", "asyncfeded", "pisces", "asofed")
    chosen = training(*names).checked(model={"use": "mlp"})
    plans = {how: Plan(chosen, (3,), tmp_path / how) for how in ("together", "apart", "stopped")}
    monkeypatch.setattr(loop, "_LOOK", 0.0)
    execute(plans["together"], new=True, workers=1)
    execute(plans["apart"], new=True, workers=2)
    stopped_halfway(plans["stopped"])
    for together, *others in zip(*plans.values(), strict=True):
        for other in others:
            assert contents(other.folder) == contents(together.folder), other.use.name


@pytest.mark.parametrize("importance", ["examples", {"fast": 0.5, "slow": 3.0}], ids=["by examples", "by group"])
def test_accounts_on_any_terms_give_the_bytes_and_rows_of_one_process(tmp_path: Path, importance: Any) -> None:
    terms = Use(**{**BY_ACCOUNT, "importance": importance})
    one, two = (Plan(training("fedavg").checked(strategies=(terms,)), (3,), tmp_path / name) for name in "ab")
    execute(one, new=True, workers=1)
    execute(two, new=True, workers=2)
    (alone,), (together,) = one, two
    assert contents(together.folder) == contents(alone.folder)


@every
def test_stopped_in_the_middle_it_goes_on_to_the_same_bytes(
    made: Made, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is built anew from the run's folder; what clients remember is a part of its checkpoint."""
    monkeypatch.setattr(loop, "_LOOK", 0.0)  # looks up after every event
    restored: list[State] = []
    plan = Plan(training(name), (3,), tmp_path)

    def unpacked(*saved: Any) -> State:
        restored.append(unpack(*saved))
        return restored[-1]

    with pytest.raises(Interrupted):
        execute(plan, new=True, workers=1, watch=CtrlC(LENGTH // 2))
    (planned,) = plan
    stopped = Run(planned.folder)
    assert stopped.status == "interrupted" and LENGTH // 2 <= stopped.version < LENGTH
    monkeypatch.setattr(loop, "unpack", unpacked)
    execute(Plan.open(tmp_path), workers=1)
    assert contents(planned.folder) == contents(made[1][name])
    (state,) = restored
    remembered = take(take(take(state, "simulation", dict), "executor", dict), "kept", np.ndarray)
    assert (remembered.size > 0) == (ALGORITHMS[name].make().local.vectors > 0)
    assert remembered.any() == (remembered.size > 0)


# Without training: real time, and what is always true


@every
def test_it_runs_on_threads(name: str) -> None:
    groups = [Group("fast", 4, delay("uniform(1, 2)")), Group("slow", 2, delay("uniform(3, 4)"), vanish=0.1)]
    fleet = Fleet([replace(each, per="step") for each in groups], seed=0)
    options = {key: value for key, value in small(name, 3).items() if key != "use"}
    server = Server(ALGORITHMS[name].make(**options), clients=fleet.clients, aggregations=LENGTH)
    assert threads.run(server, fleet, speed=400).reason == f"{LENGTH} aggregations were made"
    assert server.view.version == LENGTH and server.counts["aggregated"] >= LENGTH


RESTLESS = [
    Group("restless", 3, delay("uniform(1, 3)"), availability.parse("alternating(exponential(9), exponential(4))")),
    Group("shy", 3, delay("exponential(2)"), vanish=0.3, away=delay("exponential(5)"), steps=2, per="step"),
    Group("guests", 2, delay("uniform(4, 6)"), join=5.0, leave=60.0),
]


@every
@pytest.mark.parametrize("faults", [0.0, 0.2])
def test_what_is_always_true_while_clients_vanish_leave_and_come_back(name: str, faults: float) -> None:
    options = {key: value for key, value in small(name, 3).items() if key != "use"}
    strategy = ALGORITHMS[name].make(**options)
    server = lived(RESTLESS, strategy, seed=1, faults=faults, length=60)
    assert server.newest > 20
    assert server.ends["lost"] > 0
    assert (server.ends["refused"] > 0) == (faults > 0 or strategy.admit is not None)


# What comes of it

LEARNING = three_on_digits("learning", slow="uniform(4, 5)", model="logistic", lr=0.1)
LONGER = {"fedadagrad": 500.0}
"""Its steps begin at 0.01 and shrink with the root of the rounds: in the others' time it gets to 0.855 only."""


@every
def test_it_learns_the_digits(name: str, tmp_path: Path) -> None:
    """The same fleet, time and local training for all, and of their parameters only the sizes are not the default."""
    limit = {"until_time": LONGER.get(name, 250.0)}
    run = fairlag.simulate({**LEARNING, "strategies": [small(name)], **limit}, out=tmp_path, workers=1)
    last = run.evaluations.query("scope == 'all'").iloc[-1]
    assert last["version"] == run.version > 20
    assert last["accuracy"] >= 0.85


@every
def test_its_audit_accounts_for_all_influence(name: str) -> None:
    clients = [
        {"group": "fast", "count": 4, "delay": "uniform(1, 2)"},
        {"group": "slow", "count": 2, "delay": "uniform(8, 12)", "delay_per": "step"},
    ]
    tables = {"name": "audit", "aggregations": 60, "clients": clients, "strategies": [small(name, 3)]}
    (found,) = audit(parse(tables), seeds=2, incentive_updates=2000)
    assert (found.use, found.aggregations) == (name, 60)
    assert found.influence.shape == (6,) and (found.influence >= 0).all()
    assert found.influence.sum() == pytest.approx(1) and found.shares.sum() == pytest.approx(1)
    assert sum(group.influence for group in found.groups) == pytest.approx(1)
    assert 1 / 6 <= found.jain <= 1
