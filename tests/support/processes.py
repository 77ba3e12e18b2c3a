"""The processes of one federation, found in /proc by an environment variable: their memory and processor time."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_ROLES = {
    "flower-superlink": "superlink",
    "flwr-serverapp": "serverapp",
    "flower-supernode": "node",
    "flower-superexec": "superexec",
    "flwr-clientapp": "clientapp",
}
_TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """One living process."""

    pid: int
    parent: int
    role: str
    """What it is for Flower; "other" for commands."""
    seconds: float
    """Its processor time, and that of its children that have ended."""


class Memory(NamedTuple):
    """The memory of a process in MB; `own` is what no other process shares."""

    resident: float
    proportional: float
    own: float


def found(mark: str) -> list[Process]:
    """All living processes with this text, NAME=VALUE, in their environment."""
    processes = []
    for place in Path("/proc").iterdir():
        if not place.name.isdecimal() or int(place.name) == os.getpid():
            continue
        with suppress(OSError, IndexError, ValueError):
            if mark.encode() not in (place / "environ").read_bytes().split(b"\0"):
                continue
            words = (place / "cmdline").read_bytes().decode(errors="replace").split("\0")[:3]
            named = {Path(word).name for word in words}
            role = next((role for name, role in _ROLES.items() if name in named), "other")
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                seconds = sum(map(int, fields[11:15])) / _TICKS
                processes.append(Process(int(place.name), int(fields[1]), role, seconds))
    return processes


def below(living: list[Process], pid: int) -> list[Process]:
    """A process and all that it started, and that these started."""
    tree = {pid}
    while more := {each.pid for each in living if each.parent in tree} - tree:
        tree |= more
    return [each for each in living if each.pid in tree]


def memory(pid: int) -> Memory | None:
    """The memory of a process; None if it has ended."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {name: int(rest.split()[0]) / 1024 for name, _, rest in (line.partition(":") for line in lines)}
        if "Rss" in sizes:
            return Memory(sizes["Rss"], sizes["Pss"], sizes["Private_Clean"] + sizes["Private_Dirty"])
    return None


def send(number: int, processes: list[Process]) -> None:
    """Sends a signal to each of them; SIGKILL ends them at once, as a power cut does."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
