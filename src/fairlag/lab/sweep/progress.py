"""How far an unfinished sweep is, and which command continues it."""

from pathlib import Path

from fairlag.errors import FairlagError
from fairlag.lab.folder import PLAN, is_run
from fairlag.lab.lock import is_locked
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.sweep.guided import TRIALS as GUIDED_TRIALS
from fairlag.lab.sweep.plan import FINAL, TRIALS, SweepPlan, is_sweep
from fairlag.lab.sweep.result import RESULT
from fairlag.lab.sweep.search import kind_of, listing


def unfinished(folder: Path) -> str | None:
    """How far the sweep in a folder is and how to continue it, in a sentence; None if it is finished, or no sweep."""
    if not is_sweep(folder):
        return None
    if not (folder / RESULT).is_file():
        trials, total = made(folder), _most(folder)
        done = f"{trials:,}{f' of at most {total:,}' if total else ''} trials are made"
    else:
        ended, tests = _tests(folder)
        if tests and ended == tests:
            return None
        done = f"all trials are made, and {ended:,}{f' of {tests:,}' if tests else ''} tests of the best settings"
    if is_locked(folder):
        return f"the sweep in {str(folder)!r} is still running: {done}"
    return f"the sweep in {str(folder)!r} is not finished: {done}; `fairlag resume {folder}` continues it"


def made(folder: Path) -> int:
    """The number of trials of which it is known what came of them."""
    return sum(1 for _ in (folder / TRIALS).glob(f"*/{RESULT}"))


def _most(folder: Path) -> int | None:
    """The most trials that the sweep can make; None if that is not known without the user's own code."""
    try:
        plan = SweepPlan.open(folder, code=False)
        kind = kind_of(plan.sweep, plan.spaces)
        if kind == "guided":
            return len(plan.spaces) * (plan.sweep.trials or GUIDED_TRIALS)
        return sum(listing(space, plan.sweep, kind, plan.experiment.seed).total for space in plan.spaces)
    except FairlagError:
        return None


def _tests(folder: Path) -> tuple[int, int]:
    """How many tests of the best settings have ended, and how many there are; 0 if they are not planned yet."""
    if not (folder / FINAL / PLAN).is_file():
        return 0, 0
    planned = [each.folder for each in Plan.open(folder / FINAL, code=False)]
    return sum(is_run(each) and Run(each).status in ("finished", "failed") for each in planned), len(planned)
