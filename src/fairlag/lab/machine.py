"""What this machine has for fairlag: versions, cores, memory, devices, data sets, extras, and room for runs."""

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from fairlag.data import load
from fairlag.data.sources import SOURCES
from fairlag.lab.executors import cores
from fairlag.learn import devices

_DEVELOPING = frozenset(("dev", "docs"))
"""The extras for those who change fairlag."""
_REQUIRED = re.compile(r"""([\w.-]+).*?;.*extra == ["']([\w-]+)["']""")


class Extra(NamedTuple):
    """An extra of fairlag, and the installed version of each of its packages; None if a package is missing."""

    name: str
    packages: dict[str, str | None]

    @property
    def complete(self) -> bool:
        """Are all of its packages installed?"""
        return None not in self.packages.values()

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"pip install 'fairlag[{self.name}]'"


class DataSet(NamedTuple):
    """A data set with a name: where it was found, and where it was looked for."""

    name: str
    found: str | None
    looked_for: list[str]


class Machine(NamedTuple):
    """Everything about this machine that matters to fairlag."""

    python: str
    executable: str
    system: str
    versions: dict[str, str]
    """Of fairlag and of the libraries that compute."""
    place: str
    """Where fairlag is installed."""
    cores: int
    """How many cores this process may use."""
    all_cores: int
    threads: int
    """How many threads PyTorch uses by default; fairlag trains each task with one."""
    memory: int | None
    """In bytes."""
    devices: list[devices.Device]
    data: list[DataSet]
    extras: list[Extra]
    runs: str
    """The folder for runs."""
    free: int | None
    """The bytes that are free there; None if it cannot be written."""

    def as_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            **self._asdict(),
            "devices": [each._asdict() for each in self.devices],
            "data": [each._asdict() for each in self.data],
            "extras": [{**each._asdict(), "complete": each.complete, "install": each.install} for each in self.extras],
        }


def this_machine() -> Machine:
    """Looks at the machine; nothing is computed, and nothing is left behind."""
    import torch

    runs = Path("runs").absolute()
    return Machine(
        python=platform.python_version(),
        executable=sys.executable,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        versions={name: metadata.version(name) for name in ("fairlag", "torch", "numpy")},
        place=str(Path(__file__).parents[1]),
        cores=cores(),
        all_cores=os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        memory=_memory(),
        devices=devices.available(),
        data=[DataSet(row.name, row.found, _places(row.name)) for row in load.known()],
        extras=extras(metadata.metadata("fairlag").get_all("Provides-Extra") or (), metadata.requires("fairlag") or ()),
        runs=str(runs),
        free=_free(runs),
    )


def extras(names: Iterable[str], requirements: Iterable[str]) -> list[Extra]:
    """The extras for users, from a package's own metadata.

    >>> extras(["fast", "dev"], ["numpy>=2", 'no-such-package>=1; extra == "fast"', 'pytest; extra == "dev"'])
    [Extra(name='fast', packages={'no-such-package': None})]
    """
    parts = [found.groups() for each in requirements if (found := _REQUIRED.match(each))]
    return [
        Extra(name, {package: _version(package) for package, extra in parts if extra == name})
        for name in names
        if name not in _DEVELOPING
    ]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _places(name: str) -> list[str]:
    if name not in SOURCES:
        return []
    own = [] if os.environ.get("FAIRLAG_DATA") else ["$FAIRLAG_DATA (not set)"]
    return [*own, *map(str, SOURCES[name].places)]


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not every system has it
        return None


def _free(folder: Path) -> int | None:
    """The free bytes where a folder is or would be created; None if nothing can be written there."""
    there = next(each for each in (folder, *folder.parents) if each.is_dir())
    try:
        with tempfile.TemporaryFile(dir=there):
            return shutil.disk_usage(there).free
    except OSError:
        return None
