"""From runs to a fleet file: what a fleet did, as an experiment that the simulator can run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isinf
from pathlib import Path
from typing import Any

from fairlag.analyse.fit.durations import BEST, FEWEST, check_way
from fairlag.analyse.fit.fitted import GroupFit, Ways, fit_group
from fairlag.analyse.fit.observed import Observed, observed
from fairlag.analyse.outcomes import outcomes
from fairlag.core.types import Outcome
from fairlag.errors import InputError
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.run import Run
from fairlag.lab.runs import Runs, given
from fairlag.lab.serialise import toml

_SUFFIX = "-fitted"


@dataclass(frozen=True, slots=True)
class FleetFit:
    """A fitted fleet, and how well it agrees with the runs."""

    experiment: Experiment
    """The experiment of the runs, with the fitted fleet."""
    groups: tuple[GroupFit, ...]
    """One per client table of the experiment."""
    runs: tuple[Path, ...]
    seconds: float
    """The total length of the runs."""
    remarks: tuple[str, ...]

    @property
    def text(self) -> str:
        """The experiment as a file, with comments on what was observed above each group."""
        where = ", ".join(str(folder) for folder in self.runs[:3])
        more = f" and {len(self.runs) - 3} more" if len(self.runs) > 3 else ""
        tasks = sum(each.tasks for each in self.groups)
        head = [
            f"The fleet as observed in {where}{more}: {tasks:,} tasks over {self.seconds:,.6g} s, fitted by "
            "`fairlag fit-fleet`.",
            *self.remarks,
        ]
        return toml(self.experiment, head, {each.name: each.words for each in self.groups})

    @property
    def enough(self) -> bool:
        """Does every group have enough observed durations?"""
        return all(each.seen is not None and each.counted >= FEWEST for each in self.groups)

    def as_json(self) -> dict[str, Any]:
        """All fields, as `fairlag fit-fleet --json` prints them."""
        return {
            "experiment": self.experiment.name,
            "runs": [str(folder) for folder in self.runs],
            "seconds": self.seconds,
            "groups": [each.as_json() for each in self.groups],
            "remarks": list(self.remarks),
        }


def fit_fleet(runs: Runs, how: str = BEST, *, split: bool = True, until: float = inf) -> FleetFit:
    """Fits the fleet of runs to what they observed, and returns an experiment with it for "what if" questions.

    `runs` share a fleet, and their tasks are pooled. `how` chooses the delays: "best" is the best family by likelihood,
    or the observed durations if no family fits well; "empirical" always uses the observed durations; the name of a
    family uses that family. With `split`, a group whose clients clearly differ becomes several. With `until`, only what
    happened before that time counts, so that the rest of a run can show how well the fleet is described.

    >>> from tempfile import TemporaryDirectory
    >>> from fairlag import simulate
    >>> clients = [{"group": "all", "count": 9, "delay": "uniform(1, 2)"}]
    >>> strategies = [{"use": "fedbuff", "buffer": 3, "concurrency": 5}]
    >>> tables = {"name": "nine", "aggregations": 100, "clients": clients, "strategies": strategies}
    >>> with TemporaryDirectory() as folder:
    ...     found = fit_fleet(simulate(tables, out=Path(folder, "run")))
    >>> found.experiment.clients[0].delay
    'uniform(1.0001, 2.0032)'
    """
    check_way(how)
    if not until > 0:
        raise InputError(f"until is {until}, it must be a number of seconds above 0")
    chosen = given(runs)
    seen = observed(chosen, until)
    if not len(seen.tasks.came):
        where = ", ".join(repr(str(run.folder)) for run in chosen[:3])
        ended = f"{len(seen.tasks):,} tasks ended, but no update arrived" if len(seen.tasks) else "no task has ended"
        raise InputError(f"there is nothing to fit in {where}: {ended}")
    tables, remarks = _base(chosen)
    ways = Ways(how, split, any(run.deployed for run in chosen), any(map(_queues, chosen)), _steps(tables))
    known = {table["group"]: table for table in tables["clients"]}
    groups = [each for name in seen.groups for each in fit_group(known.get(name, {"group": name}), seen, ways)]
    experiment = parse(_fitted(tables, groups), _home(chosen[0]), code=False)
    return FleetFit(
        experiment=experiment,
        groups=tuple(groups),
        runs=tuple(run.folder for run in chosen),
        seconds=sum(seen.ends),
        remarks=(*remarks, *(_losses(chosen) if isinf(until) else ()), *_unseen(seen, until)),
    )


def _base(runs: Sequence[Run]) -> tuple[dict[str, Any], list[str]]:
    """The tables that the runs share, with all their strategies and the first seed, and remarks on what is left out."""
    tables = dict(runs[0].settings)
    strategies = {each["label"]: each for run in runs for each in run.settings["strategies"]}
    own = [name for name, each in strategies.items() if _is_object(each)]
    tables["strategies"] = [each for name, each in strategies.items() if name not in own]
    remarks = [f"The strategy {name} was given as a Python object and is left out." for name in own]
    if not tables["strategies"]:
        raise InputError(
            f"the strategy {own[0]} of the run in {str(runs[0].folder)!r} was given as a Python object, "
            "which a file cannot name: give it as a name of the zoo, or as module:function"
        )
    if "data" in tables and (_is_object(tables["data"]) or _is_object(tables["model"])):
        del tables["data"], tables["model"]
        remarks.append(
            "Data or model were given as Python objects and are left out: this file can be audited, but not trained."
        )
    return tables, remarks


def _is_object(table: dict[str, Any]) -> bool:
    return str(table.get("use")).startswith("<")


def _home(run: Run) -> Path:
    """The folder in which modules and files are searched; the run's own folder if it no longer exists."""
    home = run.home
    return home if home is not None and home.is_dir() else run.folder


