"""Makes the runs of a plan, one after the other, new or resumed; and `fairlag.simulate`, one run from Python."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from functools import partial
from math import inf
from pathlib import Path
from typing import Any
from weakref import finalize

from fairlag.errors import FairlagError, InputError, Interrupted, StoreError, UnreadableError, WorkerError
from fairlag.execute import Evaluating
from fairlag.execute.child import stop_if_started_again
from fairlag.lab.ending import terminated_cleanly
from fairlag.lab.evaluations import MOST_PENDING, Evaluations
from fairlag.lab.events import Event, Tell
from fairlag.lab.executors import ExecutorChoice
from fairlag.lab.experiment import Experiment, given
from fairlag.lab.folder import is_run
from fairlag.lab.hidden import check_extra, hidden
from fairlag.lab.loop import Facts, RunLoop
from fairlag.lab.plan import Plan, Planned
from fairlag.lab.privacy import noise_facts, simulated
from fairlag.lab.records import (
    begun,
    check_device,
    check_engine,
    check_same,
    clock,
    engine,
    name_of,
    opened,
    over,
    remark_on_versions,
    told,
)
from fairlag.lab.resources import Resources
from fairlag.lab.run import Run
from fairlag.lab.strategies import Use
from fairlag.lab.timeline import Timeline, simulated_server, virtual_time, wall_clock
from fairlag.lab.track.listen import Trackers
from fairlag.learn import devices
from fairlag.privacy.noise import SEEDED
from fairlag.runtime.compiled import available

Watch = Callable[[Planned, Event], None]


def execute(
    plan: Plan,
    *,
    new: bool = False,
    workers: int | None = None,
    executor: str | None = None,
    address: str | None = None,
    watch: Watch | None = None,
) -> list[Run]:
    """Makes every run of a plan that is not finished, from its last checkpoint if it has one.

    A new plan is saved after its data and model are loaded, so that a mistake in them leaves no files behind. If one of
    several runs fails, or cannot be read, the others continue: at the end, one error names all failed runs. Trackers
    are told about finished runs too, because the process may have been killed right before it told them of the end.
    """
    stop_if_started_again()
    choice = ExecutorChoice(executor, workers, address)
    if new:
        plan.check_new()
    damaged = _damaged(plan)
    trackers = Trackers(plan.experiment.track, plan.home)

    def tell(planned: Planned, event: Event) -> None:
        if watch is not None:
            watch(planned, event)
        trackers(event)

    readable = [each for each in plan if name_of(each) not in damaged]
    for planned in (each for each in readable if trackers and _status(each) == "finished"):
        meta = Run(planned.folder).meta
        trackers(begun(planned, meta))
        trackers(over(meta))
    left = [each for each in readable if _status(each) != "finished"]
    left.sort(key=lambda each: _status(each) == "failed")
    if left:
        for use in plan.experiment.strategies:  # refuses a budget that allows no update
            simulated(plan.experiment.privacy, plan.experiment.strategy(use), plan.experiment.seed)
        if plan.experiment.data is not None:
            choice.check()
            _check_extra(plan.experiment)
            check_extra(plan.experiment)
            choice.on(devices.resolved(plan.experiment.device))
        with closing(Resources(plan.experiment, choice)) as resources:
            if new:
                resources.of(left[0].use).setting(left[0].seed)
                plan.save()
            remark_on_versions((planned.folder for planned in left), resources.device)
            _make(resources, plan, left, tell, damaged)
    _check_made(plan, damaged)
    return [_made(planned, plan.experiment) for planned in plan]


def _made(planned: Planned, experiment: Experiment) -> Run:
    run = Run(planned.folder)
    run.trusted = True
    if experiment.model is not None and callable(experiment.model.use):
        run.make = experiment.model.use
    return run


def simulate(
    experiment: Experiment | Mapping[str, Any] | str | Path,
    *,
    strategy: Any = None,
    seed: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    executor: str | None = None,
    address: str | None = None,
    device: str | None = None,
    track: str | Sequence[str] | None = None,
    watch: Tell | None = None,
) -> Run:
    """Trains with one strategy, in virtual time unless the experiment has a different clock, and returns the run.

    `experiment` is an Experiment, its tables, a file or a preset. `strategy` is a label or `use` of the experiment, an
    algorithm of the zoo, a weighting of (buffer, view), or a Strategy; it may be omitted if the experiment has only
    one. Without `out`, the run is kept in a temporary folder as long as the returned Run exists. `executor` is a name
    in `fairlag.execute.EXECUTORS`, and `address` is that of its cluster, if it needs one; neither the executor nor the
    number of workers changes results. `device` and `track` name a device and trackers instead of the experiment's, and
    `watch` is called with every event of `fairlag.lab.events`.

    >>> import fairlag
    >>> run = fairlag.simulate(fairlag.load("demo").checked(aggregations=5), strategy="fairshare", workers=1)
    >>> run.label, run.version, run.status
    ('FairShare', 5, 'finished')
    """
    chosen = single(experiment, strategy, seed=seed, track=track, device=device)
    temporary = None
    if out is None:
        if chosen.track:
            raise InputError(f"a run that is tracked by {chosen.track[0]} cannot be in a temporary folder: give `out`")
        temporary = tempfile.TemporaryDirectory(prefix="fairlag-", ignore_cleanup_errors=True)
        out = temporary.name
    plan = Plan(chosen, (chosen.seed,), Path(out), single=True)
    new = not (resume and is_run(plan.folder))
    seen = None if watch is None else lambda _, event: watch(event)
    with terminated_cleanly() if temporary else nullcontext():
        run = execute(plan, new=new, workers=workers, executor=executor, address=address, watch=seen)[0]
    if temporary is not None:
        finalize(run, temporary.cleanup)
    return run


def single(
    experiment: Experiment | Mapping[str, Any] | str | Path,
    strategy: Any,
    *,
    seed: int | None = None,
    track: str | Sequence[str] | None = None,
    device: str | None = None,
) -> Experiment:
    """The experiment with only one strategy: the one that is named, or given as an object."""
    experiment = given(experiment)
    if isinstance(strategy, str):
        experiment = experiment.only([strategy])
    elif strategy is not None:
        experiment = experiment.checked(strategies=(Use(use=strategy),))
    if len(experiment.strategies) > 1:
        labels = ", ".join(repr(use.label) for use in experiment.strategies)
        raise InputError(f"this makes one run, but there are several strategies: name one of {labels}")
    changes = (("seed", seed), ("track", track), ("device", device))
    return experiment.alone(experiment.strategies[0], **{name: value for name, value in changes if value is not None})


def _status(planned: Planned) -> str | None:
    """The status in the run's own record: it may still be "running" although no process writes it."""
    return str(Run(planned.folder).meta["status"]) if is_run(planned.folder) else None


