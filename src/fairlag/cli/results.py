"""What runs found: `fairlag runs`, `fairlag compare`, and the comparison that ends a run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fairlag.analyse import compare as comparing
from fairlag.cli.terminal import Json, check_file, say, show
from fairlag.errors import InputError
from fairlag.lab.run import Run, run_folders
from fairlag.report.comparison import compare_table, runs_table
from fairlag.report.figures import accuracy_figure, check_format

FIGURE = "accuracy.png"


def runs(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to look.")] = Path("runs")) -> None:
    """The runs in a folder: what each is, how far it came, and how good its model is."""
    show(runs_table(_folders([folder])))


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
    found = [Run(folder) for folder in _folders(folders)]
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


def _folders(given: Sequence[Path]) -> list[Path]:
    """The folders of the runs in these, each once."""
    found = {folder.resolve(): folder for each in given for folder in run_folders(each)}
    if not found:
        raise InputError(f"there are no runs in {', '.join(repr(str(folder)) for folder in given)}")
    return list(found.values())
