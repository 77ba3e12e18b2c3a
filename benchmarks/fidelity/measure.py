"""Measures: a real federation of the paper's fleet on loopback, with TLS and keys, recorded in a folder.

    python -m benchmarks.fidelity.measure FOLDER [--unit 20] [--seconds 4500] [--fast 10] [--slow 5] [--queued 1]
    python -m benchmarks.fidelity.measure FOLDER --threads --unit 1 --seconds 720

The folder gets `experiment.toml` (what the federation was said to be), `run` (what it did) and `load.csv` (how late
waits ended meanwhile). In `federation/data`, each node notes when it worked. The tasks of fast devices take U(1, 2)
units, those of slow ones U(8, 12); a unit is in seconds. With `--threads`, clients are threads of one process that
really sleep (`fairlag run --clock wall`).
"""

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import numpy as np

import fairlag
from fairlag.errors import InputError, UnreadableError
from fairlag.lab.experiment import Experiment
from fairlag.lab.resources import Resources
from fairlag.lab.run import Run

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "examples" / "flower"))

from federation import Federation  # noqa: E402

DRAWS = 4096
"""The durations from which a node draws: those at the middle of so many equal parts of their distribution."""
START = 900.0
"""The most seconds until the first version."""
EVERY = 5.0
"""Seconds of each wait, of which it is noted how late it ended."""

EXPERIMENT = """\
name = "fidelity"
aggregations = 100000
until_time = {seconds:g}
model_bytes = 2600

[data]
use = "digits"
holdout = 0.2

[model]
use = "logistic"

[local]
steps = 5
batch = 32
lr = 0.1

[evaluate]
every = 1

[[clients]]
group = "fast"
count = {fast}
delay = "uniform({unit:g}, {2unit:g})"
labels = [4, 5, 6, 7, 8, 9]

[[clients]]
group = "slow"
count = {slow}
delay = "uniform({8unit:g}, {12unit:g})"
labels = [0, 1, 2, 3]

[[strategies]]
use = "fedstaleweight"
buffer = {buffer}
"""


class PacedFederation(Federation):
    """A federation whose nodes also hold the durations of their tasks."""

    def _deal(self, resources: Resources) -> None:
        fleet, middle = resources.experiment.fleet(), (np.arange(DRAWS) + 0.5) / DRAWS
        for node in self.nodes.values():
            client = int(node.split(":")[1])
            inputs, labels = resources.held(client)
            durations = fleet.groups[fleet.group_of[client]].delay.quantile(middle)
            np.savez(self._data(node), inputs=inputs, labels=labels, durations=durations)


def write_experiment(folder: Path, *, unit: float, seconds: float, fast: int, slow: int, buffer: int) -> Path:
    """Writes the file of the paper's fleet into the folder, with a unit of this many seconds."""
    parts = {f"{factor}unit": factor * unit for factor in (2, 8, 12)}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "experiment.toml"
    file.write_text(EXPERIMENT.format(unit=unit, seconds=seconds, fast=fast, slow=slow, buffer=buffer, **parts))
    return file


def measure(folder: Path, experiment: Experiment, *, queued: int, port: int) -> Run:
    """Runs the federation until the experiment's time is over; `folder` holds its file."""
    nodes = tuple(f"{table.group}:{place}" for place, table in enumerate(_tables(experiment)))
    federation = PacedFederation(folder / "federation", nodes, port, str(folder.resolve() / "experiment"))
    try:
        federation.start()
        config = {"experiment": str(folder.resolve() / "experiment.toml"), "out": str(folder.resolve() / "run")}
        words = " ".join(f"{key}='{value}'" for key, value in config.items())
        federation.flwr(
            "run", str(HERE / "app"), "fleet", "--run-config", f"{words} at-least={len(nodes)} queued={queued}"
        )
        _wait(folder, START + 1.5 * float(experiment.until_time or 0.0))
    finally:
        federation.close()
    return Run(folder / "run")


def measure_threads(folder: Path, experiment: Experiment) -> Run:
    """Runs the experiment on the wall clock, in threads; `folder` holds its file."""
    with _load_noted(folder):
        run = fairlag.simulate(experiment.checked(clock="wall"), out=folder / "run", workers=1)
    assert isinstance(run, Run)
    return run


def _tables(experiment: Experiment) -> list[fairlag.lab.clients.Clients]:
    return [table for table in experiment.clients for _ in range(table.count)]


def _wait(folder: Path, most: float) -> None:
    """Waits until the run has ended; gives up after `most` seconds."""
    began = time.monotonic()
    with _load_noted(folder):
        while time.monotonic() - began < most:
            with suppress(UnreadableError):
                if Run(folder / "run").status != "running":
                    return
            time.sleep(EVERY)
    raise SystemExit(f"the run has not ended after {most:.0f} s: see {folder / 'federation' / 'logs'}")


@contextmanager
def _load_noted(folder: Path) -> Iterator[None]:
    """Inside, a thread notes how late its waits end: if no core is free, they end late."""
    over, began = Event(), time.monotonic()

    def note() -> None:
        with (folder / "load.csv").open("w", buffering=1) as file:
            file.write("seconds,late\n")
            due = began + EVERY
            while not over.wait(due - time.monotonic()):
                now = time.monotonic()
                file.write(f"{now - began:.0f},{now - due:.4f}\n")
                due = now + EVERY

    thread = Thread(target=note, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="A real federation of the paper's fleet on loopback, recorded.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--unit", type=float, default=20.0, help="seconds per unit of the paper's delays")
    parser.add_argument("--seconds", type=float, default=1500.0, help="how long the federation trains")
    parser.add_argument("--fast", type=int, default=10, help="how many nodes with tasks of U(1, 2) units")
    parser.add_argument("--slow", type=int, default=5, help="how many nodes with tasks of U(8, 12) units")
    parser.add_argument("--queued", type=int, default=1, help="how many tasks a node has at once")
    parser.add_argument("--buffer", type=int, default=5, help="how many updates make a version")
    parser.add_argument("--port", type=int, default=9700, help="port of the SuperLink; nodes use the next ports")
    parser.add_argument("--threads", action="store_true", help="threads on the wall clock instead of a federation")
    options = parser.parse_args()
    if (options.folder / "run").exists():
        parser.error(f"there is already a run in {str(options.folder)!r}: give another folder")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the nodes, as Ctrl-C does
    try:
        sizes = {name: getattr(options, name) for name in ("unit", "seconds", "fast", "slow", "buffer")}
        experiment = fairlag.load(write_experiment(options.folder, **sizes))
        if options.threads:
            run = measure_threads(options.folder, experiment)
        else:
            run = measure(options.folder, experiment, queued=options.queued, port=options.port)
    except (InputError, OSError) as error:
        parser.error(str(error))
    print(run)


if __name__ == "__main__":
    main()
