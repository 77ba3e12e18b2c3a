"""`fairlag freeze`: puts runs, their experiments, code, data and tables into one zip file."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fairlag.errors import InputError
from fairlag.lab.bundle import archive, named
from fairlag.lab.bundle.contents import FILES, FORMAT, LIST, README, RUNS, SWEEPS, TABLES, Contents, Frozen, described
from fairlag.lab.bundle.copied import copied, replaced
from fairlag.lab.bundle.home import Collected, add_all
from fairlag.lab.folder import DATABASE, EXPERIMENT
from fairlag.lab.plan import not_begun, read_tables, slug
from fairlag.lab.run import Run
from fairlag.lab.sweep.plan import PLAN
from fairlag.lab.sweep.result import RESULT
from fairlag.lab.verify import verified
from fairlag.limits import text_of

MakeTables = Callable[[list[Run]], Mapping[str, str]]
"""Makes the texts of the comparison's tables, by the names of their files."""

_README = """\
This bundle was written by `fairlag freeze`. To repeat the beginning of one run per strategy, and compare every number:

    pip install fairlag=={version}
    fairlag verify BUNDLE.zip

`fairlag verify BUNDLE.zip --whole` repeats every run to its end. Verifying runs the Python code in files/, if there is
any; --no-code refuses to.

bundle.json      the list of runs: seeds, versions, checksums of data and final models; and files that are missing
tables/          the comparison of the strategies
runs/            per run, its experiment and a SQLite database with every evaluation, aggregation and update
files/           the code and data files that the experiments name
sweeps/          what was tried to tune the strategies, if they were tuned
SHA256SUMS       checksums of all these files; `sha256sum -c SHA256SUMS` checks them
"""


@dataclass(frozen=True)
class Given:
    """What to freeze: the folders of runs, and of the sweeps that tuned them."""

    runs: Sequence[Path]
    sweeps: Sequence[Path] = ()
    plans: Sequence[Path] = ()
    """The folders of plans that were given as a whole: what they planned must be there."""


def freeze(
    given: Given, file: Path, tables: MakeTables, *, add: Sequence[Path] = (), unfinished: bool = False
) -> Contents:
    """Writes the bundle of these runs; the same runs and files give the same bytes.

    Damaged runs are refused, and so are those that are not finished or not begun, unless `unfinished` allows them.
    Failed runs are results, and are included.
    """
    missing = [f"{folder.resolve().name}/{name}" for folder in given.plans for name in not_begun(folder)]
    runs = _checked(given.runs, missing, unfinished=unfinished)
    settings = [run.settings for run in runs]
    places = [run.home for run in runs]
    homes = _homes(zip(places, settings, strict=True))
    add_all(homes.values(), add)
    with TemporaryDirectory() as temporary:
        members: dict[str, Path | bytes] = {}
        entries: list[Frozen] = []
        copies: list[Run] = []
        for run, wanted, place in zip(runs, settings, places, strict=True):
            home = homes[place]
            name = _free(f"{RUNS}/{slug(run.experiment)}/{slug(run.label)}-seed{run.seed}", [e.folder for e in entries])
            copy = copied(run, named.renamed(wanted, home.names), Path(temporary, name), _hidden(run, home))
            members |= {f"{name}/{each}": copy.folder / each for each in (DATABASE, EXPERIMENT)}
            entries.append(described(copy, name, home.home.folder, copy.version))
            copies.append(copy)
        for home in homes.values():
            members |= {f"{home.home.folder}/{path}": source for path, source in home.files.items()}
        members |= {f"{TABLES}/{name}": text.encode() for name, text in tables(copies).items()}
        members |= _swept(given.sweeps)
        contents = Contents(FORMAT, tuple(entries), tuple(home.home for home in homes.values()), tuple(missing))
        members |= {LIST: contents.written(), README: _README.format(version=_version(entries)).encode()}
        archive.write(file, members)
    return contents


def _checked(folders: Sequence[Path], missing: Sequence[str], *, unfinished: bool) -> list[Run]:
    """The runs in these folders, intact and finished."""
    found = [(folder, *verified(folder)) for folder in folders]
    if damaged := [f"{folder}: {why}" for folder, intact, why in found if not intact]:
        raise InputError(
            f"{len(damaged)} of {len(folders)} runs are damaged: restore them, or name the others. {'; '.join(damaged)}"
        )
    runs = [Run(folder) for folder in folders]
    states = [(run.folder, run.status) for run in runs]
    left = [f"{folder} ({state})" for folder, state in states if state in ("running", "interrupted")]
    left += [f"{name} (not begun)" for name in missing]
    if left and not unfinished:
        raise InputError(
            f"{len(left)} of {len(runs) + len(missing)} runs are not finished: complete them (`fairlag resume`, or the "
            f"app of a deployment), or freeze what there is with --unfinished. {', '.join(left)}"
        )
    return runs


def _homes(experiments: Iterable[tuple[Path | None, Mapping[str, Any]]]) -> dict[Path | None, Collected]:
    """The code and data of these experiments, by their folder."""
    homes: dict[Path | None, Collected] = {}
    taken: list[str] = []
    for place, tables in experiments:
        if place not in homes:
            if place is not None and not place.is_dir() and (named.files(tables) or named.functions(tables)):
                raise InputError(f"the folder {str(place)!r} of the experiment {tables['name']!r} is not there")
            taken.append(_free(f"{FILES}/{slug(str(tables['name']))}", taken))
            homes[place] = Collected(place, taken[-1])
        homes[place].take(tables)
    return homes


def _free(name: str, taken: Sequence[str]) -> str:
    """The name, with a number if it is taken."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found


def _hidden(run: Run, home: Collected) -> dict[str, str]:
    """The paths of this machine that a reason may quote, and what to write instead."""
    return {str(home.root): ".", str(run.folder.resolve()): ".", str(Path.home()): "~", **home.names}


def _swept(sweeps: Sequence[Path]) -> dict[str, bytes]:
    """The plan and the result of each sweep: every trial with its setting and its values."""
    found: dict[str, bytes] = {}
    for folder in sweeps:
        tables = read_tables(folder / PLAN)
        hidden = {str(each): "." for each in (tables.get("folder"), folder.resolve(), folder) if each}
        name = _free(
            f"{SWEEPS}/{slug(str(tables['experiment'].get('name')))}", [each.rpartition("/")[0] for each in found]
        )
        found[f"{name}/{PLAN}"] = json.dumps({**tables, "folder": None}, indent=2).encode()
        if (folder / RESULT).is_file():
            found[f"{name}/{RESULT}"] = (replaced(text_of(folder / RESULT), hidden) or "").encode()
    return found


def _version(entries: Sequence[Frozen]) -> str:
    return max(entry.made_with.get("fairlag", "") for entry in entries)
