"""Collects the code and data of the experiments of a folder, under names that do not depend on this machine."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fairlag.errors import InputError
from fairlag.lab.bundle import named
from fairlag.lab.bundle.contents import LARGEST, Home, LeftOut
from fairlag.lab.bundle.modules import modules
from fairlag.lab.digest import of_file

_OUTSIDE = "outside"
"""The folder for files that are not in the folder of their experiment."""


class Collected:
    """What experiments of one folder name. Without a folder, as for presets, names are relative to the current one."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self.root = (folder or Path()).resolve()
        self.files: dict[str, Path] = {}
        """By the path in the folder of the bundle."""
        self.names: dict[str, str] = {}
        """New names of files that the experiments name by a path that leaves the folder."""
        self._name = name
        self._roots = list(dict.fromkeys((self.root, Path.cwd())))
        self._left_out: dict[str, LeftOut] = {}
        self._packages: list[str] = []

    @property
    def home(self) -> Home:
        """The entry of `bundle.json`."""
        return Home(self._name, tuple(self._left_out.values()), tuple(dict.fromkeys(self._packages)))

    def take(self, tables: Mapping[str, Any]) -> None:
        """Takes what an experiment names."""
        for path in named.files(tables):
            self._take_file(path)
        for path, digest in (tables.get("files") or {}).items():
            if of_file(self.root / Path(path).expanduser()) != digest:
                raise InputError(f"the file {path!r} has changed since the experiment {tables['name']!r} was run")
        for text in named.perhaps_files(tables):
            if _exists(self.root / Path(text).expanduser()):
                self._take_file(text)
        for use in named.functions(tables):
            self._take_module(use)

    def add(self, file: Path) -> bool:
        """Takes a file that the user's code reads, if it is in the folder."""
        place = file.resolve()
        if not place.is_relative_to(self.root):
            return False
        self._take(place.relative_to(self.root).as_posix(), place)
        return True

    def _take_file(self, path: str) -> None:
        place = self.root / Path(path).expanduser()
        if not place.exists():
            raise InputError(f"the experiment names the file {path!r}, but there is no {str(place)!r}")
        if named.is_inside(path):
            self._take(Path(path).as_posix(), place)
        elif path not in self.names:
            self.names[path] = f"{_OUTSIDE}/{len(self.names) + 1}/{place.name}"
            self._take(self.names[path], place)

    def _take(self, path: str, place: Path) -> None:
        """Takes a file, or all files in a folder, or their checksums if they are large."""
        inside = sorted(each for each in place.rglob("*") if each.is_file()) if place.is_dir() else [place]
        found = {Path(path, each.relative_to(place)).as_posix(): each for each in inside}
        if sum(each.stat().st_size for each in inside) <= LARGEST:
            self.files |= found
            return
        for name, each in found.items():
            self._left_out[name] = LeftOut(name, each.stat().st_size, of_file(each))

    def _take_module(self, use: str) -> None:
        name = use.partition(":")[0]
        if found := modules(name, self._roots):
            self.files |= found
            return
        package = name.partition(".")[0]
        if not package.isidentifier() or find_spec(package) is None:
            places = ", ".join(repr(str(root)) for root in self._roots)
            raise InputError(f"the experiment names {use!r}, but there is no module {name!r} in {places}")
        self._packages.append(package)


def _exists(place: Path) -> bool:
    try:
        return place.is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False


def add_all(homes: Iterable[Collected], files: Sequence[Path]) -> None:
    """Takes files that the users' code reads into every folder that they are in."""
    homes = list(homes)
    for file in files:
        if not file.is_file():
            raise InputError(f"--add is {str(file)!r}, but there is no such file")
        if not any([home.add(file) for home in homes]):
            roots = ", ".join(repr(str(home.root)) for home in homes)
            raise InputError(f"--add is {str(file)!r}, which is in none of the experiments' folders: {roots}")
