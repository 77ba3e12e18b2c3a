"""`fairlag data`: lists data sets, downloads one, and shows which client holds what in an experiment."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import DownloadColumn

from fairlag.cli.terminal import Json, NoCode, Source, bars, check_file, err, say, show
from fairlag.data import load as datasets
from fairlag.data.download import Progress
from fairlag.lab.experiment import load
from fairlag.lab.resources import Resources
from fairlag.report.figures import check_format, holdings_figure
from fairlag.report.holdings import data_table, holdings_table

app = typer.Typer(name="data", no_args_is_help=True, help="List and download data sets, and show who holds what.")

_MOST_CLIENTS = 60
"""With more clients, a figure shows groups."""


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the named data sets: where each was found on this machine, or how to get it."""
    if as_json:
        print(json.dumps([each._asdict() for each in datasets.known()], indent=2))
        return
    show(data_table(datasets.known()))
    show('Your own: use = "file", "leaf" or "huggingface" reads files; "module:function" returns (inputs, labels).')


@app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set that `fairlag data list` shows.")],
) -> None:
    """Download a data set and verify its checksums."""
    with _progress(name) as progress:
        folder = datasets.get(name, progress)
    say(f"{name} is in {folder}")


@app.command("show")
def show_(
    source: Source,
    figure: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Also draw a figure: .png, .pdf or .svg.")
    ] = None,
    no_code: NoCode = False,
) -> None:
    """Show how many examples the clients of an experiment hold, and of which labels."""
    if figure is not None:
        check_file("--out", figure)
        check_format(figure)
    with redirect_stdout(sys.stderr):
        experiment = load(source)
        resources = Resources(experiment)
        data, groups = resources.data, resources.groups
        train, shares = resources.shares(experiment.seed)
    labels = data.strata[train]
    show(holdings_table(experiment.name, groups, shares, labels, data.called))
    if resources.stream is not None:
        show(resources.stream.words)
    if (part := experiment.evaluate.clients) is not None:
        show(f"Not counted: the {100 * part:g} % of each client's examples that are held back for its own test.")
    if figure is not None:
        if shares.clients <= _MOST_CLIENTS:
            counts = shares.counts(labels, len(data.called))
            names = resources.names(experiment.seed)
        else:
            counts, names = shares.group_counts(labels, len(data.called), groups), [group.name for group in groups]
        holdings_figure(counts, names, f"Who holds what in {experiment.name}", figure)
        say(f"The figure was written to {figure}")


@contextmanager
def _progress(name: str) -> Iterator[Progress]:
    """A bar on a terminal, otherwise a line at each quarter; both on standard error."""
    if err.is_terminal:
        with bars(DownloadColumn()) as shown:
            task = shown.add_task(name, total=None)
            yield lambda come, size: shown.update(task, completed=come, total=size)
        return
    told = 0

    def tell(come: int, size: int) -> None:
        nonlocal told
        if come * 4 // size > told:
            told = come * 4 // size
            print(f"{name}: {come / 1e6:.1f} of {size / 1e6:.1f} MB", file=sys.stderr, flush=True)

    yield tell
