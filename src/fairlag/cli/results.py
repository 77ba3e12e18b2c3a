"""What runs found: `fairlag runs`, `fairlag compare`, and the comparison that ends a run."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from fairlag.analyse import compare as comparing
from fairlag.cli.terminal import Json, check_file, say, show
from fairlag.errors import InputError
from fairlag.lab.run import Run
from fairlag.lab.run import runs as runs_in
from fairlag.report.comparison import compare_table, runs_table
from fairlag.report.figures import accuracy_figure, check_format

FIGURE = "accuracy.png"


def runs(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to look.")] = Path("runs")) -> None:
    """The runs in a folder: what each is, how far it came, and how good its model is."""
    show(runs_table(_found([folder])))


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Runs, or folders of runs.")],
    target: Annotated[
        list[float] | None,
        typer.Option(metavar="ACCURACY", help="Between 0 and 1: how long did it take to get there? Repeatable."),
    ] = None,
    as_json: Json = False,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw accuracy over the runs: .png, .pdf or .svg.")
    ] = None,
) -> None:
    """Strategies side by side, each over its seeds: accuracy per group, time to a target, influence, staleness."""
    if figure is not None:
        check_file("--figure", figure)
        check_format(figure)
    found = _found(folders)
    comparisons = comparing.compare(found, target or ())
    if figure is not None:
        accuracy_figure(found, figure)
    if as_json:
        print(json.dumps({"strategies": [each.as_json() for each in comparisons]}, indent=2))
        return
    show(compare_table(comparisons))
    if figure is not None:
        say(f"The figure is {figure}")


def conclude(found: Sequence[Run], folder: Path, *, trained: bool) -> None:
    """What a command that ran something ends with: how the strategies compare, and where all of it is."""
    show(compare_table(comparing.compare(found)))
    say("")
    if trained:
        accuracy_figure(found, folder / FIGURE)
        say(f"The runs are in {folder}, the figure is {folder / FIGURE}")
    else:
        say(f"The runs are in {folder}; there was nothing to train, so there is no figure")


def _found(folders: Iterable[Path]) -> list[Run]:
    """The runs in these folders, each once."""
    found = {run.folder.resolve(): run for folder in folders for run in runs_in(folder)}
    if not found:
        raise InputError(f"there are no runs in {', '.join(repr(str(folder)) for folder in folders)}")
    return list(found.values())