def _queues(run: Run) -> bool:
    """Do idle clients wait to be picked? If not recorded, assumes so: their waits count as no absence, and are near 0
    if they do not."""
    return bool(run.meta.get("queues", True))


def _steps(tables: dict[str, Any]) -> int | None:
    """The steps of a task unless a group or strategy sets them; None if local training is set in epochs."""
    local = tables.get("local", {})
    return None if local.get("epochs") else int(local.get("steps") or 1)


def _fitted(tables: dict[str, Any], groups: Sequence[GroupFit]) -> dict[str, Any]:
    clients = [each.table for each in groups]
    lines = any(key in table for table in clients for key in ("upload", "download"))
    # A fitted fleet is simulated in virtual time, whatever the clock of its runs was.
    left_out = ("clock", "speed") if lines else ("clock", "speed", "model_bytes")
    others = {key: value for key, value in tables.items() if key not in left_out}
    return {**others, "name": tables["name"].removesuffix(_SUFFIX) + _SUFFIX, "clients": clients}


def _losses(runs: Sequence[Run]) -> list[str]:
    found = outcomes(runs)
    words = []
    for group in found.groups:
        lost = {end.reason: many for end, many in found.of(group).items() if end.outcome == Outcome.LOST}
        if lost:
            ended = sum(found.of(group).values())
            reasons = ", ".join(f"{reason}: {many:,}" for reason, many in sorted(lost.items(), key=lambda one: -one[1]))
            words.append(f"{group}: {sum(lost.values()):,} of {ended:,} tasks were lost ({reasons}).")
    return words


def _unseen(seen: Observed, until: float) -> Iterator[str]:
    if until in seen.ends:
        yield f"Only the tasks that ended in the first {until:g} s are used."
        return
    if seen.repeated:
        yield f"Runs with the same seed draw the same durations: {seen.repeated:,} repeated tasks are left out."
    if seen.running is None:
        yield "The number of tasks that were running at the end is not known, because a run has not finished."
    elif seen.running:
        yield f"{seen.running:,} tasks were running at the end: their durations were not observed."
