"""A small bundle with own code and own data, and changes to it that its checksums do not show."""

import json
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from fairlag.cli.bundle import freeze
from fairlag.lab.bundle import archive
from fairlag.lab.bundle.contents import LIST, Contents, described
from fairlag.lab.experiment import load
from fairlag.lab.folder import EXPERIMENT, SUMS
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute
from tests.support.edits import edited

RULE = """
from helper_of_mine import POWER

def rule(buffer, view):
    weights = (1 + buffer.staleness) ** POWER
    return weights / weights.sum()
"""

EXPERIMENT_FILE = """
name = "points"
aggregations = {aggregations}
[[clients]]
group = "fast"
count = 4
delay = "uniform(1, 2)"
[[clients]]
group = "slow"
count = 2
delay = "trace('delays.csv')"
[data]
use = "file"
path = "{data}"
target = "label"
partition = "iid"
[model]
use = "logistic"
[local]
steps = 2
lr = "cosine(0.5, {aggregations})"
[evaluate]
every = 4
sample = 30
[[strategies]]
use = "rule_of_mine:rule"
label = "Mine"
buffer = 2
[[strategies]]
use = "buffered_fedavg"
label = "FedAvg"
buffer = 2
"""


def experiment_in(folder: Path, *, aggregations: int = 40, data: str = "points.csv") -> Path:
    """The file of an experiment, in a folder with the code and data that it names."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 240)
    rows = [f"{label + 0.5 * rng.standard_normal()!r},{rng.standard_normal()!r},{label}" for label in labels]
    Path(folder, data).write_text("\n".join(["x,y,label", *rows]) + "\n")
    (folder / "delays.csv").write_text("8\n9\n11\n")
    (folder / "rule_of_mine.py").write_text(RULE)
    (folder / "helper_of_mine.py").write_text("POWER = -0.5\n")
    file = folder / "points.toml"
    file.write_text(EXPERIMENT_FILE.format(aggregations=aggregations, data=data))
    return file


def forget() -> None:
    """Forgets the modules of the experiment, as a new process would."""
    for name in ("rule_of_mine", "helper_of_mine"):
        sys.modules.pop(name, None)


def made(file: Path, out: Path, *seeds: int) -> Path:
    """The runs of an experiment file."""
    execute(Plan(load(file), seeds or (0,), out), new=True, workers=1)
    forget()
    return out


def bundled(out: Path, *folders: Path, unfinished: bool = False) -> Path:
    """The bundle of these runs."""
    freeze([*folders], out, unfinished=unfinished)
    return out


@contextmanager
def opened(bundle: Path, folder: Path) -> Iterator[Path]:
    """An unpacked bundle, which may be changed inside; afterwards the file has the changes, and checksums that fit."""
    with zipfile.ZipFile(bundle) as content:
        content.extractall(folder)
    yield folder
    contents = Contents.read(folder / LIST, content.namelist())
    runs = []
    for entry in contents.runs:
        with edited(folder / entry.folder):  # with digests that fit
            pass
        run = Run(folder / entry.folder)
        runs.append(described(run, entry.folder, entry.home, run.version))
    (folder / LIST).write_bytes(replace(contents, runs=tuple(runs)).written())
    files = [file for file in folder.rglob("*") if file.is_file() and file.name != SUMS]
    archive.write(bundle, {file.relative_to(folder).as_posix(): file for file in files})


def with_seed(run: Path, seed: int) -> None:
    """Changes the seed in the experiment of a run."""
    file = run / EXPERIMENT
    tables = json.loads(file.read_text())
    tables["experiment"]["seed"] = seed
    file.write_text(json.dumps(tables))
