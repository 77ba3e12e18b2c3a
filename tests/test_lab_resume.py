"""Runs that are killed at any instant and resumed end with the same bytes and rows as one that was never touched."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest

from fairlag.errors import Interrupted
from fairlag.lab import conduct
from fairlag.lab.events import Event, Progress
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.folder import is_begun
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute
from tests.patience import PATIENCE
from tests.test_lab_plan import idle
from tests.test_lab_store import alone

BY_ACCOUNT: dict[str, Any] = {
    **{"use": "fairshare", "buffer": 3, "estimator": "account", "cap": 2.0, "entitled": "known", "most": 0.4},
    **{"importance": {"fast": 0.5, "slow": 3.0}, "limit": 0.3, "reward": 0.2},
}
"""Every term of the accounts, and a limit that some clients reach."""

TABLES = ("clients", "tasks", "aggregations", "parts", "units", "presence", "evaluations", "refusals")

# What a user's process does, with checkpoints every few milliseconds so that kills fall between and into them.
PROGRAM = """
import sys
from pathlib import Path
from fairlag.lab import conduct
from fairlag.lab.events import Progress
from fairlag.lab.plan import Plan
from fairlag.lab.simulate import execute
def watch(planned, event):
    if isinstance(event, Progress):
        print("on", flush=True)
if __name__ == "__main__":
    conduct.CHECKPOINT, conduct._COSTLY = 0.02, 0
    address = sys.argv[4] or None
    execute(Plan.open(Path(sys.argv[1])), workers=int(sys.argv[2]), executor=sys.argv[3], address=address, watch=watch)
"""


def experiment(use: Mapping[str, Any], aggregations: int) -> Experiment:
    """Digits on a fleet whose members come, go and vanish; dropout in the model."""
    return parse(
        {
            "name": "resumed",
            "aggregations": aggregations,
            "clients": [
                {"group": "fast", "count": 6, "delay": "uniform(1, 2)", "vanish": 0.05},
                {
                    "group": "slow",
                    "count": 3,
                    "delay": "uniform(4, 6)",
                    "availability": "alternating(exponential(30), exponential(5))",
                    "vanish": 0.02,
                },
            ],
            "strategies": [dict(use)],
            "data": {"use": "digits", "partition": "dirichlet(0.5)"},
            "model": {"use": "tests.models:dropout_mlp"},
            "local": {"steps": 2, "lr": 0.05, "momentum": 0.5},
            "evaluate": {"every": 7, "sample": 100},
        }
    )


def contents(folder: Path) -> dict[str, Any]:
    """Every row of a run and the bytes of its model."""
    with closing(sqlite3.connect(folder / "run.sqlite")) as database:
        rows = {table: sorted(database.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in TABLES}
    return {**rows, "model": (folder / "model.safetensors").read_bytes()}


def planned(folder: Path, use: Mapping[str, Any], aggregations: int) -> Plan:
    plan = Plan(experiment(use, aggregations), (3,), folder)
    plan.save()
    return plan


def begun(folder: Path, workers: int, executor: str | None = None, address: str = "") -> subprocess.Popen[str]:
    """A process of its own, and the first of a group, that goes on with the plan of a folder."""
    script = folder.parent / "program.py"
    script.write_text(PROGRAM)
    executor = executor or ("serial" if workers == 1 else "processes")
    words = [sys.executable, str(script), str(folder), str(workers), executor, address]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)


def under_way(process: subprocess.Popen[str]) -> None:
    """Waits until the run moves."""
    assert process.stdout is not None
    process.stdout.readline()


def killed_again_and_again(folder: Path, workers: int) -> int:
    """How often a run was killed at random moments, until it ended all the same; five times at the most."""
    chance, kills = random.Random(0), 0
    while kills < 5:
        process = begun(folder, workers)
        under_way(process)
        time.sleep(chance.uniform(0, 0.4))
        process.kill()
        process.communicate()
        if process.returncode == 0:
            break
        kills += 1
    return kills


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
    seen: list[int] = []

    def interrupt_once(_: object, event: Event) -> None:
        if isinstance(event, Progress) and event.version > 20 and not seen:
            seen.append(event.version)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match=rf"interrupted at version \d+ of {label}, seed 3"):
        execute(stopped, workers=1, watch=interrupt_once)
    (one,), (other,) = whole, stopped
    run = Run(other.folder)
    assert run.status == "interrupted"
    assert run.version >= seen[0]
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
            assert not list(other.folder.glob("*.partial*")), step
    assert step > 20


def lived(plan: Plan, last: int = sys.maxsize) -> int:
    """Makes or resumes the runs in a process that is gone right before a step; returns its exit code."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        with patch.multiple(conduct, CHECKPOINT=0.0, _COSTLY=0):
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
