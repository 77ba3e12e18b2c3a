"""The memory of a federation's processes over time, what is on disk, and whether any of it grows."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import processes

LONG = 20 * 60.0
WARM = 5 * 60.0
"""Memory is judged for processes that lived `LONG` seconds, without their first `WARM`."""


class Growth:
    """Writes `memory.csv` (seconds, name, process, and its resident, proportional and own MB) and `sizes.csv`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.busy = 0.0
        """Seconds of processor time since the first sample."""
        self._used: dict[int, float] = {}

    def sample(self, now: float, living: list[processes.Process], names: Mapping[int, str]) -> None:
        """Measures the processes with names, and the ServerApp."""
        for process in living if self._used else ():
            self.busy += max(0.0, process.seconds - self._used.get(process.pid, 0.0))
        self._used = {process.pid: process.seconds for process in living}
        with (self.folder / "memory.csv").open("a") as file:
            for process in living:
                name = names.get(process.pid, "serverapp" if process.role == "serverapp" else "")
                held = processes.memory(process.pid) if name else None
                if held is not None:
                    sizes = ",".join(f"{size:.2f}" for size in held)
                    file.write(f"{now:.0f},{name},{process.pid},{sizes}\n")

    def weigh(self, now: float, version: int, out: Path, federation: Path) -> None:
        """Writes the bytes of the run, of its database, and of the SuperLink's database."""
        sizes = sum(map(_size, out.glob("*"))), _size(out / "run.sqlite"), sum(map(_size, federation.glob("*.db*")))
        with (self.folder / "sizes.csv").open("a") as file:
            file.write(f"{now:.0f},{version},{','.join(map(str, sizes))}\n")


def _size(file: Path) -> int:
    with suppress(OSError):
        return file.stat().st_size
    return 0


def slopes(file: Path, long: float = LONG, warm: float = WARM) -> list[dict[str, Any]]:
    """How the memory of each process that lived long enough changed: MB per hour, by least squares, with its error."""
    if not file.exists():
        return []
    rows = [line.split(",") for line in file.read_text().splitlines()]
    found = []
    for name, pid in sorted({(row[1], row[2]) for row in rows}):
        mine = np.array([[float(row[0]), *map(float, row[3:])] for row in rows if row[1:3] == [name, pid]])
        if mine[-1, 0] - mine[0, 0] < long:
            continue
        hours, own = mine[mine[:, 0] >= mine[0, 0] + warm][:, [0, 3]].T / [[3600], [1]]
        (slope, _), cover = np.polyfit(hours - hours[0], own, 1, cov=True)
        facts = {"from minute": mine[0, 0] / 60, "to minute": mine[-1, 0] / 60, "MB at first": mine[0, 3]}
        facts |= {"MB when warm": own[0], "MB at last": own[-1], "MB at most": mine[:, 3].max()}
        facts |= {"MB per hour": slope, "standard error": cover[0, 0] ** 0.5}
        found.append({"process": name, "pid": int(pid), **{key: round(float(each), 2) for key, each in facts.items()}})
    return found
