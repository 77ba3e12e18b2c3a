"""Runs in separate processes that are killed and continued, and everything that such a run holds."""

import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fairlag.errors import Interrupted
from fairlag.lab.events import Event, Progress
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.plan import Plan, Planned
from fairlag.lab.simulate import execute

BY_ACCOUNT: dict[str, Any] = {
    **{"use": "fairshare", "buffer": 3, "estimator": "account", "cap": 2.0, "entitled": "known", "most": 0.4},
    **{"importance": {"fast": 0.5, "slow": 3.0}, "limit": 0.3, "reward": 0.2},
}
"""Every term of the accounts, and a limit that some clients reach."""

TABLES = ("clients", "tasks", "aggregations", "parts", "units", "presence", "evaluations", "client_scores", "refusals")

# What a user's process does. Checkpoints are made every few milliseconds, so that kills hit between and during them.
PROGRAM = """
import sys
from pathlib import Path
from fairlag.lab import loop
from fairlag.lab.events import Progress
from fairlag.lab.plan import Plan
from fairlag.lab.simulate import execute
def watch(planned, event):
    if isinstance(event, Progress):
        print("on", flush=True)
if __name__ == "__main__":
    loop.CHECKPOINT, loop._COSTLY = 0.02, 0
    address = sys.argv[4] or None
    execute(Plan.open(Path(sys.argv[1])), workers=int(sys.argv[2]), executor=sys.argv[3], address=address, watch=watch)
"""


GRADIENT_DESCENT: dict[str, Any] = {"steps": 2, "lr": 0.05, "momentum": 0.5}


def experiment(use: Mapping[str, Any], aggregations: int, local: Mapping[str, Any] = GRADIENT_DESCENT) -> Experiment:
    """An experiment on digits, with dropout in the model, on a fleet whose clients join, leave and vanish."""
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
            "model": {"use": "tests.support.models:dropout_mlp"},
            "local": dict(local),
            "evaluate": {"every": 7, "sample": 100, "clients": 0.2, "personalise": 2},
        }
    )


def contents(folder: Path) -> dict[str, Any]:
    """Every row of a run and the bytes of its model."""
    with closing(sqlite3.connect(folder / "run.sqlite")) as database:
        rows = {table: sorted(database.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in TABLES}
    return {**rows, "model": (folder / "model.safetensors").read_bytes()}


def planned(
    folder: Path, use: Mapping[str, Any], aggregations: int, local: Mapping[str, Any] = GRADIENT_DESCENT
) -> Plan:
    plan = Plan(experiment(use, aggregations, local), (3,), folder)
    plan.save()
    return plan


def begun(folder: Path, workers: int, executor: str | None = None, address: str = "") -> subprocess.Popen[str]:
    """A separate process, the first of its group, that continues the plan of a folder."""
    script = folder.parent / "program.py"
    script.write_text(PROGRAM)
    executor = executor or ("serial" if workers == 1 else "processes")
    words = [sys.executable, str(script), str(folder), str(workers), executor, address]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)


def under_way(process: subprocess.Popen[str]) -> None:
    """Waits until the run makes progress."""
    assert process.stdout is not None
    process.stdout.readline()


def killed_again_and_again(folder: Path, workers: int) -> int:
    """Kills a run at random moments, at most five times, until it ends; returns how often it was killed."""
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


class CtrlC:
    """A listener that presses Ctrl-C once, when a run is at this version or past it."""

    def __init__(self, version: int) -> None:
        self._version = version
        self.pressed = 0
        """At which version."""

    def __call__(self, *told: object) -> None:
        event = told[-1]
        if isinstance(event, Progress) and event.version >= self._version and not self.pressed:
            self.pressed = event.version
            signal.raise_signal(signal.SIGINT)


def stopped_halfway(plan: Plan) -> None:
    """Makes the runs of a plan, each stopped by Ctrl-C halfway and then resumed."""
    stopped: set[Path] = set()

    def interrupt(planned: Planned, event: Event) -> None:
        half = isinstance(event, Progress) and event.version == (plan.experiment.aggregations or 0) // 2
        if half and planned.folder not in stopped:
            stopped.add(planned.folder)
            signal.raise_signal(signal.SIGINT)

    for place in range(len(plan)):
        with pytest.raises(Interrupted):
            execute(plan, new=not place, workers=1, watch=interrupt)
    execute(plan, workers=1)
