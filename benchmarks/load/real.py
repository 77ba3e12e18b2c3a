"""Load on real nodes: a federation on loopback with TLS and keys, its memory and its processor time per process.

    python -m benchmarks.load.real FOLDER [--nodes 20] [--seconds 3600] [--unit 80] [--flat-out 300] [--port 9900]

Three of four nodes are fast: their tasks take U(1, 2) units, those of slow ones U(8, 12); a unit is in seconds. The
nodes are started one after the other while the app runs. Then the same nodes run it again without any delay. The folder
gets `paced` and `flat-out`, each with `run`, `samples.csv` and `summary.json`.
"""

import argparse
import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

import fairlag
from benchmarks.fidelity.measure import HERE as FIDELITY
from benchmarks.fidelity.measure import PacedFederation, write_experiment
from benchmarks.load.sampled import grown, read, sampled, spread
from fairlag.errors import InputError, UnreadableError
from fairlag.lab.resources import Resources
from fairlag.lab.run import Run

EVERY = 30.0
"""Seconds between two samples: to read the memory of 60 processes takes half a second of a core."""
NO_DELAY = 1e-4
"""A unit that is too short to matter."""
ENDING = 600.0
"""The most seconds that starting and ending may take, besides the time of training."""


def measure(folder: Path, *, nodes: int, seconds: float, unit: float, flat_out: float, port: int) -> None:
    """Runs a federation for this long, then again without delays, and says how it went."""
    paced = _written(folder / "paced", nodes, unit, seconds)
    tables = [table.group for table in fairlag.load(paced).clients for _ in range(table.count)]
    names = tuple(f"{group}:{place}" for place, group in enumerate(tables))
    federation = PacedFederation(folder / "federation", names, port, str(paced.with_suffix("")))
    try:
        federation.start_superlink()
        with _running(federation, paced, seconds):
            for number in federation.nodes:
                federation.flwr("supernode", "register", f"{federation.key(number)}.pub", "fleet")
                federation.start_node(number)
                print(f"{number + 1} of {nodes} nodes are started", flush=True)
        if flat_out:
            file = _written(folder / "flat-out", nodes, NO_DELAY, flat_out)
            federation._deal(Resources(fairlag.load(file)))
            with _running(federation, file, flat_out):
                pass
    finally:
        federation.close()


def _written(folder: Path, nodes: int, unit: float, seconds: float) -> Path:
    slow = nodes // 4
    return write_experiment(folder, unit=unit, seconds=seconds, fast=nodes - slow, slow=slow, buffer=5).resolve()


@contextmanager
def _running(federation: PacedFederation, file: Path, seconds: float) -> Iterator[None]:
    """Starts the app; at the end, waits until it has ended, and writes down how it went."""
    folder, until = file.parent, time.monotonic() + seconds + ENDING
    with sampled(folder / "samples.csv", EVERY):
        config = f"experiment='{file}' out='{folder / 'run'}' at-least=1"
        federation.flwr("run", str(FIDELITY / "app"), "fleet", "--run-config", config)
        while time.monotonic() < until and not (folder / "run").exists():
            time.sleep(1.0)
        yield
        while time.monotonic() < until and _is_running(folder / "run"):
            time.sleep(5.0)
    found = summary(folder)
    (folder / "summary.json").write_text(json.dumps(found, indent=1))
    print(json.dumps(found, indent=1), flush=True)


def _is_running(folder: Path) -> bool:
    with suppress(UnreadableError):
        return Run(folder).status == "running"
    return True


def summary(folder: Path) -> dict[str, Any]:
    """What a federation did."""
    run, samples = Run(folder / "run"), read(folder / "samples.csv")
    tasks, rows = run.tasks.merge(run.clients[["client", "group"]], on="client"), run.aggregations
    merged = tasks[tasks["outcome"] == "aggregated"]
    seconds = float(rows["time"].iloc[-1]) if len(rows) else 0.0
    roles = {role: grown(each) for role, each in samples.items() if len(each) > 1}
    processor = sum(each["cores"] for each in roles.values())
    return {
        "nodes": len(run.clients),
        "status": f"{run.status}: {run.meta.get('reason')}",
        "seconds": seconds,
        "updates": len(merged),
        "updates/s": len(merged) / max(seconds, 1e-9),
        "outcomes": tasks["outcome"].value_counts().to_dict(),
        "versions": run.version,
        "between versions, s": spread(np.diff(rows["time"].to_numpy())),
        "task, s": {
            group: spread((each["ended"] - each["dispatched"]).to_numpy()) for group, each in merged.groupby("group")
        },
        "cores": processor,
        "roles": roles,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="A federation of real nodes on loopback, measured.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--unit", type=float, default=80.0, help="seconds per unit of the delays")
    parser.add_argument("--flat-out", type=float, default=300.0, help="seconds without delays; 0 for none")
    parser.add_argument("--port", type=int, default=9900, help="port of the SuperLink; nodes use the next ports")
    options = vars(parser.parse_args())
    folder = options.pop("folder")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the nodes, as Ctrl-C does
    try:
        measure(folder, **options)
    except (InputError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
