"""Opens the store of a planned run, new or existing, and tells listeners when the run begins and ends."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from fairlag.core.strategy import Strategy
from fairlag.errors import FairlagError, InputError, Interrupted, StoreError, UnreadableError, WorkerError
from fairlag.lab import rollback
from fairlag.lab.events import Begun, Over, Tell
from fairlag.lab.experiment import Experiment
from fairlag.lab.folder import MODEL, check_experiment, check_model, is_run
from fairlag.lab.lock import check_free
from fairlag.lab.plan import Planned, difference, settings_of
from fairlag.lab.resources import Resources
from fairlag.lab.run import Run
from fairlag.lab.serialise import key_of
from fairlag.lab.store import KEPT, Store
from fairlag.limits import printable

_NO_NUMBA = "none"
"""What an older fairlag noted of a run that it would have trained by compiled loops, had there been numba."""


def check_same(planned: Planned) -> None:
    """Refuses to continue a run that another experiment began, or that another process is making."""
    check_free(planned.folder)
    if not is_run(planned.folder):
        return
    run = Run(planned.folder)
    check_experiment(planned.folder, run.meta)
    if run.meta.get("experiment_sha256") != planned.sha256:
        there = json.dumps({"experiment": run.settings})
        raise InputError(
            f"the run in {str(planned.folder)!r} was made by a different experiment: {difference(there, planned.text)}"
        )
    if run.meta["status"] == "finished":
        _check_ended(planned.folder, run.meta)


def _check_ended(folder: Path, meta: Mapping[str, Any]) -> None:
    """Goes back to the last checkpoint of a run that lost its model, so that it is made again; refuses one without."""
    try:
        check_model(folder, meta)
    except UnreadableError:
        if not (there := rollback.points(folder)):
            sentence = (
                f"the run in {str(folder)!r} is finished, but its {MODEL} is gone or damaged, and it has no checkpoint "
                "to make it from: restore the file from a backup, or run its experiment again in another folder"
            )
            raise UnreadableError.of(folder, sentence) from None
        rollback.rollback(folder, there[0].version)


def opened(
    resources: Resources, planned: Planned, meta: Mapping[str, object] | None = None, queued: int = 1, keep: int = KEPT
) -> Store:
    """The store of a run, created if there is none; `meta` is what else to note of it.

    Each client of the experiment counts once per task that it may have at once; `keep` checkpoints are kept.
    """
    experiment, setting = resources.experiment, resources.setting(planned.seed)
    facts = _learnt(resources) if experiment.data is not None else {}
    if is_run(planned.folder):
        store = Store.open(planned.folder, keep)
        if store.meta.get("data") != facts.get("data"):
            store.close()
            raise InputError(f"the data of the run in {str(planned.folder)!r} has changed since it was begun")
        return store
    counts = [queued * table.count for table in experiment.clients]
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
            "queues": _queues(experiment.strategy(planned.use)),
            **_versions(experiment),
            **facts,
            **(meta or {}),
        },
        experiment=planned.text,
        groups=[table.group for table in experiment.clients],
        group_of=np.repeat(np.arange(len(counts)), counts),
        examples=np.repeat(setting.examples, queued),
        keep=keep,
    )


def begun(planned: Planned, meta: Mapping[str, Any]) -> Begun:
    """What listeners are told when a run begins or continues."""
    return Begun(
        key=meta.get("key", planned.sha256[:32]),  # those begun before runs had a key have none
        experiment=meta["experiment"],
        label=meta["label"],
        seed=planned.seed,
        folder=planned.folder,
        settings=settings_of(planned),
        created=datetime.fromisoformat(meta["created"]).timestamp(),
    )


def over(meta: Mapping[str, Any]) -> Over:
    """What listeners are told when a run ends, for good or for now."""
    status = meta["status"]
    return Over("interrupted" if status == "running" else status, meta["reason"] or "")


@contextmanager
def told(store: Store, planned: Planned, tell: Tell) -> Iterator[None]:
    """Inside, a run is made: listeners hear of its beginning and end, and the store why it failed."""
    tell(begun(planned, store.meta))
    try:
        yield
    except Interrupted as interruption:
        raise Interrupted(f"{interruption} of {name_of(planned)}") from None
    except (StoreError, WorkerError):
        raise
    except FairlagError as error:
        store.fail(str(error))
        raise
    finally:
        tell(over(store.meta))


def name_of(planned: Planned) -> str:
    """A run in words."""
    return f"{planned.use.label}, seed {planned.seed}"


def _queues(strategy: Strategy) -> bool:
    """Do idle clients wait to be picked? Who looks at the run later cannot build a strategy that is code."""
    return strategy.select.places is not None or strategy.select.rounds


def engine(resources: Resources, planned: Planned) -> dict[str, str]:
    """Which engine trains the tasks of a run, to be noted of it; nothing if there is nothing to train."""
    experiment = resources.experiment
    if experiment.data is None:
        return {}
    if not resources.is_compiled(experiment.strategy(planned.use)):
        return {"engine": "standard"}
    return {"engine": "compiled", "numba": metadata.version("numba")}


def clock(experiment: Experiment, planned: Planned) -> dict[str, object]:
    """What is noted of a run on the wall clock, with a label that says so; nothing in virtual time."""
    if experiment.clock is None:
        return {}
    label = planned.use.label + experiment.on_the_clock
    return {"label": label, "clock": experiment.clock, "speed": experiment.speed or 1.0}


def check_engine(folder: Path) -> None:
    """Refuses to continue a run that an older fairlag trained by compiled loops because numba was installed."""
    meta = Run(folder).meta if is_run(folder) else {}
    if "engine" not in meta and meta.get("numba", _NO_NUMBA) != _NO_NUMBA:
        raise InputError(
            f"the run in {str(folder)!r} was begun by an older fairlag, which trained it by compiled loops without "
            "being asked, and cannot be continued with the same bytes: run its experiment again in a different folder, "
            'with engine = "compiled" in [local] if it should be as fast'
        )


def remark_on_versions(folders: Iterable[Path]) -> None:
    """Says on stderr if unfinished runs were begun with other versions of the libraries than are installed now."""
    begun = [Run(folder).meta for folder in folders if is_run(folder)]
    for name in ("numpy", "torch", "numba"):
        noted = {meta[name] for meta in begun if name in meta} - {_NO_NUMBA}
        if others := noted and sorted(noted - {now := metadata.version(name)}):
            sentence = f"begun with {name} {others[0]}, resumed with {now}: the bytes may differ"
            print(printable(sentence), file=sys.stderr, flush=True)


def _versions(experiment: Experiment) -> dict[str, str]:
    """Of the libraries that every number of a run goes through."""
    names = ("numpy",) if experiment.data is None else ("numpy", "torch")
    return {name: metadata.version(name) for name in names}


def _learnt(resources: Resources) -> dict[str, object]:
    """What must be known to build the model again, and to see that the data is the same."""
    data = resources.data
    return {"data": data.fingerprint, "shape": data.shape, "classes": data.classes}
