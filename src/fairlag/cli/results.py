"""What runs found: `fairlag runs`, `fairlag compare`, and the comparison that ends a run."""

import json
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Annotated

import typer

from fairlag.analyse import compare as comparing
from fairlag.analyse.ranking import CRITERIA, check_criterion, ranked
from fairlag.cli.terminal import Json, check_file, say, show
from fairlag.errors import InputError
from fairlag.lab.plan import planned_labels, slug
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
    by: Annotated[
        str, typer.Option(metavar="CRITERION", help=f"What they are ranked by: {', '.join(CRITERIA)}.")
    ] = "accuracy",
    details: Annotated[
        bool, typer.Option("--details", help="Show the groups of each, however many there are.")
    ] = False,
    as_json: Json = False,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw accuracy over the runs: .png, .pdf or .svg.")
    ] = None,
) -> None:
    """Strategies side by side, ranked, each over its seeds: accuracy per group, influence, time to a target."""
    check_criterion(by)
    if figure is not None:
        check_file("--figure", figure)
        check_format(figure)
    found = planned_runs(folders)
    rankings = ranked(comparing.compare(found, target or ()), by)
    if figure is not None:
        accuracy_figure(found, figure)
    if as_json:
        print(json.dumps({"strategies": [row.as_json() for ranking in rankings for row in ranking.rows]}, indent=2))
        return
    show(compare_table(rankings, details=details))
    if figure is not None:
        say(f"The figure is {figure}")


def planned_runs(folders: Sequence[Path], without: Container[Path] = ()) -> list[Run]:
    """The runs in these folders but for some, where they were planned together in the order of the plan."""
    return [Run(folder) for folder in _folders(folders, lambda each: _as_planned(each, without))]


def conclude(found: Sequence[Run], folder: Path, *, trained: bool) -> None:
    """What a command that ran something ends with: how the strategies compare, and where all of it is."""
    show(compare_table(ranked(comparing.compare(found), "accuracy" if trained else "jain")))
    say("")
    if trained:
        accuracy_figure(found, folder / FIGURE)
        say(f"The runs are in {folder}, the figure is {folder / FIGURE}")
    else:
        say(f"The runs are in {folder}; there was nothing to train, so there is no figure")


def _folders(given: Sequence[Path], look: Callable[[Path], list[Path]] = run_folders) -> list[Path]:
    """The folders of the runs in these, each once."""
    found = {folder.resolve(): folder for each in given for folder in look(each)}
    if not found:
        raise InputError(f"there are no runs in {', '.join(repr(str(folder)) for folder in given)}")
    return list(found.values())


def _as_planned(given: Path, without: Container[Path]) -> list[Path]:
    """The runs in a folder, where they were planned together in the order of the experiment file's strategies."""
    folders = [folder for folder in run_folders(given) if folder not in without]
    parents = {folder.parent for folder in folders}
    orders = {parent: [slug(label) for label in planned_labels(parent)] for parent in parents}

    def place(folder: Path) -> tuple[Path, int]:
        name, order = folder.name.rpartition("-seed")[0], orders[folder.parent]
        return folder.parent, order.index(name) if name in order else len(order)

    return sorted(folders, key=place)
