"""Samples of processes under load: memory, processor time and threads per role, and the arithmetic of such series."""

import csv
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from threading import Event, Thread

import numpy as np
from numpy.typing import ArrayLike

ROLES = ("superlink", "supernode", "superexec", "serverapp", "clientapp", "watch", "run", "flwr")
"""What the name of a process may contain; the first one that fits is its role."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Sample:
    """All processes of one role at one moment."""

    seconds: float
    role: str
    processes: int = 0
    threads: int = 0
    megabytes: float = 0.0
    """Memory of their own, which is not shared with other processes (USS)."""
    processor: float = 0.0
    """Seconds of processor time that they have used so far."""
    ended: float = 0.0
    """Seconds of processor time of their children that have ended."""


@contextmanager
def sampled(file: Path, every: float, pid: int | None = None) -> Iterator[None]:
    """Inside, a thread writes samples of a process and its descendants into a file; by default, of this one."""
    over, began = Event(), time.monotonic()

    def sample() -> None:
        with file.open("w", buffering=1) as opened:
            writer = csv.writer(opened)
            writer.writerow([each.name for each in fields(Sample)])
            while True:
                writer.writerows(astuple(each) for each in samples(pid or os.getpid(), time.monotonic() - began))
                if over.wait(every):
                    return

    thread = Thread(target=sample, name="samples", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def samples(root: int, seconds: float) -> list[Sample]:
    """A process and its descendants now, by role."""
    found: dict[str, Sample] = {}
    for pid in _family(root):
        with suppress(OSError, ValueError):  # it has just ended
            role = "tool" if pid == root else _role(pid)
            sample = found.setdefault(role, Sample(seconds, role))
            columns = _stat(pid)
            megabytes = _own_megabytes(pid)
            sample.processes += 1
            sample.threads += int(columns[17])
            sample.megabytes += megabytes
            sample.processor += (int(columns[11]) + int(columns[12])) / _TICKS
            sample.ended += (int(columns[13]) + int(columns[14])) / _TICKS
    return list(found.values())


def read(file: Path) -> dict[str, list[Sample]]:
    """The samples in a file, by role."""
    found: dict[str, list[Sample]] = defaultdict(list)
    with file.open() as opened:
        for row in csv.DictReader(opened):
            numbers = {name: float(value) for name, value in row.items() if name != "role"}
            sample = Sample(role=row["role"], **{name: numbers[name] for name in numbers})  # type: ignore[arg-type]
            found[sample.role].append(sample)
    return dict(found)


def slope(seconds: Sequence[float], values: Sequence[float]) -> float:
    """By how much values grow per hour: the slope of the straight line with the least squares."""
    if len(seconds) < 2:
        return 0.0
    return float(np.polyfit(np.asarray(seconds) / 3600, np.asarray(values), 1)[0])


def grown(samples: Sequence[Sample], warm: float = 0.1) -> dict[str, float]:
    """How busy processes were, and how their memory grew after a first part of the time, in which it is filled."""
    later = [each for each in samples if each.seconds >= samples[0].seconds + warm * samples[-1].seconds]
    first, last = samples[0], samples[-1]
    used = last.processor + last.ended - first.processor - first.ended
    return {
        "cores": used / max(last.seconds - first.seconds, 1e-9),
        "MB": last.megabytes,
        "MB per hour": slope([each.seconds for each in later], [each.megabytes for each in later]),
        "threads": max(each.threads for each in samples),
    }


def spread(values: ArrayLike) -> dict[str, float]:
    """The median, two high percentiles and the largest of some values; empty if there are none."""
    numbers = np.asarray(values)
    if not numbers.size:
        return {}
    parts = {"median": 50, "95 %": 95, "99 %": 99, "max": 100}
    return {name: float(np.percentile(numbers, part)) for name, part in parts.items()}


def _family(root: int) -> Iterator[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                children[int(_stat(int(entry))[1])].append(int(entry))
    left = [root]
    while left:
        pid = left.pop()
        yield pid
        left += children[pid]


def _stat(pid: int) -> list[str]:
    """The columns of its statistics after its name, which may contain anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _role(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    names = [Path(word).name for word in words[:3] if not word.startswith("-")]
    return next((role for role in ROLES for name in names if role in name), "other")


def _own_megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024
