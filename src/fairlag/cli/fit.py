"""`fairlag fit-fleet`: the fleet of runs as it was seen, written as an experiment file."""

import json
import tomllib
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
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Runs of one fleet, or folders of them.")],
    file: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write it.")] = Path("fleet.toml"),
    how: Annotated[str, typer.Option(metavar="WAY", help=f"Which delays to take: {', '.join(WAYS)}.")] = BEST,
    split: Annotated[
        bool, typer.Option("--split/--no-split", help="Take a group apart whose clients clearly differ.")
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")] = False,
    as_json: Json = False,
) -> None:
    """A fleet file from runs: how long tasks really took, what was lost; to ask "what if" about a fleet of your own."""
    check_way(how)
    check_file("--out", file)
    if file.exists() and not force:
        raise InputError(f"{str(file)!r} exists: take another with --out, or overwrite it with --force")
    found = looked_at(folders, lambda runs: fleet.fit_fleet(runs, how, split=split))
    text = found.text
    _check_modules(found.experiment, file)
    parse(tomllib.loads(text), file.parent, code=False)  # what it names must be found from there
    save(file, text)
    if as_json:
        print(json.dumps({"file": str(file), **found.as_json()}, indent=2))
        return
    show(fit_table(found))
    say(f"The fleet is in {file}: `fairlag audit {file}` shows who would be listened to")


def _check_modules(experiment: Experiment, file: Path) -> None:
    """Refuses a file that would not find a module of the user's; the module itself is not imported."""
    home = experiment.folder
    if home is None or home.resolve() == file.parent.resolve():
        return
    tables = (*experiment.strategies, *(each for each in (experiment.data, experiment.model) if each is not None))
    for use in (str(table.use) for table in tables):
        name, colon, _ = use.partition(":")
        module = home.joinpath(*name.split("."))
        if colon and (module.is_dir() or module.with_suffix(".py").is_file()):
            raise InputError(
                f"{use!r} is found only beside the run's own experiment: write to {str(home / file.name)!r}"
            )
