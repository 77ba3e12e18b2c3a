"""What a sweep found: the best setting of each strategy, how much settings matter to it, and its test."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairlag.errors import InputError
from fairlag.lab.folder import is_run
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.sweep.objective import Objective
from fairlag.lab.sweep.plan import FINAL, is_sweep
from fairlag.lab.sweep.progress import unfinished
from fairlag.lab.sweep.result import FAILED, FINISHED, STOPPED, SweepResult, Tuned, kept


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The trials of a strategy: the best one, and how the others spread below it."""

    label: str
    setting: dict[str, Any]
    """The best setting; empty if no trial ended well."""
    values: tuple[float, ...]
    """The objective of each trial that has one, best first."""
    trials: int
    made: int
    """How many of them are different experiments."""
    failed: int
    """How many diverged or could not continue, with at least one seed."""
    stopped: int
    """How many ended early, because others were better."""
    missed: int
    """How many ended well, but have no value with some seed: they did not reach the target of the sweep."""
    tested: tuple[float, ...]
    """The objective of the best setting on the test examples, per finished fresh seed that has one."""
    tests: int
    """How many fresh seeds have ended, with or without a value."""

    @classmethod
    def of(cls, tuned: Tuned, tested: Sequence[float | None], *, higher: bool) -> "Sensitivity":
        """From all trials of a strategy, and the values of its tests, None for one without a value."""
        values = (value for each in tuned.tried if (value := each.result.value) is not None)
        return cls(
            label=tuned.label,
            setting={} if tuned.winner is None else tuned.winner.setting,
            values=tuple(sorted(values, reverse=higher)),
            trials=len(tuned.tried),
            made=len({each.folder for each in tuned.tried}),
            failed=sum(each.result.status == FAILED for each in tuned.tried),
            stopped=sum(each.result.status == STOPPED for each in tuned.tried),
            missed=sum(each.result.status == FINISHED and each.result.value is None for each in tuned.tried),
            tested=tuple(value for value in tested if value is not None),
            tests=len(tested),
        )

    @property
    def best(self) -> float | None:
        """The objective of the best trial, on validation examples."""
        return self.values[0] if self.values else None

    @property
    def worst(self) -> float | None:
        """That of the worst trial that ended."""
        return self.values[-1] if self.values else None

    def quantile(self, part: float) -> float | None:
        """The value that this part of the trials is no better than: 0.5 is the median."""
        if not self.values:
            return None
        return float(np.quantile(self.values, part))

    def as_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        quartiles = {"lower_quartile": self.quantile(0.25), "median": self.quantile(0.5)}
        return {**asdict(self), "best": self.best, **quartiles, "upper_quartile": self.quantile(0.75)}


@dataclass(frozen=True, slots=True)
class Swept:
    """A finished sweep: what came of its trials, per strategy and in the order of the file."""

    folder: Path
    objective: Objective
    seeds: tuple[int, ...]
    rows: tuple[Sensitivity, ...]
    tuned: tuple[Tuned, ...] = ()
    """Every trial of every strategy, in the same order."""
    unfinished: str = ""
    """How far its tests are; empty if all have ended."""

    @classmethod
    def of(cls, folder: Path) -> "Swept":
        """The sweep in a folder; refuses a folder without one, or with an unfinished one."""
        found = result_in(folder)
        ended = [
            (run.label, found.objective.of(run) if run.status == "finished" else None)
            for run in final_runs(folder)
            if run.status in ("finished", "failed")
        ]
        rows = (
            Sensitivity.of(
                each, [value for label, value in ended if label == each.label], higher=found.objective.higher
            )
            for each in found.strategies
        )
        return cls(folder, found.objective, found.seeds, tuple(rows), tuple(found.strategies), unfinished(folder) or "")

    @property
    def best_first(self) -> list[Sensitivity]:
        """The strategies by their best trial; those without one last."""
        sign = -1 if self.objective.higher else 1
        return sorted(self.rows, key=lambda row: (row.best is None, sign * (row.best or 0.0)))

    def as_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        rows = [row.as_json() for row in self.rows]
        return {"folder": str(self.folder), "metric": self.objective.words, "seeds": self.seeds, "strategies": rows}

    def holds(self, run: Run) -> bool:
        """Is the run one of its tests?"""
        return run.folder.resolve().is_relative_to(self.folder.resolve())


def ranking_of(sweeps: Sequence[Swept], runs: Sequence[Run]) -> tuple[str | None, tuple[float, ...]]:
    """What the runs are ranked by, and the target: the metric of their sweeps, if all are tests of sweeps by the same.

    Otherwise None, which is the leading metric, and no target.
    """
    objectives = {each.objective for each in sweeps}
    if len(objectives) == 1 and all(any(each.holds(run) for each in sweeps) for run in runs):
        return objectives.pop().ranking
    return None, ()


def result_in(folder: Path) -> SweepResult:
    """What came of the trials of a sweep; refuses a folder without a sweep, or with an unfinished one."""
    if not is_sweep(folder):
        raise InputError(f"there is no sweep in {str(folder)!r}")
    found = kept(folder, SweepResult)
    if found is None:
        raise InputError(unfinished(folder) or f"there are no results in {str(folder)!r}")
    return found


def final_runs(folder: Path) -> list[Run]:
    """The tests of the best settings that were begun."""
    there = folder / FINAL
    if not there.is_dir():
        return []
    return [Run(planned.folder) for planned in Plan.open(there, code=False) if is_run(planned.folder)]
