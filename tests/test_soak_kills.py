"""Runs whose clients remember something, killed at random moments: after `fairlag resume`, the same bytes.

Killed is the process of the run, one of its worker processes, or all of them at once; or a process without workers.
`make soak-kills` kills 200 times and prints what was killed when; CI kills a few times.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute
from tests.support.command import Call
from tests.support.patience import wait_until
from tests.support.resuming import GRADIENT_DESCENT, contents, planned

KILLS = int(os.environ.get("KILLS", "4"))
SEED = int(os.environ.get("SEED", "0"))
_VERSIONS = 200
_LONGEST = 0.5
"""Seconds that a run may make progress before the next kill."""

_HOW = (("serial", 1), ("serial", 1), ("processes", 1), ("processes", 2))
"""Executors and numbers of workers. Half of the processes have no workers: they start at once."""

KEPT = {"steps": 2, "lr": 0.01, "optimiser": "adamw(weight_decay=0.1)", "optimiser_state": "kept"}
SCENES: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "scaffold": ({"use": "scaffold", "cohort": 4, "deadline": 8.0}, GRADIENT_DESCENT),
    "asofed": ({"use": "asofed"}, GRADIENT_DESCENT),
    "mifa": ({"use": "mifa", "cohort": 4, "deadline": 8.0}, GRADIENT_DESCENT),
    "adamw": ({"use": "fedbuff", "buffer": 3}, KEPT),
}
"""Clients keep a control variate, a direction, their last update at the server, or the state of their optimiser."""

# Forks a process per line, which continues a run. Python and torch are loaded only once. Checkpoints are made every few
# milliseconds. The rows of clients are small here, but go where large ones go: to a temporary file, and to row files.
PROGRAM = """
import os, sys
from pathlib import Path
from fairlag.core import rows
from fairlag.execute import processes
from fairlag.lab import loop, rowfiles
from fairlag.lab.events import Progress
from fairlag.lab.plan import Plan
from fairlag.lab.simulate import execute
from fairlag.learn import evaluation, flat, learner
def watch(planned, event, told=[]):
    if isinstance(event, Progress) and not told:
        told.append(print("makes progress", flush=True))
loop.CHECKPOINT, loop._COSTLY, rowfiles.BIG, rows._PART = 0.02, 0, 1, 0.0
for line in sys.stdin:
    if child := os.fork():
        os.waitpid(child, 0)  # its workers end by themselves
        print("ended", flush=True)
        continue
    os.setsid()
    print(os.getpid(), flush=True)
    executor, workers, folder = line.rstrip().split(" ", 2)
    try:
        execute(Plan.open(Path(folder)), workers=int(workers), executor=executor, watch=watch)
    except Exception as error:
        print(error, file=sys.stderr, flush=True)
    finally:
        os._exit(0)
"""


@pytest.fixture(scope="module")
def forking() -> Iterator["subprocess.Popen[str]"]:
    """A process that forks runs."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=-1, stdout=-1, text=True, bufsize=1) as process:
        yield process
        process.kill()


def say(words: str) -> None:
    """Tells whoever waits for many kills, also while pytest captures the output."""
    print(words, file=sys.__stdout__, flush=True)


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_killed_runs_end_with_the_same_bytes(
    forking: "subprocess.Popen[str]", tmp_path: Path, call: Call, scene: str
) -> None:
    use, local = SCENES[scene]
    whole = planned(tmp_path / "whole", use, _VERSIONS, local)
    execute(whole, workers=1)
    (one,) = whole
    chance, kills, runs = random.Random(f"{SEED} {scene}"), Counter[str](), 0
    while kills.total() < KILLS // len(SCENES):
        runs += 1
        killed = planned(tmp_path / f"killed-{runs}", use, _VERSIONS, local)
        kills += killed_at_random(forking, killed, chance, KILLS // len(SCENES) - kills.total())
        done = call("resume", str(killed.folder), "--workers", "1")
        assert done.code == 0, done.err
        (other,) = killed
        assert contents(other.folder) == contents(one.folder), (scene, runs)
        assert not list(other.folder.glob("*.partial*")) and not list(other.folder.glob("rows-*"))
    say(f"{scene}: killed {dict(kills)}; {runs} runs, all ended with the same bytes")


def killed_at_random(forking: "subprocess.Popen[str]", plan: Plan, chance: random.Random, most: int) -> Counter[str]:
    """Kills a run at random moments until it ends; returns how often what was killed."""
    kills, (run,) = Counter[str](), plan
    while kills.total() < most:
        executor, workers = chance.choice(_HOW)
        what, process = "a worker", begun(forking, executor, workers, plan.folder)
        if process is None:
            break
        while what == "a worker" and kills.total() < most:
            time.sleep(chance.uniform(0, _LONGEST))
            children = workers_of(process)
            if is_over(process) or len(children) < workers * (executor != "serial"):  # the run is at its end
                break
            what = chance.choice(("the process", "a worker", "all processes")) if children else "the only process"
            kills[what] += 1
            say(f"{plan.folder.parent.name}: {what} killed at version {Run(run.folder).version}")
            with suppress(ProcessLookupError):
                if what == "all processes":
                    os.killpg(process, signal.SIGKILL)
                else:
                    os.kill(chance.choice(children) if what == "a worker" else process, signal.SIGKILL)
        assert line(forking) == "ended"
        wait_until(partial(is_over, process), "the end of all processes of a killed run")
    return kills


def begun(forking: "subprocess.Popen[str]", executor: str, workers: int, folder: Path) -> int | None:
    """The number of a new process that continues a run and makes progress; None if the run has ended."""
    assert forking.stdin is not None
    print(executor, workers, folder, file=forking.stdin)
    process = int(line(forking))
    return process if line(forking) == "makes progress" else None


def line(process: "subprocess.Popen[str]") -> str:
    """The next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip()


def workers_of(process: int) -> list[int]:
    """The worker processes of a process."""
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def is_over(group: int) -> bool:
    """Is there no process of this group any more?"""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False
