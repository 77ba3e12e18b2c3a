"""`fairlag figure`: figures for papers, from runs that were made."""

from pathlib import Path
from typing import Annotated

import typer

from fairlag.cli.audit import trials_progress
from fairlag.cli.results import looked_at
from fairlag.cli.terminal import Workers, at_least_one, check_file, say
from fairlag.lab.staff import cores
from fairlag.report.figures import check_format
from fairlag.report.figures.kinds import KINDS, Kind


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
    chosen = Kind(kind, size, begin, until)
    check_file("--out", file)
    check_format(file)
    workers = cores() if workers is None else at_least_one("--workers", workers)
    with trials_progress() as progress:
        looked_at(folders, lambda runs: chosen.draw(runs, file, workers=workers, progress=progress))
    say(f"The figure is {file}")
