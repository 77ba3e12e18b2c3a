"""Running an experiment: every run of a plan in turn, new or resumed; and `fairlag.simulate`, its Python side."""

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from fairlag.errors import FairlagError, InputError, Interrupted, StoreError, WorkerError
from fairlag.lab.conduct import Conductor
from fairlag.lab.events import Begun, Event, Over, Tell
from fairlag.lab.experiment import Experiment, Use, load, parse
from fairlag.lab.folder import EXPERIMENT, check_free, is_run
from fairlag.lab.plan import Plan, Planned, difference, key_of, settings_of
from fairlag.lab.run import Run
from fairlag.lab.store import Store
from fairlag.lab.track.listen import Trackers
from fairlag.lab.workshop import Workshop

Watch = Callable[[Planned, Event], None]


def execute(plan: Plan, *, new: bool = False, workers: int | None = None, watch: Watch | None = None) -> list[Run]:
    """Makes every run of a plan that is not finished, from its last checkpoint where it has one.

    A new plan is saved once its data and model were had, so that a mistake in them leaves nothing behind. A run of
    several that fails does not keep the others from being made: what failed, and why, is said at the end. Trackers are
    told of finished runs, too: the process may have been killed right before it told them of the end.
    """
    if new:
        plan.check_new()
    for planned in plan:
        _check_same(planned)
    trackers = Trackers(plan.experiment.track, plan.home)

    def tell(planned: Planned, event: Event) -> None:
        if watch is not None:
            watch(planned, event)
        trackers(event)

    for planned in (each for each in plan if trackers and _status(each) == "finished"):
        meta = Run(planned.folder).meta
        trackers(_begun(planned, meta))
        trackers(_over(meta))
    left = sorted((each for each in plan if _status(each) != "finished"), key=lambda each: _status(each) == "failed")
    if left:
        with closing(Workshop(plan.experiment, workers=workers)) as workshop:
            if new:
                workshop.setting(left[0].seed)
                plan.save()
            _remark_on_versions(workshop, left)
            _make(workshop, plan, left, tell)
    return [Run(planned.folder) for planned in plan]


def simulate(
    experiment: Experiment | Mapping[str, Any] | str | Path,
    *,
    strategy: Any = None,
    seed: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    track: str | Sequence[str] | None = None,
    watch: Tell | None = None,
) -> Run:
    """Trains with one strategy in virtual time and returns the run.

    `experiment` is one, its tables, a file or a preset; `strategy` a label or `use` of it, a name of the zoo, a
    weighting of (buffer, view), or a Strategy, and may be left out where the experiment has only one. Without `out`
    the run is kept in a temporary folder, as long as the returned Run lives. `track` names trackers instead of those of
    the experiment, and `watch` hears every event of `fairlag.lab.events`.
    """
    whole = _given(experiment)
    chosen = _chosen(whole, strategy)
    if seed is not None:
        chosen = chosen.checked(seed=seed)
    if track is not None:
        chosen = chosen.checked(track=track)
    temporary = None
    if out is None:
        if chosen.track:
            raise InputError(
                f"a run that is tracked by {chosen.track[0]} is not kept in a temporary folder: give `out`"
            )
        temporary = tempfile.TemporaryDirectory(prefix="fairlag-", ignore_cleanup_errors=True)
        out = temporary.name
    plan = Plan(chosen, (chosen.seed,), Path(out), single=True)
    new = not (resume and is_run(plan.folder))
    seen = None if watch is None else lambda _, event: watch(event)
    run = execute(plan, new=new, workers=workers, watch=seen)[0]
    run.kept = temporary
    return run


def _given(experiment: Experiment | Mapping[str, Any] | str | Path) -> Experiment:
    if isinstance(experiment, Experiment):
        return experiment
    return parse(dict(experiment)) if isinstance(experiment, Mapping) else load(experiment)


def _chosen(experiment: Experiment, strategy: Any) -> Experiment:
    if isinstance(strategy, str):
        experiment = experiment.only([strategy])
    elif strategy is not None:
        experiment = experiment.checked(strategies=(Use(use=strategy),))
    if len(experiment.strategies) > 1:
        labels = ", ".join(repr(use.label) for use in experiment.strategies)
        raise InputError(f"simulate makes one run, but there are several strategies: name one of {labels}")
    return experiment


def _status(planned: Planned) -> str | None:
    """What the run itself says: one that nobody writes may still say that it is running."""
    return str(Run(planned.folder).meta["status"]) if is_run(planned.folder) else None