def _damaged(plan: Plan) -> dict[str, FairlagError]:
    """The runs that cannot be read, by name, if there are several; refuses runs of a different plan or in progress."""
    damaged: dict[str, FairlagError] = {}
    for planned in plan:
        try:
            check_same(planned)
        except UnreadableError as error:
            if len(plan) == 1:
                raise
            damaged[name_of(planned)] = error
    return damaged


def _make(
    resources: Resources, plan: Plan, left: list[Planned], watch: Watch, failures: dict[str, FairlagError]
) -> None:
    """Makes these runs; if there are several, notes which fail."""
    for planned in left:
        try:
            _run(resources.of(planned.use), planned, watch)
        except (Interrupted, StoreError, WorkerError):
            raise
        except FairlagError as error:
            if len(plan) == 1:
                raise
            failures[name_of(planned)] = error
            resources.close()  # tasks that are still being computed were for this run


def _check_made(plan: Plan, failures: Mapping[str, FairlagError]) -> None:
    if failures:
        reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
        is_input = all(isinstance(error, InputError) for error in failures.values())
        raise (InputError if is_input else FairlagError)(
            f"{len(failures)} of {len(plan)} runs failed; `fairlag resume {plan.folder}` tries them again: {reasons}"
        )


def _run(resources: Resources, planned: Planned, watch: Watch) -> None:
    tell = partial(watch, planned)
    check_engine(planned.folder)
    check_device(planned.folder, resources.device)
    experiment, setting = resources.experiment, resources.setting(planned.seed)
    strategy, real_time = experiment.strategy(planned.use), experiment.clock is not None
    with ExitStack() as held:
        noise = noise_facts(experiment.privacy, strategy, SEEDED)
        noted = {**engine(resources, planned), **clock(experiment, planned), **noise}
        store = held.enter_context(opened(resources, planned, noted))
        held.enter_context(told(store, planned, tell))
        executor = resources.executor(setting, strategy)
        evaluator: Evaluating | None = executor
        if real_time and executor is not None:
            from fairlag.execute.background import BackgroundEvaluator

            evaluator = held.enter_context(closing(BackgroundEvaluator(resources.scorer(setting, strategy.local))))
            executor.warm_up()
        every, most = experiment.evaluate.every, MOST_PENDING if real_time else inf
        evaluations = Evaluations(store, evaluator, setting.scoring, every=every, most_pending=most)
        reference = resources.reference(executor)
        executor, secure = hidden(experiment, setting, executor)
        server = simulated_server(experiment, setting, strategy, store, evaluations, reference, secure)
        timeline: Timeline
        facts: Facts = dict
        if real_time:
            timeline = wall = wall_clock(server, experiment, setting, executor)
            held.enter_context(closing(wall))
            facts = wall.lateness.facts
        else:
            timeline = virtual_time(server, experiment, setting, executor)
        RunLoop(server, timeline, store, evaluations, setting.layout, tell, facts=facts).to_the_end()


def _check_extra(experiment: Experiment) -> None:
    """Refuses compiled training without the extra that it needs."""
    if experiment.local.engine == "compiled" and not available():
        raise InputError("engine = \"compiled\" in [local] needs the extra `fast`: pip install 'fairlag[fast]'")
