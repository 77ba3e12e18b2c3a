"""What the nodes of a federation noted about their tasks: what Flower added to each, and how busy the machine was."""

from pathlib import Path

import numpy as np

from fairlag.core.types import Floats
from fairlag.errors import InputError
from fairlag.lab.run import Run

CREATED, STARTED, BEGAN, ENDED, PROCESSOR, WAITED = range(6)
"""The columns of a node's notes: see app/paced/client_app.py."""


def notes(folder: Path) -> list[Floats]:
    """Per node: one row per task, in the order in which it did them."""
    files = sorted(folder.glob("federation/data/*.csv"), key=lambda file: int(file.stem.partition("-")[2]))
    return [np.loadtxt(file, delimiter=",", ndmin=2) for file in files]


def queued_of(run: Run) -> int:
    """How many tasks each node had at once."""
    return int(run.meta.get("queued", 1))


def overheads(folder: Path) -> Floats:
    """Per task, without the first ones of each node: its seconds at the server minus those that its device worked.

    A task begins when it is handed out, or when the server has the last update of its node: only then, the node turns
    to it. So with several tasks per node, what Flower does meanwhile is not counted.
    """
    run, found = Run(folder / "run"), list[Floats]()
    queued = queued_of(run)
    tasks = run.tasks.sort_values("ended")
    if (tasks["outcome"] != "aggregated").any():
        raise InputError(f"some tasks of the run in {str(run.folder)!r} were lost or refused, so it shows no overhead")
    for node, noted in enumerate(notes(folder)):
        mine = tasks[tasks["client"] // queued == node]
        ended = mine["ended"].to_numpy(np.float64)
        begun = np.maximum(mine["dispatched"].to_numpy(np.float64)[1:], ended[:-1])
        worked = noted[1 : len(ended), ENDED] - noted[1 : len(ended), BEGAN]
        found.append((ended[1:] - begun - worked)[queued - 1 :])
    return np.concatenate(found)


def quiet(folder: Path) -> str:
    """How little the measurement had to wait for a core, in words."""
    late = np.genfromtxt(folder / "load.csv", delimiter=",", names=True)["late"]
    words = [f"A wait of 5 s ended {1e3 * late.mean():.1f} ms late on average, and {1e3 * late.max():.0f} ms at most."]
    if noted := notes(folder):
        rows = np.concatenate(noted)
        start = rows[:, BEGAN] - rows[:, STARTED]
        words.append(
            f"The process of a task needed {rows[:, PROCESSOR].mean():.2f} s of a core, and its threads waited for one "
            f"for {rows[:, WAITED].mean():.2f} s in total. From its start to its work it took {np.median(start):.1f} s "
            f"in the median, and more than {np.quantile(start, 0.9):.1f} s in one of ten."
        )
    return " ".join(words)