def _check_same(planned: Planned) -> None:
    """Refuses to go on with a run that another experiment began, or that another process is making."""
    check_free(planned.folder)
    if is_run(planned.folder) and Run(planned.folder).meta["experiment_sha256"] != planned.sha256:
        there = (planned.folder / EXPERIMENT).read_text("utf-8")
        raise InputError(
            f"the run in {str(planned.folder)!r} was made by a different experiment: {difference(there, planned.text)}"
        )


def _make(workshop: Workshop, plan: Plan, left: list[Planned], watch: Watch) -> None:
    failures: dict[str, FairlagError] = {}
    for planned in left:
        try:
            _conduct(workshop, planned, watch)
        except (Interrupted, StoreError, WorkerError):
            raise
        except FairlagError as error:
            if len(plan) == 1:
                raise
            failures[_name(planned)] = error
            workshop.close()  # whatever is still being computed was for this run
    if failures:
        reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
        is_input = all(isinstance(error, InputError) for error in failures.values())
        raise (InputError if is_input else FairlagError)(
            f"{len(failures)} of {len(plan)} runs failed, `fairlag resume {plan.folder}` tries them again: {reasons}"
        )


def _conduct(workshop: Workshop, planned: Planned, watch: Watch) -> None:
    with _store(workshop, planned) as store:
        tell = partial(watch, planned)
        tell(_begun(planned, store.meta))
        try:
            Conductor(workshop, planned.use, planned.seed, store, tell).to_the_end()
        except Interrupted as interruption:
            raise Interrupted(f"{interruption} of {_name(planned)}") from None
        except (StoreError, WorkerError):
            raise
        except FairlagError as error:
            store.fail(str(error))
            raise
        finally:
            tell(_over(store.meta))


def _begun(planned: Planned, meta: Mapping[str, Any]) -> Begun:
    return Begun(
        key=meta.get("key", planned.sha256[:32]),  # those begun before runs had a key have none
        experiment=meta["experiment"],
        label=planned.use.label,
        seed=planned.seed,
        folder=planned.folder,
        settings=settings_of(planned),
        created=datetime.fromisoformat(meta["created"]).timestamp(),
    )


def _over(meta: Mapping[str, Any]) -> Over:
    status = meta["status"]
    return Over("interrupted" if status == "running" else status, meta["reason"] or "")


def _name(planned: Planned) -> str:
    return f"{planned.use.label}, seed {planned.seed}"


def _store(workshop: Workshop, planned: Planned) -> Store:
    experiment, setting = workshop.experiment, workshop.setting(planned.seed)
    facts = _learnt(workshop) if experiment.data is not None else {}
    if is_run(planned.folder):
        store = Store.open(planned.folder)
        if store.meta.get("data") != facts.get("data"):
            store.close()
            raise InputError(f"the data of the run in {str(planned.folder)!r} has changed since it was begun")
        return store
    return Store.create(
        planned.folder,
        {
            "key": uuid4().hex,
            "experiment": experiment.name,
            "label": planned.use.label,
            "use": planned.use.name,
            "seed": planned.seed,
            "aggregations": experiment.aggregations,
            "until_time": experiment.until_time,
            "experiment_sha256": planned.sha256,
            "experiment_key": key_of(experiment),
            **_versions(workshop),
            **facts,
        },
        experiment=planned.text,
        groups=[table.group for table in experiment.clients],
        group_of=np.repeat(np.arange(len(experiment.clients)), [table.count for table in experiment.clients]),
        examples=setting.examples,
    )


def _learnt(workshop: Workshop) -> dict[str, object]:
    """What must be known to build the model again, and to see that the data is the same."""
    data = workshop.data
    return {"data": data.fingerprint, "shape": data.shape, "classes": data.classes}


def _versions(workshop: Workshop) -> dict[str, str]:
    """Of the libraries that every number goes through."""
    names = ("numpy", "torch") if workshop.experiment.data is not None else ("numpy",)
    return {name: metadata.version(name) for name in names}


def _remark_on_versions(workshop: Workshop, left: list[Planned]) -> None:
    begun = [Run(planned.folder).meta for planned in left if is_run(planned.folder)]
    for name, version in _versions(workshop).items():
        if other := next((meta[name] for meta in begun if meta.get(name, version) != version), None):
            sentence = f"begun with {name} {other}, resumed with {version}: the bytes may differ"
            print(sentence, file=sys.stderr, flush=True)
