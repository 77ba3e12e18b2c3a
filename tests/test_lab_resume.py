"""Runs that are killed at any instant and resumed end with the same bytes and rows as one that was never touched."""

import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest

from fairlag.errors import Interrupted
from fairlag.lab import loop
from fairlag.lab.folder import is_begun
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute
from tests.support.experiments import idle
from tests.support.patience import PATIENCE
from tests.support.resuming import (
    BY_ACCOUNT,
    CtrlC,
    begun,
    contents,
    experiment,
    killed_again_and_again,
    planned,
    under_way,
)
from tests.support.stores import alone


@pytest.mark.slow
@pytest.mark.parametrize(
    ("use", "workers"),
    [
        ({"use": "fedstaleweight", "buffer": 3}, 1),
        ({"use": "fedavg", "cohort": 4, "over": 0.5, "deadline": 8.0}, 1),
        (BY_ACCOUNT, 1),
        ({"use": "fedbuff", "buffer": 3, "concurrency": 5}, 2),
    ],
    ids=["fedstaleweight", "fedavg", "account", "fedbuff-workers"],
)
def test_a_run_killed_again_and_again_ends_with_the_same_bytes(
    tmp_path: Path, use: Mapping[str, Any], workers: int
) -> None:
    whole = planned(tmp_path / "whole", use, 400)
    execute(whole, workers=1)
    killed = planned(tmp_path / "killed", use, 400)
    assert killed_again_and_again(killed.folder, workers) >= 3
    execute(killed, workers=workers)
    (one,), (other,) = whole, killed
    assert contents(one.folder) == contents(other.folder)


@pytest.mark.parametrize(
    ("use", "label"),
    [
        ({"use": "fairshare", "buffer": 3}, r"FairShare \(buffer=3\)"),
        (BY_ACCOUNT, r"FairShare \(buffer=3, .*\)"),
        ({"use": "safa", "share": 0.3, "lag": 1}, r"SAFA \(share=0.3, lag=1\)"),
        ({"use": "pisces", "concurrency": 3, "unseen": 5.0}, r"Pisces \(concurrency=3, unseen=5.0\)"),
    ],
    ids=["fairshare", "account", "safa", "pisces"],
)
def test_ctrl_c_makes_a_checkpoint_from_which_the_run_goes_on(
    tmp_path: Path, use: Mapping[str, Any], label: str
) -> None:
    whole, stopped = planned(tmp_path / "whole", use, 60), planned(tmp_path / "stopped", use, 60)
    execute(whole, workers=1)
    ctrl_c = CtrlC(21)
    with pytest.raises(Interrupted, match=rf"interrupted at version \d+ of {label}, seed 3"):
        execute(stopped, workers=1, watch=ctrl_c)
    (one,), (other,) = whole, stopped
    run = Run(other.folder)
    assert run.status == "interrupted"
    assert run.version >= ctrl_c.pressed > 20
    execute(stopped, workers=1)
    assert contents(one.folder) == contents(other.folder)
    assert run.status == "finished" and run.influence().equals(Run(one.folder).influence())


def test_versions_that_wait_to_be_evaluated_survive(tmp_path: Path) -> None:
    use = {"use": "buffered_fedavg", "buffer": 3}
    plan = planned(tmp_path / "run", use, 40)
    process = begun(plan.folder, 2)
    under_way(process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    execute(plan, workers=1)
    whole = planned(tmp_path / "whole", use, 40)
    execute(whole, workers=1)
    (one,), (other,) = whole, plan
    assert contents(one.folder) == contents(other.folder)


# Killed at each step that reaches the disk. Lives are forked in a process of their own, which starts only once.


@pytest.mark.slow
def test_killed_at_each_step_a_plan_can_be_gone_on_with(tmp_path: Path) -> None:
    alone(kill_plans_at_each_step, tmp_path)


def test_killed_at_each_step_a_single_run_can_be_gone_on_with(tmp_path: Path) -> None:
    alone(kill_single_runs_at_each_step, tmp_path)


@pytest.mark.slow
def test_killed_at_each_step_training_ends_with_the_same_bytes(tmp_path: Path) -> None:
    alone(kill_training_at_each_step, tmp_path)


def test_what_clients_keep_of_their_optimiser_survives_a_kill(tmp_path: Path) -> None:
    alone(kill_with_kept_states, tmp_path)


def kill_with_kept_states(folder: Path) -> None:
    local = {"steps": 2, "lr": 0.01, "optimiser": "adamw(weight_decay=0.1)", "optimiser_state": "kept"}
    whole, killed, fresh = (
        Plan(experiment({"use": "fedbuff", "buffer": 3}, 60, tables), (3,), folder / name)
        for name, tables in {"whole": local, "killed": local, "fresh": {**local, "optimiser_state": None}}.items()
    )
    assert lived(whole) == lived(fresh) == 0
    kills = next(kill for kill in count() if lived(killed, 30 + kill) == 0)
    assert kills >= 2
    one, other, third = (contents(each.folder) for (each,) in (whole, killed, fresh))
    assert one == other and one["model"] != third["model"]


def kill_plans_at_each_step(folder: Path) -> None:
    two = [{"use": "fedbuff", "buffer": 3}, {"use": "fairshare", "buffer": 3}]
    kill_at_each_step(partial(Plan, idle(*two, aggregations=4), (3,)), folder)


def kill_single_runs_at_each_step(folder: Path) -> None:
    kill_at_each_step(partial(Plan, idle(aggregations=4), (3,), single=True), folder)


def kill_training_at_each_step(folder: Path) -> None:
    for module in ("fairlag.learn.learner", "fairlag.learn.flat", "sklearn.datasets"):
        import_module(module)  # once, not in every life
    tables = experiment({"use": "fedbuff", "buffer": 3}, 4)
    kill_at_each_step(partial(Plan, tables, (3,)), folder)


def kill_at_each_step(plan: Callable[[Path], Plan], folder: Path) -> None:
    whole = plan(folder / "whole")
    assert lived(whole) == 0
    for step in count(1):
        killed = plan(folder / str(step))
        if lived(killed, step) == 0:
            break
        assert lived(killed) == 0, step
        for one, other in zip(whole, killed, strict=True):
            assert contents(one.folder) == contents(other.folder), step
            assert not [*other.folder.glob("*.partial*"), *other.folder.glob("checkpoint-*")], step
    assert step > 20


def lived(plan: Plan, last: int = sys.maxsize) -> int:
    """Makes or resumes the runs in a process that is gone right before a step; returns its exit code."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        with patch.multiple(loop, CHECKPOINT=0.0, _COSTLY=0):
            until(last, lambda: execute(opened(plan), new=not is_begun(plan.folder), workers=1))
        code = 0
    finally:
        os._exit(code)


def opened(plan: Plan) -> Plan:
    return Plan.open(plan.folder) if is_begun(plan.folder) else plan


def until(last: int, live: Callable[[], object]) -> None:
    """Ends without any clean-up right before the last step: whatever flushes, names, removes or commits."""
    steps = count(1)

    def counted(act: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **keywords: Any) -> Any:
            if next(steps) == last:
                os._exit(9)
            return act(*arguments, **keywords)

        return step

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            act = super().execute
            return cast(sqlite3.Cursor, (counted(act) if sql == "COMMIT" else act)(sql, *arguments))

    with (
        patch.object(sqlite3, "connect", partial(sqlite3.connect, factory=Watched)),
        patch.object(os, "fsync", counted(lambda number: None)),  # whoever is killed, the system still has it
        patch.object(os, "replace", counted(os.replace)),
        patch.object(os, "unlink", counted(os.unlink)),
    ):
        live()
