"""`fairlag fleet`: what the fleet of an experiment looks like before anything runs."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fairlag.analyse.presence import presence
from fairlag.cli.terminal import Json, NoCode, Settings, Source, check_file, say, show
from fairlag.errors import InputError
from fairlag.lab.experiment import load
from fairlag.lab.override import changed
from fairlag.report.figures import check_format, fleet_figure
from fairlag.report.fleet import fleet_table

app = typer.Typer(name="fleet", no_args_is_help=True, help="Fleets: who is there when, and how fast.")

_DAY = 86_400.0


@app.callback()
def _group() -> None:
    """So that `show` stays a command of its own, although there is only one."""


@app.command("show")
def show_(
    source: Source,
    figure: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Also draw it: .png, .pdf or .svg.")
    ] = None,
    until: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Look at this much time; default: the file's until_time, or a day."),
    ] = None,
    settings: Settings = None,
    no_code: NoCode = False,
    as_json: Json = False,
) -> None:
    """Who is there when and how fast: the clients of an experiment before anything runs."""
    if figure is not None:
        check_file("--out", figure)
        check_format(figure)
    if until is not None and not 0 < until < float("inf"):
        raise InputError(f"--until is {until}, it must be a number of seconds above 0")
    experiment = changed(load(source), settings or [])
    found = presence(experiment.fleet(), until or experiment.until_time or _DAY)
    if as_json:
        print(json.dumps(found.as_json()))
    else:
        show(fleet_table(experiment.name, found))
    if figure is not None:
        fleet_figure(found, f"Who is there when in {experiment.name}", figure)
        if not as_json:
            say(f"The figure is {figure}")
