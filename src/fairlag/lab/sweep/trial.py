"""One trial: the runs of one setting, one per seed, in a folder of their own; and what came of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairlag.errors import FairlagError, Interrupted, StoreError, WorkerError
from fairlag.lab.events import Evaluated, Event
from fairlag.lab.folder import is_run
from fairlag.lab.plan import Plan, Planned
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute
from fairlag.lab.sweep.objective import Objective
from fairlag.lab.sweep.result import FAILED, FINISHED, STOPPED, Result, keep, kept
from fairlag.lab.sweep.space import Setting
from fairlag.text.scored import COLUMNS

PARTS = 4
"""In how many equal parts a run is judged on the way."""

Hopeless = Callable[[Mapping[int, float | None]], bool]
"""Should a trial with these values on the way end early?"""


class Where(NamedTuple):
    """What computes the tasks of a run."""

    workers: int | None = 1
    executor: str | None = "serial"
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting of a strategy, and the runs that try it."""

    setting: Setting
    plan: Plan
    hopeless: Hopeless | None = None

    @property
    def name(self) -> str:
        """The name of its folder, which is the same for the same experiment."""
        return self.plan.folder.name


def made(task: tuple[Objective, Where], trial: Trial) -> Result:
    """Makes a trial, or continues it, or reads its result if there is one."""
    result = kept(trial.plan.folder, Result)
    if result is None:
        result = _made(*task, trial)
        keep(trial.plan.folder, result)
    return result


def _made(objective: Objective, where: Where, trial: Trial) -> Result:
    plan, watch = trial.plan, _Judge(objective, trial)
    try:
        watch.catch_up()
        execute(plan, new=not plan.saved, **where._asdict(), watch=watch)
    except (StoreError, WorkerError):
        raise
    except Interrupted:
        if not watch.stopped:
            raise
    except FairlagError:
        if not all(is_run(planned.folder) for planned in plan):  # then it is no result, but a mistake
            raise
    steps = dict(sorted(watch.steps.items()))
    if watch.stopped:
        return Result(STOPPED, steps=steps)
    runs = [Run(planned.folder) for planned in plan]
    failed = [run for run in runs if run.status != "finished"]
    values = {run.seed: objective.of(run) for run in runs if run not in failed}
    if failed:
        reasons = (f"seed {run.seed}: {run.meta['reason']}" for run in failed)
        return Result(FAILED, "; ".join(reasons), values, steps)
    return Result(FINISHED, values=values, steps=steps)


class _Judge:
    """Notes the objective on the way, and ends a trial without hope."""

    def __init__(self, objective: Objective, trial: Trial) -> None:
        self._objective, self._hopeless, self._plan = objective, trial.hopeless, trial.plan
        self._reached: dict[int, float] = {}
        """Per seed: when it reached the target."""
        self.steps: dict[int, float | None] = {}
        self.stopped = False

    def __call__(self, planned: Planned, event: Event) -> None:
        """Takes an event of a run."""
        if self._hopeless is not None and isinstance(event, Evaluated):
            self._take(planned.seed, event, self._hopeless)

    def catch_up(self) -> None:
        """Takes what runs that are continued have evaluated already."""
        for planned in self._plan:
            if is_run(planned.folder):
                for event in _evaluated(Run(planned.folder)):
                    self(planned, event)

    def _take(self, seed: int, event: Evaluated, hopeless: Hopeless) -> None:
        """Judges by the first evaluation after each part of the run but the last, because that is its end."""
        value = self._objective.now(event.time, event.scores)
        if self._objective.by == "time":
            value = self._reached.get(seed) if value is None else self._reached.setdefault(seed, value)
        part = int(PARTS * self._share(event))
        step = PARTS * self._plan.seeds.index(seed) + part
        if not 0 < part < PARTS or step in self.steps:
            return
        self.steps[step] = value
        if hopeless(self.steps):
            self.stopped = True
            raise Interrupted("stopped: other settings are better")

    def _share(self, event: Evaluated) -> float:
        """The part of the run that is done."""
        aggregations, until = self._plan.experiment.aggregations, self._plan.experiment.until_time
        return max(event.version / aggregations if aggregations else 0.0, event.time / until if until else 0.0)


def _evaluated(run: Run) -> Iterator[Evaluated]:
    """The evaluations of the curve that a run has stored."""
    rows = run.evaluated("all", "group")
    sampled = rows[~rows["whole"]]
    for _, each in (sampled if len(sampled) else rows).groupby("version"):
        scores = {str(row["name"]): _numbers(row) for row in each.to_dict("records")}
        yield Evaluated(int(each["version"].iloc[0]), float(each["time"].iloc[0]), scores)


def _numbers(row: Mapping[Any, Any]) -> Mapping[str, float]:
    return {str(name): float(value) for name, value in row.items() if name not in COLUMNS}
