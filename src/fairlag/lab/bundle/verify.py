"""`fairlag verify`: checks a bundle, repeats a part of its runs, and says whether the bytes agree."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import NamedTuple

from fairlag.errors import FairlagError, InputError, Interrupted, StoreError, UnreadableError, WorkerError
from fairlag.lab.bundle.agreement import compared
from fairlag.lab.bundle.archive import unpack
from fairlag.lab.bundle.contents import LIST, TABLES, Contents, Frozen, Home, described
from fairlag.lab.bundle.repeat import Unrepeatable, check_repeatable, repeated
from fairlag.lab.digest import of_file
from fairlag.lab.experiment import check
from fairlag.lab.run import Run

LEAST = 20
"""The fewest aggregations to repeat by default."""

SAME, DIFFERENT, UNREPEATABLE, FAILED = "the same bytes", "DIFFERENT", "cannot be repeated", "could not be repeated"


class Verdict(NamedTuple):
    """What came of one run: one of the four outcomes, and a sentence."""

    name: str
    outcome: str
    sentence: str
    same: bool | None
    """None if nothing was compared."""


@dataclass(frozen=True)
class Part:
    """How much to repeat."""

    aggregations: int | None = None
    """Per run; None: at least 20, and up to the first evaluation of a trained model."""
    runs: int | None = None
    """How many of each strategy; None: one, or all if they are repeated as a whole."""
    whole: bool = False

    def chosen(self, runs: Sequence[Frozen]) -> list[Frozen]:
        """The first runs of each strategy, in the order of the bundle."""
        most = self.runs or (len(runs) if self.whole else 1)
        seen: dict[tuple[str, str], list[Frozen]] = {}
        for run in sorted(runs, key=lambda each: each.seed):
            seen.setdefault((run.experiment, run.label), []).append(run)
        wanted = [run for each in seen.values() for run in each[:most]]
        return [run for run in runs if run in wanted]

    def last(self, run: Run) -> int:
        """The aggregation up to which a run is repeated."""
        made = run.version
        if self.whole:
            return made
        experiment = check(run.settings)
        least = LEAST if experiment.data is None else max(LEAST, experiment.evaluate.every)
        return min(self.aggregations or least, made)


class Unpacked(NamedTuple):
    """A bundle that was found intact."""

    folder: Path
    contents: Contents
    runs: dict[str, Run]
    """By the folder in the bundle."""

    @property
    def tables(self) -> dict[str, str]:
        """The tables of the comparison, by the names of their files."""
        found = sorted((self.folder / TABLES).glob("*"))
        return {file.name: file.read_text("utf-8") for file in found}


@contextmanager
def unpacked(file: Path) -> Iterator[Unpacked]:
    """Unpacks a bundle into a temporary folder and checks it, without running anything in it."""
    with TemporaryDirectory(prefix="fairlag-") as temporary:
        folder = Path(temporary).resolve()
        contents = Contents.read(folder / LIST, unpack(file, folder))
        if not contents.runs:
            raise InputError(f"{str(file)!r} holds no runs")
        yield Unpacked(folder, contents, {each.folder: _opened(folder, each, file) for each in contents.runs})


def _opened(folder: Path, entry: Frozen, file: Path) -> Run:
    """A run of a bundle, which is what the list says of it."""
    try:
        run = Run(folder / entry.folder)
        same = described(run, entry.folder, entry.home, run.version) == entry
    except UnreadableError as error:  # its place is in a temporary folder, which a reader never sees
        raise InputError(f"{str(file)!r}: {str(error).replace(f'{folder}{os.sep}', '')}") from None
    if not same:
        raise InputError(f"the bundle's {LIST} says something else of {entry.name} than its record")
    return run


def fetch(bundle: Unpacked, place: Path) -> list[str]:
    """Copies the files that the bundle lacks from a folder, if they are the same; returns those that are not there."""
    missing = []
    for home in bundle.contents.homes:
        for each in home.left_out:
            source = place / each.path
            if not source.is_file():
                missing.append(each.path)
                continue
            if (found := of_file(source)) != each.sha256:
                raise InputError(f"{str(source)!r} has the sha256 {found}, but the runs used {each.sha256}")
            target = bundle.folder / home.folder / each.path
            target.parent.mkdir(parents=True, exist_ok=True)
            copyfile(source, target)
    return missing


def verify(
    bundle: Unpacked, part: Part, *, workers: int | None = None, tell: Callable[[str], None] = lambda _: None
) -> Iterator[Verdict]:
    """Repeats a part of a bundle, run by run; `tell` is told what begins."""
    homes = {home.folder: home for home in bundle.contents.homes}
    for entry in part.chosen(bundle.contents.runs):
        run, home = bundle.runs[entry.folder], homes[entry.home]
        try:
            check_repeatable(run)
            _check_files(bundle.folder, home)
            yield _verdict(bundle, entry, run, part, workers, tell)
        except Unrepeatable as error:
            yield Verdict(entry.name, UNREPEATABLE, str(error), None)
        except (Interrupted, StoreError, WorkerError):
            raise
        except FairlagError as error:
            yield Verdict(entry.name, FAILED, str(error).replace(f"{bundle.folder}{os.sep}", ""), None)


def _verdict(
    bundle: Unpacked, entry: Frozen, run: Run, part: Part, workers: int | None, tell: Callable[[str], None]
) -> Verdict:
    last, made = part.last(run), run.version
    over = run.status in ("finished", "failed")
    whole = over and last == made
    if not made and not over:
        raise Unrepeatable("it was frozen before its first aggregation")
    tell(f"{entry.name}: repeating {_span(last, made, whole=whole)}")
    home = bundle.folder / entry.home
    home.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="fairlag-") as temporary, _modules_of(home):
        here = repeated(run, home, Path(temporary).resolve() / "run", None if whole else last, workers)
        if (data := here.meta.get("data")) != entry.data:
            return Verdict(
                entry.name, DIFFERENT, f"its data has the checksum {entry.data} there and {data} here", False
            )
        rows = min(last, here.version) if run.status == here.status == "failed" else last
        found = compared(run, here, rows, whole=whole)
    if found.difference is not None:
        where = f"from aggregation {found.difference.version:,}" if found.difference.version else "from the beginning"
        return Verdict(entry.name, DIFFERENT, f"{where}: {found.difference.sentence}", False)
    return Verdict(entry.name, SAME, f"{_span(last, made, whole=whole)}, {_evaluated(found.evaluations)}", True)


def _span(last: int, made: int, *, whole: bool) -> str:
    return f"all {made:,} aggregations to its end" if whole else f"aggregations 1 to {last:,} of {made:,}"


def _evaluated(versions: int) -> str:
    return f"{versions:,} version{'' if versions == 1 else 's'} evaluated" if versions else "no evaluations"


def _check_files(folder: Path, home: Home) -> None:
    """Refuses a run whose files are too large for the bundle and were not given."""
    absent = [each.path for each in home.left_out if not (folder / home.folder / each.path).is_file()]
    if absent:
        raise InputError(f"it needs {', '.join(absent)}, not in the bundle because of the size: give --files DIR")


@contextmanager
def _modules_of(home: Path) -> Iterator[None]:
    """Inside, modules are imported from a folder, even if this process has imported others of the same names."""
    own = {file.relative_to(home).parts[0].removesuffix(".py") for file in home.rglob("*.py")}
    own -= {*sys.stdlib_module_names, "fairlag"}
    hidden = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in own}
    for name in hidden:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] in own]:
            del sys.modules[name]
        sys.modules.update(hidden)


def differing(entries: Sequence[Frozen], here: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The versions that are different here: the one there, and the one here. What was not noted is left out."""
    found: dict[str, tuple[str, str]] = {}
    for entry in entries:
        for name, there in entry.made_with.items():
            if name in here and here[name] != there:
                found.setdefault(name, (there, here[name]))
    return found
