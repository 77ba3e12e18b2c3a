"""Makes a sweep, new or resumed: rounds of trials, then the tests of the best settings on the test examples."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from time import monotonic
from typing import Any

from fairlag.errors import FairlagError, Interrupted, StoreError, WorkerError
from fairlag.execute.crew import Crew
from fairlag.lab.executors import ExecutorChoice, cores, usable
from fairlag.lab.folder import SUMS, is_run
from fairlag.lab.lock import locked
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute
from fairlag.lab.sweep.guided import TRIALS, Guided
from fairlag.lab.sweep.objective import Objective
from fairlag.lab.sweep.plan import SweepPlan
from fairlag.lab.sweep.result import Result, SweepResult, Tried, Tuned, keep, kept
from fairlag.lab.sweep.search import Search, kind_of, listing
from fairlag.lab.sweep.table import seconds
from fairlag.lab.sweep.trial import Where, made
from fairlag.learn import devices

Progress = Callable[[str, int, int], None]
"""Called with what is being made ("tuning" or "testing"), how many are done, and how many there are."""
Answers = Callable[[Callable[[Any, Any], Any], Sequence[Any]], Iterator[Any]]
"""Calls a function for each of several things; the results are in the same order."""


def make(plan: SweepPlan, choice: ExecutorChoice, progress: Progress, *, new: bool) -> list[Run]:
    """Makes all trials, then trains with the best setting of each strategy and tests it with fresh seeds.

    Without an executor, whole trials are made in several processes at the same time. With one, they are made one after
    the other, and the executor computes their tasks. Results are the same.
    """
    choice.check()
    searches = searches_of(plan)
    objective = plan.objective  # refuses what cannot be trained before anything is written
    if new:
        plan.save()
    with closing(locked(plan.folder)), _answers(plan, choice, objective) as answers:
        found = kept(plan.folder, SweepResult)
        if found is None:
            found = SweepResult(objective, plan.seeds, _tuned(plan, searches, answers, progress))
            keep(plan.folder, found)
        return _tested(plan.final(found), answers, progress)


def searches_of(plan: SweepPlan) -> list[Search]:
    """How the settings of each strategy are chosen."""
    sweep, kind, seed = plan.sweep, kind_of(plan.sweep, plan.spaces), plan.experiment.seed
    if kind != "guided":
        return [listing(space, sweep, kind, seed) for space in plan.spaces]
    higher = plan.objective.higher
    return [
        Guided(space, sweep.trials or TRIALS, seed, plan.folder, higher=higher)
        if space.domains
        else listing(space, sweep, "grid", seed)
        for space in plan.spaces
    ]


@contextmanager
def _answers(plan: SweepPlan, choice: ExecutorChoice, objective: Objective) -> Iterator[Answers]:
    if choice.executor is None:
        wanted = choice.on(devices.resolved(plan.experiment.device)).workers or cores()
        if (workers := usable(wanted)) > 1:
            with closing(Crew((objective, Where()), workers)) as crew:
                yield crew.answers
            return
    where = Where(choice.workers, choice.executor, choice.address) if choice.executor else Where()
    yield lambda ask, details: map(partial(ask, (objective, where)), details)


def _tuned(plan: SweepPlan, searches: Sequence[Search], answers: Answers, progress: Progress) -> list[Tuned]:
    """Makes rounds of trials until there is nothing more to try, or the budget is over."""
    end = None if plan.sweep.budget is None else monotonic() + seconds(plan.sweep.budget)
    tried: list[list[Tried]] = [[] for _ in searches]
    total, done, number = sum(search.total for search in searches), 0, 0
    while end is None or number == 0 or monotonic() < end:
        asked = [search.ask(number) for search in searches]
        trials = [
            [plan.trial(space, *each) for each in zip(*round_of, strict=True)]
            for space, round_of in zip(plan.spaces, asked, strict=True)
        ]
        if not any(trials):
            break
        once = {trial.name: trial for each in trials for trial in each}
        results = dict[str, Result]()
        for name, result in zip(once, answers(made, list(once.values())), strict=True):
            results[name] = result
            done += sum(trial.name == name for each in trials for trial in each)
            progress("tuning", done, total)
        for mine, search, (settings, _), each in zip(tried, searches, asked, trials, strict=True):
            found = [results[trial.name] for trial in each]
            search.tell(number, settings, found)
            mine += [Tried(dict(trial.setting), trial.name, results[trial.name]) for trial in each]
        number += 1
    higher = plan.objective.higher
    return [Tuned.of(space.use.label, mine, higher=higher) for space, mine in zip(plan.spaces, tried, strict=True)]


def _tested(plan: Plan, answers: Answers, progress: Progress) -> list[Run]:
    """Trains with the best settings, and tests them on the test examples."""
    if not plan.saved:
        plan.save()
    alone = [Plan(plan.experiment.alone(planned.use), (planned.seed,), planned.folder, single=True) for planned in plan]
    for done, _ in enumerate(answers(_run, alone), 1):
        progress("testing", done, len(alone))
    return [Run(planned.folder) for planned in plan]


def _run(task: tuple[Objective, Where], plan: Plan) -> None:
    """Makes one run; that its model diverged is a result, too."""
    if is_run(plan.folder):
        status = Run(plan.folder).status
        if status == "failed" or (status == "finished" and (plan.folder / SUMS).exists()):
            return
    try:
        execute(plan, new=not is_run(plan.folder), **task[1]._asdict())
    except (Interrupted, StoreError, WorkerError):
        raise
    except FairlagError:
        if not is_run(plan.folder):
            raise
