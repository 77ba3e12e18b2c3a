"""What is where in a bundle, and `bundle.json`, which lists its runs and what it lacks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fairlag.errors import InputError
from fairlag.lab.bundle.named import is_inside
from fairlag.lab.messages import first_mistake
from fairlag.lab.run import Run
from fairlag.limits import json_of, text_of

LIST, README = "bundle.json", "README.txt"
RUNS, FILES, TABLES, SWEEPS = "runs", "files", "tables", "sweeps"
"""The folders in a bundle."""
FORMAT = 1
"""Increases when an older fairlag could not verify a new bundle."""
LARGEST = 25_000_000
"""The most bytes of a data file, or of a folder with data, that a bundle includes."""

_VERSIONS = ("fairlag", "numpy", "torch", "numba", "device", "device_name")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that is too large for the bundle."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of one experiment or more: the user's own code and data."""

    folder: str
    left_out: tuple[LeftOut, ...] = ()
    packages: tuple[str, ...] = ()
    """The modules that it needs from installed packages, which are not in the bundle."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A run in a bundle: where it is, and what a reader wants to know first."""

    folder: str
    home: str
    experiment: str
    label: str
    seed: int
    status: str
    reason: str
    versions: int
    data: str | None
    """The fingerprint of the data that it was trained on."""
    model_sha256: str | None
    made_with: dict[str, str]
    """The versions of fairlag and of the libraries, and the system and processor."""

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.label}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Contents:
    """All of `bundle.json`."""

    format: int
    runs: tuple[Frozen, ...]
    homes: tuple[Home, ...]
    not_begun: tuple[str, ...] = ()
    """The runs that were planned, but never begun."""

    def written(self) -> bytes:
        """As JSON."""
        return (json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n").encode()

    @classmethod
    def read(cls, file: Path, members: Sequence[str]) -> "Contents":
        """Those of an unpacked bundle, which names only its own members."""
        try:
            tables = json_of(text_of(file))
        except (OSError, ValueError) as error:
            raise InputError(f"the bundle's {LIST} cannot be read: {error}") from None
        if not isinstance(tables, dict) or tables.get("format") != FORMAT:
            found = tables.get("format") if isinstance(tables, dict) else None
            raise InputError(f"the bundle has format {found!r}, this fairlag verifies format {FORMAT}")
        try:
            found = TypeAdapter(cls).validate_python(tables)
        except ValidationError as error:
            raise InputError(f"the bundle's {LIST} is wrong: {first_mistake(error, {})}") from None
        folders = {"/".join(name.split("/")[:-1]) for name in members}
        homes = {home.folder for home in found.homes}
        for run in found.runs:
            if run.folder not in folders or run.home not in homes:
                raise InputError(f"the bundle's {LIST} names {run.folder!r} with {run.home!r}, which are not in it")
        if wrong := next((path for path in _paths(found) if not is_inside(path)), None):
            raise InputError(f"the bundle's {LIST} names {wrong!r}, which is outside of it")
        return found


def _paths(contents: Contents) -> list[str]:
    return [path for home in contents.homes for path in (home.folder, *(each.path for each in home.left_out))]


def described(run: Run, folder: str, home: str, versions: int) -> Frozen:
    """The entry of a run."""
    meta = run.meta
    return Frozen(
        folder=folder,
        home=home,
        experiment=run.experiment,
        label=run.label,
        seed=run.seed,
        status=str(meta["status"]),
        reason=str(meta["reason"] or ""),
        versions=versions,
        data=meta.get("data"),
        model_sha256=meta.get("model_sha256"),
        made_with=made_with(meta),
    )


def made_with(meta: Mapping[str, Any]) -> dict[str, str]:
    """The versions that a run noted; an older fairlag noted fewer."""
    found = {key: meta[key] for key in _VERSIONS if isinstance(meta.get(key), str)}
    return {**found, **(meta.get("environment") or {})}
