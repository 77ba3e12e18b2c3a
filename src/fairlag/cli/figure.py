"""`fairlag figure`: figures for papers, from runs that were made."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fairlag.analyse.audit import Progress, StrategyAudit
from fairlag.analyse.audit import audit as audited
from fairlag.analyse.compare import repeated
from fairlag.analyse.evidence import experiment_of
from fairlag.cli.audit import trials_progress
from fairlag.cli.results import planned_runs
from fairlag.cli.terminal import Workers, at_least_one, check_file, say
from fairlag.errors import InputError
from fairlag.lab.run import Run
from fairlag.lab.simulate import cores
from fairlag.report.figures import (
    accuracy_figure,
    check_format,
    check_size,
    incentives_figure,
    influence_figure,
    staleness_figure,
    timeline_figure,
)
from fairlag.report.figures.identity import check_panels, strategy_looks
from fairlag.report.words import labels_of

_OVER_RUNS = {"accuracy": accuracy_figure, "influence": influence_figure, "staleness": staleness_figure}
KINDS = (*_OVER_RUNS, "timeline", "incentives")


def figure(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Runs, or folders of runs.")],
    kind: Annotated[str, typer.Option(metavar="KIND", help=f"What to draw: {', '.join(KINDS)}.")],
    file: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to draw it: .png, .pdf or .svg.")],
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="single: a column of 3.4 inches; double: both, 7 inches.")
    ] = "double",
    begin: Annotated[
        float | None, typer.Option("--from", metavar="TIME", help="Where a timeline begins, in virtual time.")
    ] = None,
    until: Annotated[float | None, typer.Option(metavar="TIME", help="Where a timeline ends, in virtual time.")] = None,
    workers: Workers = None,
) -> None:
    """A figure for a paper: accuracy, influence, staleness, a timeline of tasks, or what throttling would gain."""
    _check(kind, size, begin, until)
    check_file("--out", file)
    check_format(file)
    workers = cores() if workers is None else at_least_one("--workers", workers)
    runs = planned_runs(folders)
    if kind == "timeline":
        timeline_figure(runs, file, size, begin, until)
    elif kind == "incentives":
        incentives_figure(_audits(runs, workers), file, size, strategy_looks(repeated(runs)))
    else:
        if kind == "accuracy":
            _check_evaluated(runs)
        _OVER_RUNS[kind](runs, file, size)
    say(f"The figure is {file}")


def _check(kind: str, size: str, begin: float | None, until: float | None) -> None:
    if kind not in KINDS:
        raise InputError(f"--kind is {kind!r}, it must be one of {', '.join(KINDS)}")
    check_size(size)
    for option, value in (("--from", begin), ("--until", until)):
        if value is not None and kind != "timeline":
            raise InputError(f"{option} is {value:g}, but only a timeline has a window, not --kind {kind}")


def _check_evaluated(runs: Sequence[Run]) -> None:
    """Refuses a strategy that would be missing in a figure of accuracy."""
    for each in repeated(runs):
        if not any(len(run.curve()) for run in each.runs):
            raise InputError(
                f"{each.label} in {str(each.runs[0].folder)!r} has no accuracy to draw: no version of it was evaluated"
            )


def _audits(runs: Sequence[Run], workers: int) -> list[StrategyAudit]:
    """What throttling would gain under the strategy of each run, from its experiment: nothing is trained."""
    found = repeated(runs)
    check_panels(len(found))
    audits = []
    # What a user's rule prints must not get between the lines of the result.
    with redirect_stdout(sys.stderr), trials_progress() as progress:
        for each, label in zip(found, labels_of(found), strict=True):
            (result,) = audited(
                experiment_of(each.runs[0]),
                seeds=1,
                workers=workers,
                progress=partial(_tell, progress, label),
            )
            audits.append(replace(result, label=label))
    return audits


def _tell(progress: Progress, label: str, part: str, done: int, total: int) -> None:
    progress(f"{label}: {part}", done, total)
