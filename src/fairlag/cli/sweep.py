"""`fairlag sweep`: tries settings of every strategy on validation examples, then tests the best with fresh seeds."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlag.analyse.sweep import Swept
from fairlag.cli.audit import trials_progress
from fairlag.cli.results import conclude
from fairlag.cli.terminal import (
    Address,
    Aggregations,
    Device,
    Executor,
    NoCode,
    Settings,
    Source,
    Strategies,
    Workers,
    at_least_one,
    chosen,
    number_of_seeds,
    say,
    show,
)
from fairlag.errors import Interrupted
from fairlag.lab.executors import ExecutorChoice
from fairlag.lab.experiment import load
from fairlag.lab.plan import slug
from fairlag.lab.sweep.make import make
from fairlag.lab.sweep.plan import SweepPlan, is_sweep
from fairlag.lab.sweep.space import options
from fairlag.report.sweep import sweep_table


def sweep(
    source: Source,
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="What to try: lr=0.1,0.3,1 (every strategy that has it), local.lr='log(0.01,0.3)', or "
            "strategies.fedbuff.buffer=5,10. Repeatable; added to `over` in \\[sweep].",
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(metavar="grid|random|guided", help="How settings are chosen; guided needs the extra `sweep`."),
    ] = None,
    trials: Annotated[int | None, typer.Option(metavar="N", help="Number of trials per strategy.")] = None,
    seeds: Annotated[int | None, typer.Option(metavar="K", help="Number of seeds per trial.")] = None,
    tests: Annotated[int | None, typer.Option(metavar="K", help="Number of fresh seeds for the best.")] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="accuracy|group|time:0.9", help="What is best, on validation examples.")
    ] = None,
    budget: Annotated[str | None, typer.Option(metavar="TIME", help="Most time for trials, such as 30m.")] = None,
    strategy: Strategies = None,
    settings: Settings = None,
    aggregations: Aggregations = None,
    workers: Workers = None,
    executor: Executor = None,
    address: Address = None,
    device: Device = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the sweep; default: runs/NAME-sweep.")
    ] = None,
    no_code: NoCode = False,
) -> None:
    """Tune every strategy with the same number of trials on validation examples, then test the best settings."""
    given = {"search": search, "trials": trials, "seeds": seeds, "tests": tests, "metric": metric, "budget": budget}
    for option, number in (("--seeds", seeds), ("--tests", tests)):
        if number is not None:
            number_of_seeds(number, option)
    with redirect_stdout(sys.stderr):
        experiment = chosen(load(source), strategy, settings)
        table: dict[str, Any] = {} if experiment.sweep is None else experiment.sweep.model_dump()
        table |= {name: value for name, value in given.items() if value is not None}
        table["over"] = {**table.get("over", {}), **options(over or [])}
        changes: dict[str, Any] = {"sweep": table} | ({} if device is None else {"device": device})
        if aggregations is not None:
            changes["aggregations"] = at_least_one("--aggregations", aggregations)
        experiment = experiment.checked(**changes)
    folder = Path("runs") / slug(f"{experiment.name}-sweep", "sweep") if out is None else out
    finish(SweepPlan(experiment, folder), workers, executor, address, new=True)


def finish(plan: SweepPlan, workers: int | None, executor: str | None, address: str | None, *, new: bool) -> None:
    """Makes a sweep, or the rest of one, and shows what came of it."""
    if workers is not None:
        at_least_one("--workers", workers)
    choice = ExecutorChoice(executor, workers, address)
    with _interrupts_explained(plan.folder):
        with redirect_stdout(sys.stderr), trials_progress("tuning", "testing") as progress:
            runs = make(plan, choice, progress, new=new)
        swept = Swept.of(plan.folder)
        show(sweep_table(swept))
        by, targets = swept.objective.ranking
        conclude(runs, plan.folder, trained=True, by=by, targets=targets)
        say(f"`fairlag compare {plan.folder} --export best.toml` writes the best settings as an experiment file")


@contextmanager
def _interrupts_explained(folder: Path) -> Iterator[None]:
    """Inside, Ctrl-C says how to continue."""
    try:
        yield
    except (KeyboardInterrupt, Interrupted):
        if not is_sweep(folder):
            raise Interrupted("interrupted before the first trial began; nothing was written") from None
        raise Interrupted(f"interrupted: `fairlag resume {folder}` continues the sweep") from None
