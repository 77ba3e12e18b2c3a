"""`fairlag figure`: figures for papers, from runs that were made."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fairlag.cli.audit import trials_progress
from fairlag.cli.results import looked_at
from fairlag.cli.terminal import Costs, Workers, at_least_one, check_file, say
from fairlag.errors import InputError
from fairlag.lab.executors import cores
from fairlag.lab.experiment import load
from fairlag.lab.override import with_costs
from fairlag.report.figures import check_format
from fairlag.report.figures.kinds import KINDS, REWARDS, Kind
from fairlag.report.figures.rewards import rewards_figure


def figure(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...|FILE|PRESET", help="Runs, or folders of runs; for rewards a file or preset."),
    ],
    kind: Annotated[str, typer.Option(metavar="KIND", help=f"What to draw: {', '.join(KINDS)}.")],
    file: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to draw it: .png, .pdf or .svg.")],
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="single: a column of 3.4 inches; double: both, 7 inches.")
    ] = "double",
    begin: Annotated[
        float | None, typer.Option("--from", metavar="TIME", help="Where a timeline begins, in virtual time.")
    ] = None,
    until: Annotated[float | None, typer.Option(metavar="TIME", help="Where a timeline ends, in virtual time.")] = None,
    cost: Costs = None,
    workers: Workers = None,
) -> None:
    """A figure for a paper: accuracy, influence, staleness, a timeline, what throttling would gain, or rewards."""
    chosen = Kind(kind, size, begin, until)
    if cost and kind != REWARDS:
        raise InputError(f"--cost is given, but only rewards have one, not {kind}")
    check_file("--out", file)
    check_format(file)
    workers = cores() if workers is None else at_least_one("--workers", workers)
    if kind == REWARDS:
        _rewards(folders, cost or [], file, size, workers)
        return
    with trials_progress() as progress:
        looked_at(folders, lambda runs: chosen.draw(runs, file, workers=workers, progress=progress))
    say(f"The figure is {file}")


def _rewards(sources: Sequence[Path], cost: Sequence[str], file: Path, size: str, workers: int) -> None:
    """What each reward buys, on the fleet of an experiment: nothing of it need have been run."""
    if len(sources) > 1:
        raise InputError(f"rewards are drawn of one experiment, but {len(sources)} are given")
    experiment = load(sources[0])
    experiment = with_costs(experiment, cost) if cost else experiment
    with trials_progress() as progress:
        rewards_figure(experiment, file, size, workers=workers, progress=progress)
    say(f"The figure is {file}")
