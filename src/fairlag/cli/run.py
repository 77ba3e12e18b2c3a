"""`fairlag run` and `fairlag resume`: train every strategy with every seed, and show progress."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fairlag.cli.progress import watching
from fairlag.cli.results import conclude
from fairlag.cli.sweep import finish
from fairlag.cli.terminal import (
    Address,
    Aggregations,
    Device,
    Executor,
    NoCode,
    Settings,
    Source,
    Strategies,
    Track,
    Workers,
    at_least_one,
    chosen,
    number_of_seeds,
    say,
)
from fairlag.errors import InputError, Interrupted
from fairlag.lab.experiment import Experiment, load
from fairlag.lab.plan import Plan, slug
from fairlag.lab.simulate import execute
from fairlag.lab.sweep.plan import SweepPlan, is_sweep


def run(
    source: Source,
    strategy: Strategies = None,
    seeds: Annotated[int, typer.Option(metavar="K", help="Number of seeds per strategy.")] = 1,
    seed: Annotated[int | None, typer.Option(metavar="S", help="The first seed; default: the file's.")] = None,
    settings: Settings = None,
    aggregations: Aggregations = None,
    workers: Workers = None,
    executor: Executor = None,
    address: Address = None,
    device: Device = None,
    track: Track = None,
    clock: Annotated[
        str | None,
        typer.Option(
            metavar="virtual|wall",
            help="virtual: time jumps from event to event; wall: time really passes, and each client is a thread that "
            "sleeps. Default: the file's, or virtual.",
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(metavar="N", help="With --clock wall: seconds of fleet time per second of real time."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the runs; default: runs/NAME, with the name of the experiment."),
    ] = None,
    no_code: NoCode = False,
) -> None:
    """Train every strategy with every seed, compare them, and draw their accuracy or other leading metric."""
    number_of_seeds(seeds)
    with redirect_stdout(sys.stderr):
        experiment = chosen(load(source), strategy, settings)
        experiment = _executed(_begun_at(experiment, seed, aggregations), device, track)
        experiment = _clocked(experiment, clock, speed)
    folder = Path("runs") / slug(experiment.name + experiment.on_the_clock, "experiment") if out is None else out
    first = experiment.seed
    plan = Plan(experiment, tuple(range(first, first + seeds)), folder)
    _make(plan, workers, executor, address, new=True)


def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An interrupted run, or a folder of runs.")],
    workers: Workers = None,
    executor: Executor = None,
    address: Address = None,
    device: Device = None,
    track: Track = None,
    no_code: NoCode = False,
) -> None:
    """Continue interrupted runs, or a sweep; in virtual time, results are byte-identical to those of one go."""
    if is_sweep(folder):
        with redirect_stdout(sys.stderr):
            sweep = SweepPlan.open(folder)
        finish(
            replace(sweep, experiment=_executed(sweep.experiment, device, None)), workers, executor, address, new=False
        )
        return
    with redirect_stdout(sys.stderr):
        plan = Plan.open(folder)
        plan = replace(plan, experiment=_executed(plan.experiment, device, track))
    _make(plan, workers, executor, address, new=False)


def _begun_at(experiment: Experiment, seed: int | None, aggregations: int | None) -> Experiment:
    if aggregations is not None:
        experiment = experiment.checked(aggregations=at_least_one("--aggregations", aggregations))
    if seed is not None:
        if seed < 0:
            raise InputError(f"--seed is {seed}, it must be at least 0")
        experiment = experiment.checked(seed=seed)
    return experiment


def _clocked(experiment: Experiment, clock: str | None, speed: float | None) -> Experiment:
    changes: dict[str, object] = {"speed": None} if clock == "virtual" else {}  # the file's speed is for the wall clock
    changes |= {name: value for name, value in (("clock", clock), ("speed", speed)) if value is not None}
    return experiment.checked(**changes) if changes else experiment


def _executed(experiment: Experiment, device: str | None, track: list[str] | None) -> Experiment:
    """The experiment on this device and with these trackers, instead of those that the file, or the plan, names."""
    changes: dict[str, object] = {name: value for name, value in (("device", device), ("track", track)) if value}
    return experiment.checked(**changes) if changes else experiment


def _make(plan: Plan, workers: int | None, executor: str | None, address: str | None, *, new: bool) -> None:
    if workers is not None:
        at_least_one("--workers", workers)
    with _interrupts_explained(plan):
        # Output of a user's rule must not mix with the result.
        with redirect_stdout(sys.stderr), watching(plan) as watch:
            runs = execute(plan, new=new, workers=workers, executor=executor, address=address, watch=watch)
        if not watch.began:
            say(f"Every run in {plan.folder} is finished: there is nothing to do\n")
        conclude(runs, plan.folder, trained=plan.experiment.data is not None)


@contextmanager
def _interrupts_explained(plan: Plan) -> Iterator[None]:
    """Inside, Ctrl-C says how to continue, whether it comes before, during or after a run or its checkpoint."""
    try:
        yield
    except Interrupted as interruption:
        raise Interrupted(f"{interruption}: `fairlag resume {plan.folder}` continues from there") from None
    except KeyboardInterrupt:
        if not plan.saved:
            raise Interrupted("interrupted before the first run began; nothing was written") from None
        raise Interrupted(f"interrupted: `fairlag resume {plan.folder}` continues from the last checkpoint") from None
