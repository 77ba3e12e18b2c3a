"""`fairlag attack`: trains every strategy with every defence under every attack, and shows what each attack did."""

import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from fairlag.analyse.siege import assaults
from fairlag.cli.progress import watching
from fairlag.cli.terminal import (
    Aggregations,
    Export,
    Json,
    NoCode,
    Settings,
    Source,
    Strategies,
    Workers,
    at_least_one,
    check_file,
    chosen,
    number_of_seeds,
    say,
    show,
    tell,
)
from fairlag.errors import FairlagError, InputError, Interrupted, StoreError, WorkerError
from fairlag.lab.attacks import Case, attack_of, cases
from fairlag.lab.experiment import load
from fairlag.lab.folder import is_run
from fairlag.lab.plan import Plan, slug
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute
from fairlag.report.figures import check_format
from fairlag.report.figures.siege import siege_figure
from fairlag.report.plain import exported
from fairlag.report.siege import siege_plain, siege_table


def attack(
    source: Source,
    strategy: Strategies = None,
    attacks: Annotated[
        list[str] | None,
        typer.Option(
            "--attack",
            metavar="GROUP: BEHAVIOUR[, TIMING]",
            help="An attack, such as 'slow: sign_flip(10)', instead of those of the file. Repeatable.",
        ),
    ] = None,
    defences: Annotated[
        list[str] | None,
        typer.Option("--defence", metavar="NAME", help="A defence, instead of those of the file. Repeatable."),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="K", help="Number of seeds per run.")] = 1,
    settings: Settings = None,
    aggregations: Aggregations = None,
    workers: Workers = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the runs; default: runs/NAME-attack. What is there continues."),
    ] = None,
    figure: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it: .png, .pdf or .svg.")] = None,
    as_json: Json = False,
    export: Export = None,
    no_code: NoCode = False,
) -> None:
    """Train every strategy with every defence, without and under each attack, and show who was heard."""
    number_of_seeds(seeds)
    check_file("--figure", figure)
    if figure is not None:
        check_format(figure)
    if workers is not None:
        at_least_one("--workers", workers)
    with redirect_stdout(sys.stderr):
        experiment = chosen(load(source), strategy, settings)
        if aggregations is not None:
            experiment = experiment.checked(aggregations=at_least_one("--aggregations", aggregations))
        if experiment.data is None:
            raise InputError(f"the experiment {experiment.name!r} has no [data]: an attack needs a model to train")
        found, misfits = cases(experiment, [attack_of(each) for each in attacks or ()], defences or ())
        folder = Path("runs") / slug(f"{experiment.name}-attack", "attack") if out is None else out
        runs = [_runs(case, folder, range(experiment.seed, experiment.seed + seeds), workers) for case in found]
    rows, lead = assaults(found, runs), runs[0][0].lead
    if figure is not None:
        siege_figure(rows, figure, lead)
    if as_json or export == "json":
        left = [{**each.guarded._asdict(), "reason": each.reason} for each in misfits]
        print(json.dumps({"experiment": experiment.name, "rows": [row.as_json() for row in rows], "left_out": left}))
        return
    if export is not None:
        print(exported(export, [siege_plain(rows, misfits, lead)], [row.as_json() for row in rows]))
        return
    show(siege_table(rows, misfits, lead))
    say(f"The runs are in {folder}" + ("" if figure is None else f", the figure is {figure}"))


def _runs(case: Case, folder: Path, seeds: Sequence[int], workers: int | None) -> list[Run]:
    """Makes the runs of a case that are not finished; an attack may end one early, which is a result too."""
    plan = Plan(case.experiment, tuple(seeds), folder / slug(case.name, "attack"))
    tell(f"attack: {case.name}")
    try:
        with watching(plan) as watch:
            execute(plan, new=not plan.saved, workers=workers, watch=watch)
    except Interrupted as interruption:
        raise Interrupted(f"{interruption}: the same command continues from there") from None
    except (StoreError, WorkerError):
        raise
    except FairlagError as error:
        if not all(is_run(planned.folder) for planned in plan):  # then it is no result, but a mistake
            raise
        tell(str(error).partition(";")[0])
    return [Run(planned.folder) for planned in plan]
