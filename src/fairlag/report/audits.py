"""What cheating would gain under the strategies of runs, for figures and pages."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from fairlag.analyse.audit import StrategyAudit
from fairlag.analyse.audit import audit as audited
from fairlag.analyse.compare import Repeated
from fairlag.analyse.evidence import experiment_of
from fairlag.analyse.fit.fleet import fit_fleet
from fairlag.analyse.progress import Progress
from fairlag.analyse.throttling import SERVER_UPDATES, Need
from fairlag.errors import InputError, UnreadableError
from fairlag.imported import is_code
from fairlag.lab.experiment import Experiment
from fairlag.report.labels import labels_of


class Throttled(NamedTuple):
    """Audits of strategies, with notes."""

    audits: list[StrategyAudit]
    """One per strategy, except those whose fleet is not known."""
    notes: list[str]


def throttled(found: Sequence[Repeated], workers: int, progress: Progress | None = None) -> Throttled:
    """Audits of the experiment of each strategy's first run; a real fleet is fitted first. Nothing is trained."""
    audits, notes = [], []
    for each, label in zip(found, labels_of(found), strict=True):
        experiment, note = _fleet_of(each, label)
        notes += [note] if note else []
        if experiment is not None:
            if Need.of(experiment.fleet()).least > SERVER_UPDATES:  # then the audit only says that it was not tried
                experiment = experiment.checked(aggregations=1, until_time=None)
            told = None if progress is None else partial(_tell, progress, label)
            (result,) = audited(experiment, seeds=1, workers=workers, incentive_updates=SERVER_UPDATES, progress=told)
            audits.append(replace(result, label=label))
    return Throttled(audits, notes)


def _fleet_of(strategy: Repeated, label: str) -> tuple[Experiment | None, str]:
    """The experiment to simulate; or None and why, if the strategy is code or it or its real fleet is unknown."""
    try:
        experiment = experiment_of(strategy.runs[0])
    except UnreadableError:  # then the run itself is damaged and is left out
        raise
    except InputError as error:
        return None, f"{label} was not simulated: {error}."
    (use,) = experiment.strategies
    if is_code(use.use):
        return None, (
            f"{label} was not simulated: it is code ({use.use}), and looking at runs does not run code. "
            "`fairlag audit` with its experiment file simulates it."
        )
    if not any(run.deployed for run in strategy.runs):
        return experiment, ""
    try:
        fitted = fit_fleet(strategy.runs, split=False)
    except InputError as error:
        return None, f"{label} was not simulated, because its fleet cannot be fitted: {error}."
    if not fitted.enough or [each.name for each in fitted.groups] != strategy.runs[0].groups:
        return None, f"{label} was not simulated: some group has too few recorded durations to fit its fleet."
    seen = sum(each.updates for each in fitted.groups)
    return fitted.experiment, f"{label} was simulated on a fleet fitted to {seen:,} recorded tasks."


def _tell(progress: Progress, label: str, part: str, done: int, total: int) -> None:
    progress(f"{part}: {label}", done, total)
