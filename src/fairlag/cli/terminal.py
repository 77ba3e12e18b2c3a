"""What the commands share: printing, common options, and checks of options."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from fairlag.analyse.audit import MOST_SEEDS
from fairlag.errors import InputError
from fairlag.execute import EXECUTORS
from fairlag.imported import before_importing
from fairlag.lab.experiment import Experiment
from fairlag.lab.override import changed
from fairlag.limits import printable
from fairlag.report.console import SafeConsole
from fairlag.report.plain import FORMATS, check_export

err = SafeConsole(stderr=True)

Source = Annotated[str, typer.Argument(metavar="FILE|PRESET", help="An experiment file, or the name of a preset.")]
Strategies = Annotated[
    list[str] | None,
    typer.Option(
        "--strategy",
        metavar="NAME",
        help="Only this strategy: a label or `use` from the file, or an algorithm of the zoo, such as "
        "'fedadam(cohort=5)'. Repeatable.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a value of the file, such as local.lr=0.05, clients.slow.count=7 or "
        "strategies.fairshare.buffer=10. Repeatable.",
    ),
]
Aggregations = Annotated[int | None, typer.Option(metavar="N", help="Number of aggregations, instead of the file's.")]
Costs = Annotated[
    list[str] | None,
    typer.Option(
        "--cost",
        metavar="K|GROUP=K,…",
        help="The influence that one update per second is worth to a client, instead of `cost` in the file. "
        "Repeatable.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Number of processes or actors; default: one per core or CPU, but one for small models."
    ),
]
Executor = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Where tasks are computed: {', '.join(EXECUTORS)}; default: serial for one worker, otherwise processes. "
        "Results are the same.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT|auto",
        help=" ".join(f"For --executor {name}, {kind.cluster}." for name, kind in EXECUTORS.items() if kind.cluster),
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="auto|cpu|cuda|cuda:1|mps",
        help="Where models are trained; auto: the first accelerator, otherwise the CPU. Default: the file's, or cpu.",
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="NAME",
        help="Also record the runs with tensorboard, mlflow or wandb: in the folder of the runs, unless "
        "MLFLOW_TRACKING_URI or WANDB_MODE=online is set. Needs fairlag's extra `track`. Repeatable.",
    ),
]


@contextmanager
def modules_named() -> Iterator[None]:
    """Inside, the name of every module that a file names is printed on standard error, once, before its import."""
    named: set[str] = set()

    def name(use: str, noun: str) -> None:
        module = use.partition(":")[0]
        if module not in named:
            named.add(module)
            complain(f"importing the module {module!r} for the {noun} {use!r}")

    before_importing(name)
    try:
        yield
    finally:
        before_importing(None)


def _refuse_modules(wanted: bool) -> bool:
    def refuse(use: str, noun: str) -> None:
        raise InputError(f"the {noun} {use!r} is code, which --no-code refuses: use one that comes with fairlag")

    if wanted:
        before_importing(refuse)
    return wanted


NoCode = Annotated[
    bool,
    typer.Option(
        "--no-code",
        callback=_refuse_modules,
        help="Do not import code: refuse an experiment that names any (module:function).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
Export = Annotated[
    str | None,
    typer.Option(
        "--export",
        metavar="|".join(FORMATS),
        callback=check_export,
        help="Print only the tables, in this format. CSV has the numbers behind them; json is the same as --json.",
    ),
]


def show(what: RenderableType) -> None:
    """Prints a table or text; a narrow terminal wraps its lines instead of cutting its columns."""
    SafeConsole(width=max(SafeConsole().width, 80)).print(what, highlight=False)


def say(sentence: str) -> None:
    """Prints a sentence without wrapping it, so that a path in it can be copied."""
    SafeConsole().print(sentence, highlight=False, markup=False, soft_wrap=True)


def complain(sentence: str) -> None:
    """Prints a sentence on standard error, as one line, so that it does not mix with the result."""
    err.print(f"fairlag: {' '.join(sentence.split())}", markup=False, highlight=False, soft_wrap=True)


def tell(line: str) -> None:
    """Prints a line of progress on standard error, unchanged, for logs."""
    print(printable(line), file=sys.stderr, flush=True)


def at_least_one(option: str, value: int) -> int:
    """The value of an option, which must be at least 1."""
    if value < 1:
        raise InputError(f"{option} is {value}, it must be at least 1")
    return value


def number_of_seeds(value: int, option: str = "--seeds") -> int:
    """The value of an option that is a number of seeds."""
    if value > MOST_SEEDS:
        raise InputError(f"{option} is {value}, it must be at most {MOST_SEEDS:,}")
    return at_least_one(option, value)


def chosen(experiment: Experiment, strategies: list[str] | None, settings: list[str] | None) -> Experiment:
    """The strategies of `--strategy` with the changes of `--set`; says if a strategy uses the buffer of the file."""
    found = experiment.only(strategies or [])
    for use in found.strategies:
        given = any(text.startswith(use.name) and "buffer" in text for text in strategies or [])
        if use not in experiment.strategies and "buffer" in use.parameters and not given:
            words = f"{use.name} uses the buffer of the file's strategies, {use.parameters['buffer']}"
            print(f"{words}; for a different one, write '{use.name}(buffer=…)'", file=sys.stderr)
    return changed(found, settings or [])


def check_file(option: str, file: Path | None) -> None:
    """Refuses a file that cannot be written, before any work is done for it."""
    if file is None:
        return
    if file.is_dir():
        raise InputError(f"{option} is {str(file)!r}, a folder: give the name of a file")
    if not file.parent.is_dir():
        raise InputError(f"{option} is {str(file)!r}, but there is no folder {str(file.parent)!r}")
    is_device = file.exists() and not file.is_file()
    needed = [file] if is_device else [file.resolve().parent, *([file] if file.exists() else [])]
    if not all(os.access(each, os.W_OK) for each in needed):
        raise InputError(f"{option} is {str(file)!r}, which cannot be written")


def check_page(option: str, file: Path | None) -> None:
    """Refuses a file for a page that cannot be written, or that a browser would not show."""
    check_file(option, file)
    if file is not None and file.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{option} is {str(file)!r}: the page is HTML, so its name must end with .html")


@contextmanager
def bars(*columns: ProgressColumn) -> Iterator[Progress]:
    """Progress bars on standard error, which disappear when the work is done."""
    shown = (TextColumn("{task.description}", markup=False), BarColumn(), *columns, TimeRemainingColumn())
    with Progress(*shown, console=err, transient=True) as progress:
        yield progress
