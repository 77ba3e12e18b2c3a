"""What came of trials, of all trials of a strategy, and of a sweep; written as JSON, and read again."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from fairlag.errors import ExperimentError
from fairlag.lab import sealed
from fairlag.lab.folder import explained
from fairlag.lab.messages import first_mistake
from fairlag.lab.sweep.objective import Objective

RESULT = "result.json"
FINISHED, FAILED, STOPPED = "finished", "failed", "stopped"

Kind = TypeVar("Kind", "Result", "SweepResult")


class Rank(NamedTuple):
    """The place of a trial: the smallest is best."""

    unfinished: bool
    missing: int
    """How many seeds have no value."""
    loss: float
    number: int
    """The first of equals is best."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a trial."""

    status: str
    reason: str = ""
    """Why it failed."""
    values: dict[int, float | None] = field(default_factory=dict)
    """The objective per finished seed; None if it has no value."""
    steps: dict[int, float | None] = field(default_factory=dict)
    """The objective on the way, after each part of each run."""

    @property
    def value(self) -> float | None:
        """The mean over seeds; None if some seed has no value.

        >>> Result(FINISHED, values={0: 0.5, 1: 0.75}).value, Result(FINISHED, values={0: 0.5, 1: None}).value
        (0.625, None)
        """
        known = self._known
        return fmean(known) if self.status == FINISHED and known and len(known) == len(self.values) else None

    def rank(self, number: int, *, higher: bool) -> Rank:
        """Its place among trials, of which it is the one with this number."""
        mean = fmean(self._known) if self._known else 0.0
        missing = len(self.values) - len(self._known)
        return Rank(self.status != FINISHED, missing, -mean if higher else mean, number)

    @property
    def _known(self) -> list[float]:
        return [value for value in self.values.values() if value is not None]


@dataclass(frozen=True, slots=True)
class Tried:
    """A setting that was tried, the folder of its runs, and what came of it."""

    setting: dict[str, Any]
    folder: str
    result: Result


@dataclass(frozen=True, slots=True)
class Tuned:
    """All trials of a strategy."""

    label: str
    tried: list[Tried]
    best: int | None
    """The number of the best trial; None if none ended well."""

    @classmethod
    def of(cls, label: str, tried: list[Tried], *, higher: bool) -> "Tuned":
        """With the best of them.

        >>> made = [Tried({"lr": lr}, "", Result(FINISHED, values={0: value})) for lr, value in [(1, 0.5), (2, 0.7)]]
        >>> Tuned.of("FedBuff", made, higher=True).best, Tuned.of("FedBuff", made, higher=False).best
        (1, 0)
        """
        best = min((each.result.rank(number, higher=higher) for number, each in enumerate(tried)), default=None)
        return cls(label, tried, None if best is None or best.unfinished else best.number)

    @property
    def winner(self) -> Tried | None:
        """The best trial."""
        return None if self.best is None else self.tried[self.best]


@dataclass(frozen=True, slots=True)
class SweepResult:
    """All trials of a sweep, and what they were judged by."""

    objective: Objective
    seeds: tuple[int, ...]
    """Those of every trial."""
    strategies: list[Tuned]


def keep(folder: Path, found: Result | SweepResult) -> None:
    """Writes what came of a trial, or of all trials of a sweep, into its folder."""
    with explained(folder, "the result", "resume the sweep"):
        sealed.write(folder / RESULT, json.loads(TypeAdapter(type(found)).dump_json(found)))


def kept(folder: Path, kind: type[Kind]) -> Kind | None:
    """What came of a trial, or of a sweep; None if it is not known yet."""
    file = folder / RESULT
    if not file.is_file():
        return None
    try:
        return TypeAdapter(kind).validate_json(json.dumps(sealed.read(file, kind.__dataclass_fields__)))
    except ValidationError as error:
        raise ExperimentError(f"{str(file)!r} is damaged: {first_mistake(error, {})}") from None
    except (OSError, ValueError) as error:
        raise ExperimentError(f"cannot read {str(file)!r}: {error}") from None
