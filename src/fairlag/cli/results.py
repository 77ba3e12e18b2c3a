"""Results of runs: `fairlag runs`, `fairlag rollback`, `fairlag compare`, and the comparison at the end of a run."""

import json
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Annotated

import typer

from fairlag.analyse import compare as comparing
from fairlag.analyse.metrics import LEAD, criteria
from fairlag.analyse.ranking import Ranking, ranked
from fairlag.analyse.sweep import Swept, ranking_of, result_in
from fairlag.cli.terminal import Json, check_file, complain, say, show
from fairlag.errors import InputError
from fairlag.files import put, save
from fairlag.lab import rollback as going_back
from fairlag.lab.damaged import Made, without_damaged
from fairlag.lab.folder import explained
from fairlag.lab.plan import planned_labels, slug
from fairlag.lab.run import Run
from fairlag.lab.runs import none_in, run_folders
from fairlag.lab.serialise import toml
from fairlag.lab.sweep.plan import SweepPlan, is_sweep
from fairlag.lab.verify import verified
from fairlag.report.compared import Compared
from fairlag.report.comparison import Listed, compare_plain, compare_table, runs_table
from fairlag.report.figures import check_format, curve_figure
from fairlag.report.plain import FORMATS, exported
from fairlag.report.sweep import head_of_best, sweep_plain, sweep_table

FIGURE = "curve.png"


def runs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to search.")] = Path("runs"),
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every row and file for damage; the exit code is 1 if there is any.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the runs in a folder, with their progress and the score of their model."""
    if verify:
        _verify(_folders([folder]))
        return
    listed = [Listed.of(each) for each in _folders([folder])]
    if as_json:
        print(json.dumps([each.as_json() for each in listed], indent=2))
    else:
        show(runs_table(listed))


def _verify(folders: Sequence[Path]) -> None:
    """One line per run."""
    found = [(folder, *verified(folder)) for folder in folders]
    for folder, whole, what in found:
        say(f"{folder}: {'intact' if whole else 'DAMAGED'}: {what}")
    if not all(whole for _, whole, _ in found):
        raise typer.Exit(1)


def rollback(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run that is not being written.")],
    version: Annotated[
        int | None,
        typer.Option(metavar="V", help="Version to go back to; without it, the possible versions are listed."),
    ] = None,
) -> None:
    """Take a run back to an earlier version, for example after an attack. Everything after that version is removed."""
    if version is None:
        there = going_back.points(folder)
        if not there:
            say(f"The run in {folder} has no checkpoint to go back to")
        for point in there:
            unknown = "" if point.known else "; newer than the database, without rows"
            say(f"version {point.version}, written {point.written}{unknown}")
        return
    point = going_back.rollback(folder, version)
    say(f"The run in {folder} is back at version {point.version} and continues from there")


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Runs, or folders of runs.")],
    target: Annotated[
        list[float] | None,
        typer.Option(
            metavar="VALUE",
            help="Value of the leading metric, such as an accuracy between 0 and 1: show the time to reach it. "
            "Repeatable.",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="CRITERION",
            help=f"Rank strategies by one of {', '.join(name for name in criteria() if name != LEAD.name)}, or by a "
            "metric of the runs, such as accuracy or mse. Default: the metric of a sweep, or the leading metric.",
        ),
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Show every group of each strategy, however many there are.")
    ] = False,
    as_json: Json = False,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw the leading metric over time: .png, .pdf or .svg.")
    ] = None,
    export: Annotated[
        str | None,
        typer.Option(
            metavar=f"{'|'.join(FORMATS)}|FILE.toml",
            help="Print only the tables, in this format. Or, of a sweep, also write an experiment file with the best "
            "settings.",
        ),
    ] = None,
) -> None:
    """Compare and rank strategies over their seeds: accuracy or another metric, influence, time to a target."""
    best = Path(export) if export is not None and export.endswith(".toml") else None
    if best is not None:
        _export([folder for folder in folders if is_sweep(folder)], best)
    elif export is not None and export not in FORMATS:
        raise InputError(f"--export is {export!r}, it must be one of {', '.join(FORMATS)}, or a file such as best.toml")
    if figure is not None:
        check_file("--figure", figure)
        check_format(figure)

    swept = sweeps_in(folders)

    def make(found: list[Run]) -> list[Ranking]:
        own, targets = ranking_of(swept, found)
        aims = (*targets, *(target or ())) if by is None else target or targets  # by time, the first one decides
        rankings = ranked(comparing.compare(found, aims), by or own)
        if figure is not None:
            curve_figure(found, figure)
        return rankings

    rankings = looked_at(folders, make)
    if as_json or export == "json":
        told = {"strategies": [row for ranking in rankings for row in ranking.as_json()]}
        print(json.dumps(told | ({"sweeps": [each.as_json() for each in swept]} if swept else {}), indent=2))
        return
    if export is not None and best is None:
        tables = [*map(sweep_plain, swept), *compare_plain(rankings)]
        print(exported(export, tables, Compared(rankings).frame().to_dict("records")))
        return
    for each in swept:
        show(sweep_table(each))
    show(compare_table(rankings, details=details))
    if figure is not None:
        say(f"The figure was written to {figure}")
    if best is not None:
        say(f"The best settings were written to {best}")


def _export(sweeps: Sequence[Path], file: Path) -> None:
    """Writes the experiment file of a sweep's best settings."""
    check_file("--export", file)
    if len(sweeps) != 1:
        raise InputError(f"--export is {str(file)!r}, but it writes the best settings of one sweep to a .toml file")
    plan, found = SweepPlan.open(sweeps[0], code=False), result_in(sweeps[0])
    save(file, toml(plan.best(found), head_of_best(Swept.of(sweeps[0]), plan.sweep.tests)))


