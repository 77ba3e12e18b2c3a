"""Every file of runs, plans and sweeps, damaged at random: the same answers, or a sentence, never a wrong result.

`make soak-damage` damages some thousand times and prints what was found; CI damages some hundred times.
"""

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pytest

import fairlag
from fairlag.lab import loop, rowfiles
from fairlag.lab.database import Database
from fairlag.lab.deploy import deploy
from fairlag.lab.events import Event, Kept
from fairlag.lab.experiment import parse
from fairlag.lab.nodelog import lines_of, quarantined
from fairlag.lab.plan import Plan
from fairlag.lab.quarantine import request
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute
from fairlag.lab.store import Store
from fairlag.lab.sweep.plan import SweepPlan
from fairlag.lab.sweep.result import RESULT, Result, SweepResult, kept
from fairlag.lab.verify import verified
from tests.support.corrupting import Ask, corrupted, refused
from tests.support.experiments import SMALL
from tests.support.flower_deploy import FLEET, QUICK, Crash, Trained
from tests.support.flower_grid import FakeGrid, FakeNode
from tests.support.resuming import contents, planned
from tests.support.sweeps import BUFFERED, swept
from tests.support.sweeps import made as sweep_made

DAMAGES = int(os.environ.get("DAMAGES", "20"))
"""How many files are damaged per scene."""
SEED = int(os.environ.get("SEED", "0"))

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_grid")]


class Scene(NamedTuple):
    """A folder, what is asked of damaged copies of it, and the right answers to each question."""

    folder: Path
    asked: dict[Ask, Collection[object]]


def looked(folder: Path) -> object:
    """What a finished or interrupted run answers. `--verify` never says that a run is intact that cannot be read."""
    intact, _ = verified(folder)
    try:
        run = Run(folder)
        frames = run.tasks, run.aggregations, run.evaluations, run.clients, run.refusals, run.influence(), run.node_log
        model = {name: each.tobytes() for name, each in run.tensors().items()} if run.status == "finished" else {}
        (compared,) = fairlag.compare([run])
        return [*(frame.to_csv() for frame in frames), run.meta, run.settings, str(compared), model]
    except fairlag.errors.FairlagError:
        assert not intact
        raise


def opened(folder: Path) -> tuple[object, ...]:
    """What a deployment that is continued begins with."""
    with Store.open(folder) as store:
        arrays, text = store.checkpoint() or ({}, "")
        lines, head = lines_of(folder, store.meta)
        state = {name: np.asarray(each).tobytes() for name, each in arrays.items()}
        return state, text, Run(folder).version, head, quarantined(lines)


def resumed(folder: Path) -> object:
    """What a simulation that is continued ends with."""
    plan = Plan.open(folder)
    execute(plan, workers=1)
    return [contents(each.folder) for each in plan]


def plan_read(folder: Path) -> object:
    """The runs that resuming a plan would make."""
    return [(each.use, each.seed, each.sha256) for each in Plan.open(folder)]


def results_read(folder: Path) -> object:
    """What resuming a sweep would take as known."""
    plan = SweepPlan.open(folder)
    trials = {file.parent.name: repr(kept(file.parent, Result)) for file in folder.glob(f"trials/*/{RESULT}")}
    return repr(kept(folder, SweepResult)), trials, plan.tuning, plan_read(folder / "final")


@contextmanager
def committing() -> Iterator[None]:
    """Inside, every event is followed by a commit, all rows are in files, and only every other commit empties the log.

    The log is not emptied either while someone reads the run.
    """
    turns, empty = count(), Database._empty_the_log
    with (
        patch.multiple(loop, CHECKPOINT=0.0, _COSTLY=0),
        patch.object(rowfiles, "BIG", 1),
        patch.object(Database, "_empty_the_log", lambda self: empty(self) if next(turns) % 2 else None),
    ):
        yield


