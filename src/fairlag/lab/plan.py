"""A plan of runs: an experiment and its seeds, stored as text next to the runs, so that `resume` needs nothing else."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fairlag.errors import ExperimentError, InputError
from fairlag.lab import sealed
from fairlag.lab.experiment import Experiment, check, parse
from fairlag.lab.folder import EXPERIMENT, PLAN, explained, in_use, is_begun, is_run
from fairlag.lab.serialise import sha256, written
from fairlag.lab.strategies import Use
from fairlag.limits import shown

KEYS = ("seeds", "track", "device", "sweep", "experiment", "folder")
"""The keys of a file with a plan or an experiment."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One run: a strategy, a seed, and a folder."""

    use: Use
    seed: int
    folder: Path
    text: str
    """The experiment with only this strategy and seed, as it is written into the run's directory."""
    sha256: str
    """The digest of that text without the folder, so that it stays the same if an experiment is moved."""


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment: every strategy with every seed, or the single run of a folder."""

    experiment: Experiment
    seeds: tuple[int, ...]
    folder: Path
    single: bool = False
    """Is the folder itself the directory of a single run?"""

    @cached_property
    def runs(self) -> tuple[Planned, ...]:
        """Every run of the plan."""
        return tuple(self._planned(use, seed) for seed in self.seeds for use in self.experiment.strategies)

    def __iter__(self) -> Iterator[Planned]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.seeds) * len(self.experiment.strategies)

    @property
    def saved(self) -> bool:
        """Does its folder hold anything that can be resumed?"""
        return is_begun(self.folder)

    @property
    def home(self) -> Path:
        """The folder for what belongs to all runs; for a single run that is part of a plan, the folder of that plan."""
        return self.folder.parent if self.single and (self.folder.parent / PLAN).is_file() else self.folder

    def check_new(self) -> None:
        """Refuses a folder in use, and labels that would share a folder."""
        folder = self.folder
        if in_use(folder) is not None:
            how = "resume=True" if self.single else f"`fairlag resume {folder}`"
            advice = f"{how} continues it, or choose" if self.saved else "choose"
            other = "`out`" if self.single else "with --out"
            raise InputError(f"the run directory {str(folder)!r} exists: {advice} another {other}")
        names = [each.folder.name for each in self]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"two strategies would share the folder {twice!r}: give them labels that differ more")

    def save(self) -> None:
        """Writes the plan into its folder, which must be new or empty."""
        self.check_new()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot create the run directory {str(self.folder)!r}: {error.strerror}") from None
        if not self.single:
            beside: dict[str, object] = {"seeds": self.seeds, "track": self.experiment.track}
            if self.experiment.device is not None:
                beside["device"] = self.experiment.device
            with explained(self.folder, "the plan of the runs", "run it again"):
                sealed.write(self.folder / PLAN, {**beside, **json.loads(written(self.experiment))})

    @classmethod
    def open(cls, folder: Path, *, code: bool = True) -> "Plan":
        """The plan of a folder with runs; without `code`, no module that it names is imported."""
        if (folder / PLAN).is_file():
            tables = read_tables(folder / PLAN)
            return cls(experiment_in(tables, folder / PLAN, code=code), _seeds(tables, folder / PLAN), folder)
        if is_run(folder):
            file, plan = folder / EXPERIMENT, folder.parent / PLAN
            beside = read_tables(plan) if code and plan.is_file() else {}
            experiment = experiment_in({**beside, **read_tables(file)}, file, code=code)
            return cls(experiment, (experiment.seed,), folder, single=True)
        raise InputError(f"there is nothing to resume in {str(folder)!r}: it holds neither a run nor a plan of runs")

    def _planned(self, use: Use, seed: int) -> Planned:
        alone = self.experiment.alone(use, seed=seed)
        place = self.folder if self.single else self.folder / f"{slug(use.label)}-seed{seed}"
        return Planned(use, seed, place, written(alone), sha256(alone))


def planned_labels(folder: Path) -> list[str]:
    """The labels of the strategies that were planned in a folder, in order; empty if no plan can be read."""
    try:
        strategies = sealed.read(folder / PLAN, KEYS)["experiment"]["strategies"]
        return [str(strategy["label"]) for strategy in strategies]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def not_begun(folder: Path) -> list[str]:
    """The names of the runs that were planned in a folder, but are not there; empty if no plan can be read."""
    try:
        seeds = _seeds(read_tables(folder / PLAN), folder / PLAN)
    except ExperimentError:
        return []
    names = [f"{slug(label)}-seed{seed}" for seed in seeds for label in planned_labels(folder)]
    return [name for name in names if not is_run(folder / name)]


def slug(words: str, otherwise: str = "strategy") -> str:
    """Words as the name of a folder, or `otherwise` if nothing is left of them.

    >>> slug("FedBuff (buffer=3)"), slug("../x"), slug("..", "experiment")
    ('fedbuff-buffer-3', 'x', 'experiment')
    """
    return re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-.") or otherwise


def difference(one: str, other: str) -> str:
    """The first difference between two written experiments, in words.

    >>> difference('{"experiment": {"seed": 1}}', '{"experiment": {"seed": 2}}')
    'seed is 1 there and 2 here'
    """
    mine, theirs = (_leaves(json.loads(text)["experiment"]) for text in (one, other))
    for name in mine | theirs:
        if mine.get(name) != theirs.get(name):
            return f"{name} is {mine.get(name)} there and {theirs.get(name)} here"
    return "they are written differently"


def settings_of(planned: Planned) -> dict[str, bool | int | float | str]:
    """Every setting of a run by a dotted name, in the order of its experiment; lists are text.

    >>> from fairlag.lab.experiment import load
    >>> found = settings_of(next(iter(Plan(load("demo"), (3,), Path("runs")))))
    >>> found["seed"], found["clients.slow.count"], found["clients.slow.labels"], found["strategy.buffer"]
    (3, 5, '[0, 1, 2, 3]', 5)
    """
    return flat(json.loads(planned.text)["experiment"])


def flat(tables: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """The same for the tables of an experiment with one strategy, as in the directory of a run."""
    (strategy,) = tables["strategies"]
    clients = {
        table["group"]: {key: value for key, value in table.items() if key != "group"} for table in tables["clients"]
    }
    others = {key: table for key, table in tables.items() if key not in ("strategies", "clients")}
    return dict(_named({**others, "strategy": strategy, "clients": clients}))


def _named(tables: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, bool | int | float | str]]:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _named(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value if isinstance(value, bool | int | float | str) else json.dumps(value)


def _leaves(tables: Any, path: str = "") -> dict[str, Any]:
    if isinstance(tables, Mapping):
        inner = {f"{path}.{key}": value for key, value in tables.items()}
    elif isinstance(tables, list):
        inner = {f"{path}[{place}]": value for place, value in enumerate(tables, 1)}
    else:
        return {path.removeprefix("."): tables}
    return {name: leaf for key, value in inner.items() for name, leaf in _leaves(value, key).items()}


def read_tables(file: Path) -> dict[str, Any]:
    """The contents of a file that holds an experiment, such as a plan."""
    try:
        tables = sealed.read(file, KEYS)
    except (OSError, ValueError) as error:
        raise ExperimentError(f"cannot read {str(file)!r}: {error}") from None
    if not isinstance(tables.get("experiment"), dict):
        raise ExperimentError(f"{str(file)!r} does not hold an experiment")
    return tables


def _seeds(tables: dict[str, Any], file: Path) -> tuple[int, ...]:
    seeds = tables.get("seeds")
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise ExperimentError(f"the seeds in {str(file)!r} are {shown(seeds)}, they must be a list of whole numbers")
    return tuple(seeds)


def experiment_in(tables: dict[str, Any], file: Path, *, code: bool) -> Experiment:
    """The experiment that these contents of a file hold."""
    place = tables.get("folder")
    folder = Path(place) if isinstance(place, str) else None
    if folder is not None and not folder.is_dir():
        folder = file.parent  # it was moved, perhaps with its modules and data
    try:
        experiment = check(tables["experiment"])
    except InputError as error:
        raise ExperimentError(f"{file}: {error}") from None
    made = experiment.data, experiment.model, experiment.task
    given = (*experiment.strategies, *(each for each in made if each is not None))
    if own := next((each.use for each in given if str(each.use).startswith("<")), None):
        raise InputError(
            f"{own} was given as a Python object: resume it in Python with fairlag.simulate(…, resume=True)"
        )
    try:
        beside = {"track": tables.get("track", ()), "device": tables.get("device"), "sweep": tables.get("sweep")}
        return parse({**tables["experiment"], **beside}, folder, code=code)
    except InputError as error:
        raise ExperimentError(f"{file}: {error}") from None
