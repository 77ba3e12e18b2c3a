"""The command line: `fairlag audit`, `strategies`, `presets`."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import fairlag
from fairlag.analyse import audit as auditing
from fairlag.errors import FairlagError, InputError
from fairlag.lab.experiment import load, presets
from fairlag.report import tables
from fairlag.zoo import ALGORITHMS

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Asynchronous federated learning in virtual time: who the model listens to, and who gains by cheating.",
)
err = Console(stderr=True)

_INTERRUPTED = 130

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def main() -> None:
    """Runs the command line; bad input ends with one sentence and exit code 2, an interrupt with 130."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no × still gets its table
    try:
        code = app(standalone_mode=False)
    except InputError as error:
        code = _fail(str(error))
    except FairlagError as error:
        code = _fail(str(error), 1)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except OSError as error:
        code = _fail(f"cannot write the output: {error}", 1)
    except Exception as error:
        # What the option parser raises: told by what it can do, because typer hides where it comes from.
        if not hasattr(error, "format_message"):
            raise
        code = _fail(error.format_message()) if error.format_message() else 0
    if code == _INTERRUPTED:
        err.print("fairlag: interrupted, nothing was written", markup=False)
    sys.exit(code or 0)


def _fail(sentence: str, code: int = 2) -> int:
    err.print(f"fairlag: {' '.join(sentence.split())}", markup=False, highlight=False, soft_wrap=True)
    return code


def _show(what: RenderableType) -> None:
    """Prints a table or text; a narrow terminal breaks its lines rather than cutting its columns."""
    Console(width=max(Console().width, 80)).print(what, highlight=False)


def _version(wanted: bool) -> None:
    if wanted:
        _show(f"fairlag {fairlag.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def audit(
    source: Annotated[str, typer.Argument(metavar="FILE|PRESET", help="An experiment file, or a preset's name.")],
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only these: a label or `use` of the file, or a name of the zoo; repeatable."
        ),
    ] = None,
    aggregations: Annotated[int | None, typer.Option(metavar="N", help="Instead of what the file says.")] = None,
    seeds: Annotated[
        int | None, typer.Option(metavar="K", help="How many seeds to average over; default: 5, fewer if long.")
    ] = None,
    incentive_updates: Annotated[
        int, typer.Option(metavar="N", help="How many updates per strategy may go into trying to throttle.")
    ] = auditing.INCENTIVE_UPDATES,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Processes; default: one per core.")] = None,
    theory: Annotated[bool, typer.Option("--theory", help="Also print what the paper predicts for the fleet.")] = False,
    as_json: Json = False,
    file: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the JSON to a file.")] = None,
) -> None:
    """Who would the model listen to, how stale would updates be, who would gain by throttling? Without learning."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = cores if workers is None else _at_least_one("--workers", workers)
    _at_least_one("--incentive-updates", incentive_updates)
    _check_file(file)
    # What a user's rule prints must not get between the lines of the result.
    with redirect_stdout(sys.stderr):
        experiment = load(source).only(strategy or [])
        if aggregations is not None:
            experiment = experiment.checked(aggregations=_at_least_one("--aggregations", aggregations))
        seeds = auditing.enough_seeds(experiment) if seeds is None else _at_least_one("--seeds", seeds)
        with _progress() as progress:
            audits = auditing.audit(
                experiment, seeds=seeds, workers=workers, incentive_updates=incentive_updates, progress=progress
            )
    text = json.dumps({"experiment": experiment.name, "strategies": [each.as_json() for each in audits]}, indent=2)
    if file is not None:
        file.write_text(text + "\n", "utf-8")
    if as_json:
        print(text)
        return
    _show(tables.audit_table(experiment, audits, seeds))
    if theory:
        for buffer in sorted({each.whole_buffer for each in audits}):
            _show(tables.theory_table(experiment, buffer, audits))
    if file is not None:
        _show(f"The audit is in {file}")


def _check_file(file: Path | None) -> None:
    if file is None:
        return
    if file.is_dir():
        raise InputError(f"--out is {str(file)!r}, a folder: give the name of a file in it")
    if not file.parent.is_dir():
        raise InputError(f"--out is {str(file)!r}, but there is no folder {str(file.parent)!r}")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise InputError(f"--out is {str(file)!r}, which cannot be written")


@app.command()
def strategies(as_json: Json = False) -> None:
    """Every algorithm that `use = "…"` accepts, with its parameters."""
    if as_json:
        rows = [
            {
                "use": name,
                "title": algorithm.title,
                "description": algorithm.description,
                "parameters": {key: parameter.default for key, parameter in algorithm.parameters.items()},
            }
            for name, algorithm in ALGORITHMS.items()
        ]
        print(json.dumps(rows, indent=2))
        return
    _show(tables.strategies_table())
    _show('Your own: use = "module:function", a weighting of (buffer, view) or a function that returns a Strategy.')


@app.command("presets")
def show_presets(
    name: Annotated[str | None, typer.Argument(help="Print this preset, as a start for a file of your own.")] = None,
) -> None:
    """The experiment files that come with fairlag; give a name to see one."""
    shipped = presets()
    if name is None:
        _show(tables.presets_table(shipped))
    elif name in shipped:
        print(shipped[name], end="")
    else:
        raise InputError(f"no preset {name!r}: {', '.join(shipped)} exist")


def _at_least_one(option: str, value: int) -> int:
    if value < 1:
        raise InputError(f"{option} is {value}, it must be at least 1")
    return value


@contextmanager
def _progress() -> Iterator[auditing.Progress]:
    """A bar on a terminal, a line at each quarter of a part elsewhere; both on standard error."""
    if not err.is_terminal:

        def tell(part: str, done: int, total: int) -> None:
            if done * 4 // total > (done - 1) * 4 // total:
                print(f"{part}: {done} of {total} trials", file=sys.stderr, flush=True)

        yield tell
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bars:
        known = {part: bars.add_task(part, total=None) for part in ("fairness", "incentives")}
        yield lambda part, done, total: bars.update(known[part], completed=done, total=total)
