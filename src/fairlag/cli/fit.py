"""`fairlag fit-fleet`: estimates the fleet behind recorded runs, and writes it as an experiment file."""

import json
import tomllib
from math import inf
from pathlib import Path
from typing import Annotated

import typer

from fairlag.analyse.fit import fleet
from fairlag.analyse.fit.durations import BEST, WAYS, check_way
from fairlag.cli.results import looked_at
from fairlag.cli.terminal import Json, check_file, say, show
from fairlag.errors import InputError
from fairlag.files import save
from fairlag.lab.experiment import Experiment, parse
from fairlag.report.fitted import fit_table


def fit_fleet(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Runs of one fleet, or folders of runs.")],
    file: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write.")] = Path("fleet.toml"),
    how: Annotated[str, typer.Option(metavar="WAY", help=f"How to model the delays: {', '.join(WAYS)}.")] = BEST,
    split: Annotated[
        bool, typer.Option("--split/--no-split", help="Split groups whose clients clearly differ.")
    ] = True,
    until: Annotated[
        float, typer.Option(metavar="SECONDS", show_default=False, help="Use only the first SECONDS of each run.")
    ] = inf,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: Json = False,
) -> None:
    """Write an experiment file with the delays and losses that runs recorded, to ask "what if" about your own fleet."""
    check_way(how)
    check_file("--out", file)
    if file.exists() and not force:
        raise InputError(f"{str(file)!r} exists: choose another file with --out, or overwrite it with --force")
    found = looked_at(folders, lambda runs: fleet.fit_fleet(runs, how, split=split, until=until))
    text = found.text
    _check_modules(found.experiment, file)
    parse(tomllib.loads(text), file.parent, code=False)  # the modules that it names must be found from there
    save(file, text)
    if as_json:
        print(json.dumps({"file": str(file), **found.as_json()}, indent=2))
        return
    show(fit_table(found))
    say(f"The fleet was written to {file}; `fairlag audit {file}` predicts who the model listens to")


def _check_modules(experiment: Experiment, file: Path) -> None:
    """Refuses a file from whose folder a user's module would not be found; the module is not imported."""
    home = experiment.folder
    if home is None or home.resolve() == file.parent.resolve():
        return
    tables = (*experiment.strategies, *(each for each in (experiment.data, experiment.model) if each is not None))
    for use in (str(table.use) for table in tables):
        name, colon, _ = use.partition(":")
        module = home.joinpath(*name.split("."))
        if colon and (module.is_dir() or module.with_suffix(".py").is_file()):
            raise InputError(
                f"{use!r} is only found next to the run's own experiment file: write to {str(home / file.name)!r}"
            )
