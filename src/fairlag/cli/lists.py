"""What comes with fairlag: `fairlag strategies` and `fairlag presets`."""

import json
import tomllib
from typing import Annotated

import typer

from fairlag.cli.terminal import Export, Json, show
from fairlag.errors import InputError, nearest
from fairlag.lab import experiment
from fairlag.report import algorithms, tables
from fairlag.report.plain import exported
from fairlag.zoo import ALGORITHMS


def strategies(
    as_json: Json = False,
    export: Export = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the page docs/algorithms.md.")] = False,
) -> None:
    """List every algorithm that `use = "…"` accepts, with its parameters."""
    if sum((as_json, markdown, export is not None)) > 1:
        raise InputError("--json, --export and --markdown exclude each other: give one of them")
    if markdown:
        print(algorithms.markdown(), end="")
        return
    if as_json or export is not None:
        rows = [
            {
                "use": name,
                "title": algorithm.title,
                "family": algorithm.family,
                "needs": algorithms.needed(algorithm),
                "description": algorithm.description,
                "formula": algorithm.formula,
                "departs": algorithm.departs,
                "reference": algorithm.reference,
                "parameters": {key: parameter.default for key, parameter in algorithm.parameters.items()},
            }
            for name, algorithm in ALGORITHMS.items()
        ]
        if export is None or export == "json":
            print(json.dumps(rows, indent=2))
        else:
            print(exported(export, [tables.strategies_plain()], rows))
        return
    show(tables.strategies_table())
    show('Your own: use = "module:function", a weighting of (buffer, view) or a function that returns a Strategy.')


def presets(
    name: Annotated[
        str | None, typer.Argument(help="Print this preset, as a starting point for your own file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the experiment files that come with fairlag; give a name to print one."""
    shipped = experiment.presets()
    if name is None and as_json:
        print(json.dumps(tables.presets_json(shipped), indent=2))
    elif name is None:
        show(tables.presets_table(shipped))
    elif name in shipped:
        print(json.dumps(tomllib.loads(shipped[name]), indent=2) if as_json else shipped[name].rstrip("\n"))
    else:
        raise InputError(f"there is no preset {name!r}: {nearest(name, shipped)}")
