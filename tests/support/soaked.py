"""The federation of the soak of a deployment: six nodes with keys and an allow-list, and tasks that mostly wait."""

import signal
from pathlib import Path

import numpy as np

from benchmarks.fidelity.measure import HERE, PacedFederation
from tests.support import processes

NODES = ("fast:0", "fast:1", "fast:2", "fast:3", "slow:4", "slow:5")
EXPERIMENT = """\
name = "soak"
aggregations = 1000000
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
every = 10

[[clients]]
group = "fast"
count = 4
delay = "uniform(10, 20)"
labels = [4, 5, 6, 7, 8, 9]

[[clients]]
group = "slow"
count = 2
delay = "uniform(40, 60)"
labels = [0, 1, 2, 3]

[[strategies]]
use = "fairshare"
buffer = 2
"""
_TRIES = 5


class SoakedFederation(PacedFederation):
    """A federation whose processes are killed with all that they started."""

    def __init__(self, folder: Path, port: int) -> None:
        folder.mkdir(parents=True)
        self.experiment, self.out = folder.resolve() / "experiment.toml", folder.resolve() / "runs" / "run"
        self.experiment.write_text(EXPERIMENT)
        super().__init__(folder / "federation", NODES, port, str(self.experiment.with_suffix("")))

    def held(self) -> dict[int, tuple[str, int]]:
        """The group of each node and the number of its examples."""
        found = {}
        for number, node in self.nodes.items():
            with np.load(self._data(node)) as arrays:
                found[number] = (node.split(":")[0], len(arrays["labels"]))
        return found

    def living(self) -> list[processes.Process]:
        """All its processes, also those that Flower started."""
        return processes.found(f"FLWR_HOME={self.folder / 'flwr'}")

    def apps(self) -> list[processes.Process]:
        """The processes that run `fairlag.deploy`."""
        return [process for process in self.living() if process.role == "serverapp"]

    def tree(self, name: str) -> list[processes.Process]:
        """One of its processes, and all that it started."""
        return processes.below(self.living(), self.processes[name].pid)

    def run_app(self) -> None:
        """Runs the app, which continues the run that is there."""
        words = f"experiment='{self.experiment}' out='{self.out}' allow='{self.allowed}' at-least=2 queued=1"
        self.flwr("run", str(HERE / "app"), "fleet", "--run-config", words)

    def stop(self, *names: str, kill: bool = False) -> None:
        """Ends processes. When killed, also what they started: Flower may put it into sessions of its own."""
        if kill:
            processes.send(signal.SIGKILL, [each for name in names for each in self.tree(name)])
        super().stop(*names, kill=kill)

    def close(self) -> None:
        """Ends everything, also what is frozen."""
        processes.send(signal.SIGCONT, self.living())
        super().close()
        processes.send(signal.SIGKILL, self.living())

    def _wait_for_superlink(self) -> None:
        """On a busy machine, it may take more than a minute."""
        for left in reversed(range(_TRIES)):
            try:
                super()._wait_for_superlink()
            except SystemExit:
                if not left or self.processes["superlink"].poll() is not None:
                    raise
            else:
                return
