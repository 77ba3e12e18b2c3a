"""`fairlag audit`: examines a fleet and its strategies without any training."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.progress import MofNCompleteColumn

from fairlag.analyse import audit as auditing
from fairlag.analyse.effort import enough_seeds
from fairlag.analyse.incentives import WANTED
from fairlag.analyse.progress import Progress
from fairlag.analyse.settling import priced
from fairlag.analyse.throttling import COMPILED_UPDATES, SERVER_UPDATES
from fairlag.analyse.timings import COMPILED_SEARCH, SERVER_SEARCH
from fairlag.cli.bill import Asked, Bound, Delta, Epsilon, Noise, Private, bill, check_alone
from fairlag.cli.terminal import (
    Aggregations,
    Costs,
    Export,
    Json,
    NoCode,
    Settings,
    Source,
    Strategies,
    Workers,
    at_least_one,
    bars,
    check_file,
    check_page,
    chosen,
    err,
    number_of_seeds,
    say,
    show,
    tell,
)
from fairlag.errors import InputError
from fairlag.files import save
from fairlag.lab.executors import cores
from fairlag.lab.experiment import Experiment, load
from fairlag.lab.override import with_buffers, with_costs
from fairlag.report import tables
from fairlag.report.answer import answer
from fairlag.report.page.build import audit_page
from fairlag.report.page.shell import html
from fairlag.report.plain import exported
from fairlag.report.settled import settled_table


def audit(
    source: Source,
    strategy: Strategies = None,
    settings: Settings = None,
    buffers: Annotated[
        str | None, typer.Option(metavar="B,B,…", help="Try each strategy that has a buffer with each of these sizes.")
    ] = None,
    aggregations: Aggregations = None,
    seeds: Annotated[
        int | None,
        typer.Option(metavar="K", help="Number of seeds to average over; default: 5, fewer for long audits."),
    ] = None,
    incentive_error: Annotated[
        float,
        typer.Option(
            metavar="E", help="Wanted error of a relative gain by throttling; it sets how long the trials are."
        ),
    ] = WANTED,
    incentive_updates: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The most updates per strategy for these trials, and again for the search for other timings; default: "
            f"{COMPILED_UPDATES:,} and {COMPILED_SEARCH:,}, or {SERVER_UPDATES:,} and {SERVER_SEARCH:,} without "
            "compiled loops.",
        ),
    ] = None,
    cost: Costs = None,
    workers: Workers = None,
    theory: Annotated[
        bool, typer.Option("--theory", help="Also print what the paper's theory predicts for the fleet.")
    ] = False,
    privacy: Private = False,
    noise: Noise = None,
    delta: Delta = None,
    epsilon: Epsilon = None,
    bound: Bound = None,
    as_json: Json = False,
    export: Export = None,
    file: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the JSON to a file.")] = None,
    page: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Also write a report page (.html).")
    ] = None,
    no_code: NoCode = False,
) -> None:
    """Predict influence and staleness without training, and show who would gain by a different timing."""
    workers = cores() if workers is None else at_least_one("--workers", workers)
    if incentive_updates is not None:
        at_least_one("--incentive-updates", incentive_updates)
    check_file("--out", file)
    check_page("--report", page)
    asked = Asked(noise, delta, epsilon, bound)
    if privacy:
        others = {"--report": page, "--theory": theory, "--cost": cost, "--incentive-updates": incentive_updates}
        others |= {"--export": export not in (None, "json")}
        check_alone([name for name, value in others.items() if value])
    else:
        asked.check_unused()
    # Output of a user's rule must not mix with the result.
    with redirect_stdout(sys.stderr):
        experiment = _changed(chosen(load(source), strategy, settings), buffers, aggregations, cost)
        seeds = enough_seeds(experiment) if seeds is None else number_of_seeds(seeds)
        with trials_progress(*([] if privacy else ["fairness", "incentives"])) as progress:
            if privacy:
                text, table = bill(experiment, asked, seeds=seeds, workers=workers, progress=progress)
            else:
                audits = auditing.audit(
                    experiment,
                    seeds=seeds,
                    workers=workers,
                    incentive_updates=incentive_updates,
                    incentive_error=incentive_error,
                    progress=progress,
                )
                text, table = _json(experiment, audits), _table(experiment, audits, seeds, theory=theory)
    if file is not None:
        save(file, text + "\n")
    if page is not None:
        save(page, html(audit_page(experiment, audits, seeds)))
    if as_json or export == "json":
        print(text)
        return
    if export is not None:
        print(exported(export, tables.audit_plain(experiment, audits, seeds), auditing.records(audits)))
        return
    show(table)
    if file is not None:
        show(f"The audit was written to {file}")
    if page is not None:
        say(f"The report was written to {page}")


def _changed(
    experiment: Experiment, buffers: str | None, aggregations: int | None, cost: list[str] | None
) -> Experiment:
    """The experiment with the changes that the options of an audit ask for."""
    if buffers is not None:
        experiment = with_buffers(experiment, _sizes(buffers))
    if aggregations is not None:
        experiment = experiment.checked(aggregations=at_least_one("--aggregations", aggregations))
    return with_costs(experiment, cost) if cost else experiment


def _json(experiment: Experiment, audits: Sequence[auditing.StrategyAudit]) -> str:
    strategies = [each.as_json() for each in audits]
    return json.dumps({"experiment": experiment.name, "strategies": strategies, "answer": answer(audits)}, indent=2)


def _table(
    experiment: Experiment, audits: Sequence[auditing.StrategyAudit], seeds: int, *, theory: bool
) -> RenderableType:
    parts = [tables.audit_table(experiment, audits, seeds)]
    if priced(experiment):
        parts.append(settled_table(audits))
    if theory:
        for buffer in sorted({each.whole_buffer for each in audits}):
            parts.append(tables.theory_table(experiment, buffer, audits))
    return Group(*parts)


def _sizes(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part[:9]) == int(part) for part in parts):
        raise InputError(f"--buffers is {text!r}, it must be whole numbers above 0, such as 5,10,20")
    return list(map(int, parts))


@contextmanager
def trials_progress(*parts: str) -> Iterator[Progress]:
    """One bar per kind of trial on a terminal, otherwise a line at each quarter of a part; both on standard error.

    The first word of a part is its kind. Parts of the same kind, one per strategy, share a bar.
    """
    if not err.is_terminal:

        def tell_quarters(part: str, done: int, total: int) -> None:
            if done * 4 // total > (done - 1) * 4 // total:
                tell(f"{part}: {done} of {total} trials")

        yield tell_quarters
        return
    with bars(MofNCompleteColumn()) as shown:
        known = {part: shown.add_task(part, total=None) for part in parts}

        def show_bar(part: str, done: int, total: int) -> None:
            kind = part.split()[0].rstrip(":")
            if kind not in known:
                known[kind] = shown.add_task(part)
            shown.update(known[kind], description=part, completed=done, total=total)

        yield show_bar
