"""Repeats a run of an unpacked bundle, from its beginning to an aggregation or to its end."""

from contextlib import chdir
from pathlib import Path

from fairlag.errors import FairlagError, InputError, Interrupted, StoreError, WorkerError
from fairlag.lab.bundle import named
from fairlag.lab.events import Evaluated, Event, Progress
from fairlag.lab.folder import EXPERIMENT, is_run
from fairlag.lab.plan import Plan, Planned, experiment_in, read_tables
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute


class Unrepeatable(InputError):
    """A run that cannot be repeated, whoever tries."""


class _Until:
    """Ends a run as soon as it has made, and evaluated, all versions up to one.

    The experiment keeps its own length, because schedules and noise may depend on it.
    """

    def __init__(self, version: int, every: int | None) -> None:
        self._version = version
        self._wanted = None if every is None else version - version % every
        self._evaluated = -1
        self.reached = False

    def __call__(self, planned: Planned, event: Event) -> None:
        """Takes an event of the run."""
        if isinstance(event, Evaluated):
            self._evaluated = event.version
        elif isinstance(event, Progress) and event.version >= self._version and self._is_evaluated:
            self.reached = True
            raise Interrupted(f"ended at version {event.version}")

    @property
    def _is_evaluated(self) -> bool:
        return self._wanted is None or self._evaluated >= self._wanted


def check_repeatable(run: Run) -> None:
    """Refuses a run that would not be the same again."""
    if run.deployed:
        raise Unrepeatable("a real fleet made it, which does not do the same twice")
    if run.real_time:
        raise Unrepeatable("its time really passed, so it depends on the speed of a machine")
    if given := named.objects(run.settings):
        raise Unrepeatable(f"it was given the Python object {given[0]}, which no file holds")
    for path in named.files(run.settings):
        if not named.is_inside(path):
            raise InputError(f"its experiment names {path!r}, which is not in the bundle")


def repeated(frozen: Run, home: Path, target: Path, until: int | None, workers: int | None) -> Run:
    """Makes the run again in an empty folder; imports what its experiment names from `home`."""
    file = frozen.folder / EXPERIMENT
    tables = {**read_tables(file), "folder": str(home), "device": frozen.meta.get("device")}
    with chdir(home):  # the user's code may open files by names that are relative to it
        experiment = experiment_in(tables, file, code=True)
        every = None if experiment.data is None else experiment.evaluate.every
        watch = None if until is None else _Until(until, every)
        plan = Plan(experiment, (experiment.seed,), target, single=True)
        try:
            execute(plan, new=True, workers=workers, watch=watch)
        except Interrupted:
            if watch is None or not watch.reached:
                raise
        except (StoreError, WorkerError):
            raise
        except FairlagError:
            if not is_run(target) or Run(target).status != "failed":
                raise
    return Run(target)
