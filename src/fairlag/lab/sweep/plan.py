"""The plan of a sweep, stored beside its trials so that `resume` needs nothing else."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fairlag.errors import InputError
from fairlag.lab import sealed
from fairlag.lab.experiment import Experiment
from fairlag.lab.folder import explained, in_use
from fairlag.lab.plan import Plan, experiment_in, read_tables
from fairlag.lab.resources import Resources
from fairlag.lab.serialise import as_tables, sha256, written
from fairlag.lab.sweep.objective import Objective
from fairlag.lab.sweep.result import SweepResult
from fairlag.lab.sweep.space import Setting, Space, spaces
from fairlag.lab.sweep.table import Sweep
from fairlag.lab.sweep.trial import Hopeless, Trial

PLAN = "sweep.json"
TRIALS, FINAL = "trials", "final"


def is_sweep(folder: Path) -> bool:
    """Does the folder hold a sweep?"""
    return (folder / PLAN).is_file()


@dataclass(frozen=True)
class SweepPlan:
    """An experiment with a [sweep] table, and the folder of its trials and of the tests of the best settings."""

    experiment: Experiment
    folder: Path

    def __post_init__(self) -> None:
        if self.experiment.data is None:
            raise InputError(f"the experiment {self.experiment.name!r} has no [data]: a sweep needs a model to train")
        if self.experiment.clock is not None:
            raise InputError("a sweep runs in virtual time, but the clock is 'wall': remove it, or --set clock=virtual")
        if (part := self.experiment.data.validation) is not None:
            raise InputError(
                f"validation in [data] is {part:g}, but a sweep draws validation examples itself, and tests the best "
                f"settings on test examples: remove it, or write validation = {part:g} in [sweep] instead"
            )

    @property
    def sweep(self) -> Sweep:
        """Its table."""
        return self.experiment.sweep or Sweep()

    @cached_property
    def spaces(self) -> list[Space]:
        """What is tried with each strategy."""
        return spaces(self.plain, self.sweep.over)

    @cached_property
    def plain(self) -> Experiment:
        """The experiment without what only sweeps and attacks read. All seeds have the same test examples."""
        data = self.experiment.data
        assert data is not None  # checked above
        if data.holdout != "official" and data.holdout_seed is None:
            data = data.model_copy(update={"holdout_seed": self.experiment.seed})
        return self.experiment.checked(data=data, sweep=None, attacks=None, defences=None, track=())

    @cached_property
    def tuning(self) -> Experiment:
        """The experiment of the trials, which are judged on validation examples."""
        data = self.plain.data
        assert data is not None
        return self.plain.checked(data=data.model_copy(update={"validation": self.sweep.validation}))

    @cached_property
    def objective(self) -> Objective:
        """What is best; refuses a metric that the experiment does not have."""
        resources = Resources(self.tuning)
        objective = Objective.read(self.sweep.metric, [each.scored for each in resources.task.metrics])
        scoring = resources.setting(self.experiment.seed).scoring
        if objective.by == "group" and (scoring is None or not scoring.held):
            raise InputError("the metric of a sweep is 'group', but groups have no scores of their own in this task")
        return objective

    @property
    def seeds(self) -> tuple[int, ...]:
        """Those of every trial."""
        return tuple(range(self.experiment.seed, self.experiment.seed + self.sweep.seeds))

    @property
    def fresh_seeds(self) -> tuple[int, ...]:
        """Those of the tests of the best settings."""
        first = self.seeds[-1] + 1
        return tuple(range(first, first + self.sweep.tests))

    def trial(self, space: Space, setting: Setting, hopeless: Hopeless | None = None) -> Trial:
        """The trial of a setting. Its folder is named by the digest of its experiment."""
        alone = self.tuning.alone(space.tuned(setting))
        return Trial(setting, Plan(alone, self.seeds, self.folder / TRIALS / sha256(alone)[:16]), hopeless)

    def final(self, found: SweepResult) -> Plan:
        """The tests of the best settings: trained on all training examples, with seeds that no trial had."""
        return Plan(self.best(found), self.fresh_seeds, self.folder / FINAL)

    def best(self, found: SweepResult) -> Experiment:
        """The experiment with the best setting of each strategy that has one, and the first of the fresh seeds."""
        uses = tuple(
            Space(use, {}).tuned(tuned.winner.setting, use.label)
            for use, tuned in zip(self.plain.strategies, found.strategies, strict=True)
            if tuned.winner is not None
        )
        if not uses:
            raise InputError(f"no trial ended well; the first one: {found.strategies[0].tried[0].result.reason}")
        return self.plain.checked(strategies=uses, seed=self.fresh_seeds[0])

    def save(self) -> None:
        """Writes the plan into its folder, which must be new or empty."""
        if in_use(self.folder) is not None:
            advice = f"`fairlag resume {self.folder}` continues it, or choose" if is_sweep(self.folder) else "choose"
            raise InputError(f"the directory {str(self.folder)!r} exists: {advice} another with --out")
        beside: dict[str, object] = {"sweep": as_tables(self.experiment).get("sweep", {})}
        if self.experiment.device:
            beside["device"] = self.experiment.device
        with explained(self.folder, "the plan of the sweep", "run it again"):
            self.folder.mkdir(parents=True, exist_ok=True)
            sealed.write(self.folder / PLAN, {**beside, **json.loads(written(self.experiment))})

    @classmethod
    def open(cls, folder: Path, *, code: bool = True) -> "SweepPlan":
        """The plan of a folder; without `code`, no module that it names is imported."""
        return cls(experiment_in(read_tables(folder / PLAN), folder / PLAN, code=code), folder)