def finished(folder: Path) -> Scene:
    """A simulation with a model, at its end."""
    run = planned(folder / "run", {"use": "fairshare", "buffer": 3}, 30)
    execute(run, workers=1)
    (one,) = run
    return Scene(one.folder, {looked: [looked(one.folder)]})


def interrupted(folder: Path) -> Scene:
    """A simulation that was killed: its plan, its rows in two files, its checkpoints and clients' updates in files."""
    use = {"use": "mifa", "cohort": 3}
    whole, killed = planned(folder / "whole", use, 16), planned(folder / "run", use, 16)
    execute(whole, workers=1)

    def stop(_: object, event: Event) -> None:
        if isinstance(event, Kept) and event.version >= 11:
            shutil.copytree(killed.folder, folder / "killed")
            raise Crash

    with committing(), suppress(Crash):
        execute(killed, workers=1, watch=stop)
    return Scene(folder / "killed", {resumed: [[contents(each.folder) for each in whole]]})


def deployed(folder: Path) -> Scene:
    """A deployment that was killed, with a node in quarantine.

    Looking may show an earlier moment; continuing may lose one commit at most.
    """
    moments: list[Path] = []

    def note(event: Event) -> None:
        if isinstance(event, Kept):
            if event.version == 2:
                request(Run(folder / "run"), "1", "it is always late", release=False)
            moments.append(shutil.copytree(folder / "run", folder / f"moment-{event.version}-{len(moments)}"))
            if event.version >= 20:
                raise Crash

    grid = FakeGrid({100 + each: FakeNode({"partition-id": each}, Trained(each), 0.01) for each in range(4)})
    experiment = {**FLEET, "strategies": [{"use": "fairshare", "buffer": 2}]}
    with committing(), suppress(Crash):
        deploy(grid, experiment, out=folder / "run", watch=note, **QUICK)
    killed = shutil.copytree(moments[-1], folder / "killed")
    assert opened(killed)[-1]
    return Scene(killed, {looked: [looked(each) for each in moments], opened: [opened(each) for each in moments[-2:]]})


def swept_halfway(folder: Path) -> Scene:
    """A sweep with two trials, and the plan of its tests."""
    sweep_made(swept(BUFFERED, over={"lr": [0.5, 1.0]}, seeds=1, tests=1), folder / "sweep")
    for file in [*(folder / "sweep").glob("**/run.sqlite")]:  # runs are the other scenes
        shutil.rmtree(file.parent)
    return Scene(folder / "sweep", {results_read: [results_read(folder / "sweep")]})


def only_planned(folder: Path) -> Scene:
    """A plan none of whose runs has begun."""
    Plan(parse(SMALL), (0, 1), folder / "plan").save()
    return Scene(folder / "plan", {plan_read: [plan_read(folder / "plan")]})


@pytest.mark.parametrize("made", [finished, interrupted, deployed, swept_halfway, only_planned])
def test_damage_gives_the_same_answer_or_a_sentence(tmp_path: Path, made: Callable[[Path], Scene]) -> None:
    scene, chance, found = made(tmp_path), random.Random(f"{SEED} {made.__name__}"), Counter[tuple[str, bool]]()
    files = sorted(
        file.relative_to(scene.folder)
        for file in scene.folder.rglob("*")
        if file.is_file() and file.stat().st_size and file.suffix != ".sqlite-shm"
    )
    for number in range(DAMAGES):
        file = files[number % len(files)]
        how, content = corrupted((scene.folder / file).read_bytes(), chance)
        for ask, right in scene.asked.items():
            where = f"{number} {ask.__name__} {file.name} {how}"
            kind = f"{file.name.partition('-')[0]}-*" if file.name.startswith(("checkpoint-", "rows-")) else file.name
            found[kind, refused(scene.folder, file, content, ask, right, where)] += 1
    for kind, sentence in sorted(found):
        what = "a sentence" if sentence else "the same answer"
        print(f"{made.__name__}: {kind}: {found[kind, sentence]} times {what}", flush=True)
    assert any(sentence for _, sentence in found)
