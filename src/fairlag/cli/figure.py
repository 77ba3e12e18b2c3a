"""`fairlag figure`: figures for papers, from existing runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fairlag.analyse.progress import Progress
from fairlag.analyse.sweep import Swept
from fairlag.cli.audit import trials_progress
from fairlag.cli.results import looked_at
from fairlag.cli.terminal import Costs, NoCode, Workers, at_least_one, check_file, say
from fairlag.errors import InputError
from fairlag.lab.executors import cores
from fairlag.lab.experiment import load
from fairlag.lab.override import with_costs
from fairlag.report.figures import check_format
from fairlag.report.figures.identity import styled
from fairlag.report.figures.kinds import KINDS, REWARDS, SWEEP, Kind
from fairlag.report.figures.numbers import beside
from fairlag.report.figures.rewards import rewards_figure
from fairlag.report.figures.sweep import sweep_figure


def figure(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...|FILE|PRESET", help="Runs, or folders of runs; for rewards, an experiment file or a preset."
        ),
    ],
    kind: Annotated[str, typer.Option(metavar="KIND", help=f"What to draw: {', '.join(KINDS)}.")],
    file: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write: .png, .pdf or .svg.")],
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="single: one column, 3.4 inches wide; double: two columns, 7 inches.")
    ] = "double",
    begin: Annotated[
        float | None, typer.Option("--from", metavar="TIME", help="Start of a timeline, in virtual time.")
    ] = None,
    until: Annotated[float | None, typer.Option(metavar="TIME", help="End of a timeline, in virtual time.")] = None,
    style: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="A matplotlib style, on top of fairlag's: a name or an .mplstyle file."),
    ] = None,
    cost: Costs = None,
    workers: Workers = None,
    no_code: NoCode = False,
) -> None:
    """Draw a figure for a paper, such as the curve of the leading metric, influence, staleness or a timeline.

    The numbers in it are written beside it, as .numbers.csv.
    """
    chosen = Kind(kind, size, begin, until)
    if cost and kind != REWARDS:
        raise InputError(f"--cost is only for --kind {REWARDS}, not for {kind}")
    check_file("--out", file)
    check_format(file)
    workers = cores() if workers is None else at_least_one("--workers", workers)
    with styled(style), trials_progress() as progress:
        if kind == REWARDS:
            _rewards(folders, cost or [], file, size, workers, progress)
        elif kind == SWEEP:
            _sweep(folders, file, size)
        else:
            looked_at(folders, lambda runs: chosen.draw(runs, file, workers=workers, progress=progress))
    say(f"The figure was written to {file}, its numbers to {beside(file)}")


def _sweep(folders: Sequence[Path], file: Path, size: str) -> None:
    """Draws the trials of a sweep."""
    if len(folders) > 1:
        raise InputError(f"one sweep is drawn at a time, but {len(folders)} folders were given")
    sweep_figure(Swept.of(folders[0]), file, size)


def _rewards(
    sources: Sequence[Path], cost: Sequence[str], file: Path, size: str, workers: int, progress: Progress
) -> None:
    """Draws what each reward achieves on the fleet of an experiment, which need not have been run."""
    if len(sources) > 1:
        raise InputError(f"rewards are drawn for one experiment, but {len(sources)} were given")
    experiment = load(sources[0])
    experiment = with_costs(experiment, cost) if cost else experiment
    rewards_figure(experiment, file, size, workers=workers, progress=progress)