def sweeps_in(folders: Sequence[Path]) -> list[Swept]:
    """What came of the sweeps among these folders."""
    return [Swept.of(folder) for folder in folders if is_sweep(folder)]


def planned_folders(folders: Sequence[Path]) -> list[Path]:
    """The folders of all runs in these folders, in the order of the plan if they were planned together."""
    return _folders(folders, _as_planned)


def looked_at(folders: Sequence[Path], make: Callable[[list[Run]], Made]) -> Made:
    """The result of `make` for the runs in these folders; damaged ones are left out, and named on standard error."""
    made, damaged = without_damaged(planned_folders(folders), make)
    for sentence in damaged.values():
        complain(f"left out: {sentence}")
    return made


def conclude(
    found: Sequence[Run], folder: Path, *, trained: bool, by: str | None = None, targets: Sequence[float] = ()
) -> None:
    """Prints the end of a command that ran something: the comparison of the strategies, and where the files are."""

    def make(runs: list[Run]) -> list[Ranking]:
        rankings = ranked(comparing.compare(runs, targets), by if trained else "jain")
        if trained:
            with (
                BytesIO() as sheet,
                explained(folder, "the figure", f"`fairlag figure {folder} --kind curve` draws it"),
            ):
                curve_figure(runs, sheet)
                put(folder / FIGURE, sheet.getvalue())
        return rankings

    rankings, damaged = without_damaged([run.folder for run in found], make)
    show(compare_table(rankings))
    say("")
    if trained:
        say(f"The runs are in {folder}, the figure in {folder / FIGURE}")
    else:
        say(f"The runs are in {folder}; there was nothing to train, so there is no figure")
    if damaged:
        raise InputError(
            f"{len(damaged)} of {len(found)} runs are damaged and were left out: {'; '.join(damaged.values())}"
        )


def _folders(given: Sequence[Path], look: Callable[[Path], list[Path]] = run_folders) -> list[Path]:
    """The folders of all runs in these folders, each once."""
    found = {folder.resolve(): folder for each in given for folder in look(each)}
    if not found:
        raise none_in(given)
    return list(found.values())


def _as_planned(given: Path) -> list[Path]:
    """The runs in a folder, in the order of the experiment file's strategies if they were planned together."""
    folders = run_folders(given)
    parents = {folder.parent for folder in folders}
    orders = {parent: [slug(label) for label in planned_labels(parent)] for parent in parents}

    def place(folder: Path) -> tuple[Path, int]:
        name, order = folder.name.rpartition("-seed")[0], orders[folder.parent]
        return folder.parent, order.index(name) if name in order else len(order)

    return sorted(folders, key=place)
