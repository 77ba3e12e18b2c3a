"""Opens the store of a planned run, new or existing, and tells listeners when the run begins and ends."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from fairlag.core.strategy import Strategy
from fairlag.errors import FairlagError, InputError, Interrupted, StoreError, UnreadableError, WorkerError
from fairlag.lab import rollback
from fairlag.lab.environment import environment
from fairlag.lab.events import Begun, Over, Tell
from fairlag.lab.experiment import Experiment
from fairlag.lab.folder import MODEL, SUMS, check_experiment, check_model, is_run
from fairlag.lab.lock import check_free
from fairlag.lab.plan import Planned, difference, settings_of
from fairlag.lab.resources import Resources, Setting
from fairlag.lab.run import Run
from fairlag.lab.serialise import key_of
from fairlag.lab.store import KEPT, Store
from fairlag.learn import devices
from fairlag.limits import printable

_NO_NUMBA = "none"
"""What an older fairlag noted for a run that it would have trained by compiled loops if numba had been installed."""


def check_same(planned: Planned, *, deployed: bool = False) -> None:
    """Refuses to continue a run of a different experiment or of the other kind, or one that is being written."""
    check_free(planned.folder)
    if not is_run(planned.folder):
        return
    run = Run(planned.folder)
    if run.deployed != deployed:
        what = "a deployment: run its app again" if run.deployed else "a simulation: give another `out`"
        raise InputError(f"the run in {str(planned.folder)!r} is {what}")
    check_experiment(planned.folder, run.meta)
    if run.meta.get("experiment_sha256") != planned.sha256:
        there = json.dumps({"experiment": run.settings})
        raise InputError(
            f"the run in {str(planned.folder)!r} belongs to a different experiment: {difference(there, planned.text)}"
        )
    if run.meta["status"] == "finished":
        _check_ended(planned.folder, run.meta)


def _check_ended(folder: Path, meta: Mapping[str, Any]) -> None:
    """Takes a run that lost its final model back to its last checkpoint, to make it again; refuses if it has none.

    If its process was killed at the very end, what it did not need any more is removed.
    """
    try:
        check_model(folder, meta)
    except UnreadableError:
        if not (there := rollback.points(folder)):
            sentence = (
                f"the run in {str(folder)!r} is finished, but its {MODEL} is missing or damaged, and it has no "
                "checkpoint to continue from: restore the file from a backup, or run its experiment again in another "
                "folder"
            )
            raise UnreadableError.of(folder, sentence) from None
        rollback.rollback(folder, there[0].version)
    else:
        if not (folder / SUMS).exists():
            with suppress(FairlagError):  # a read-only disk, an older format: it is finished all the same
                Store.open(folder).close()


def opened(
    resources: Resources, planned: Planned, meta: Mapping[str, object] | None = None, queued: int = 1, keep: int = KEPT
) -> Store:
    """The store of a run, created if there is none; `meta` has further facts to note.

    Each client of the experiment counts once per task that it may have at the same time; `keep` checkpoints are kept.
    """
    experiment, setting = resources.experiment, resources.setting(planned.seed)
    facts = _learnt(resources, setting) if experiment.data is not None else {}
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
        key=meta.get("key", planned.sha256[:32]),  # older runs have no key
        experiment=meta["experiment"],
        label=meta["label"],
        seed=planned.seed,
        folder=planned.folder,
        settings=settings_of(planned),
        created=datetime.fromisoformat(meta["created"]).timestamp(),
    )


def over(meta: Mapping[str, Any]) -> Over:
    """What listeners are told when a run ends, whether or not it can be resumed."""
    status = meta["status"]
    return Over("interrupted" if status == "running" else status, meta["reason"] or "")


@contextmanager
def told(store: Store, planned: Planned, tell: Tell) -> Iterator[None]:
    """Inside, a run is made: listeners are told of its beginning and end, and the store notes why it failed."""
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
    """The name of a run for messages."""
    return f"{planned.use.label}, seed {planned.seed}"


def _queues(strategy: Strategy) -> bool:
    """Do idle clients wait to be picked? Noted, because readers of the run cannot build a strategy that is code."""
    return strategy.select.places is not None or strategy.select.rounds


def engine(resources: Resources, planned: Planned) -> dict[str, str]:
    """The facts to note about the engine that trains a run; none if there is nothing to train."""
    experiment = resources.experiment
    if experiment.data is None:
        return {}
    strategy = experiment.strategy(planned.use)
    where = {"device": resources.device, "device_name": _models(resources.device)}
    if not resources.is_compiled(strategy):
        key = resources.blueprint.unimplemented(strategy.local)
        way = "compiled training" if resources.blueprint.compiled else "training many small models at once"
        reason = {"engine_reason": f"{way} does not implement {key!r}"} if key else {}
        return {"engine": "standard", **reason, **where}
    return {"engine": "compiled", "numba": metadata.version("numba"), **where}


def _models(device: str) -> str:
    """What the devices are that this name stands for."""
    return ", ".join(dict.fromkeys(each.model for each in devices.meant(device)))


def clock(experiment: Experiment, planned: Planned) -> dict[str, object]:
    """The facts to note about a run on the wall clock, and its label; none in virtual time."""
    if experiment.clock is None:
        return {}
    label = planned.use.label + experiment.on_the_clock
    return {"label": label, "clock": experiment.clock, "speed": experiment.speed or 1.0}


def check_engine(folder: Path) -> None:
    """Refuses to continue a run that an older fairlag trained by compiled loops because numba was installed."""
    meta = Run(folder).meta if is_run(folder) else {}
    if "engine" not in meta and meta.get("numba", _NO_NUMBA) != _NO_NUMBA:
        raise InputError(
            f"the run in {str(folder)!r} was begun by an older fairlag, which used compiled training automatically, "
            "and cannot be continued with byte-identical results: run its experiment again in a different folder, "
            'with engine = "compiled" in [local] to make it as fast'
        )


def check_device(folder: Path, device: str) -> None:
    """Refuses to continue a run on a different kind of device; runs of an older fairlag were made on the CPU."""
    before = Run(folder).meta.get("device", devices.CPU) if is_run(folder) else device
    if devices.kind(before) != devices.kind(device):
        raise InputError(
            f"the run in {str(folder)!r} was begun on the device {before} and cannot be continued on {device}, which "
            f"rounds differently: give --device {before} (in Python, device={before!r})"
        )


def remark_on_versions(folders: Iterable[Path], device: str) -> None:
    """Says on stderr if unfinished runs were begun with different versions of the libraries, or on another model."""
    begun = [Run(folder).meta for folder in folders if is_run(folder)]
    for name in ("numpy", "torch", "numba"):
        noted = {meta[name] for meta in begun if name in meta} - {_NO_NUMBA}
        if others := noted and sorted(noted - {now := metadata.version(name)}):
            _remark(f"begun with {name} {others[0]}, resumed with {now}")
    noted = {meta["device_name"] for meta in begun if "device_name" in meta}
    if others := noted and sorted(noted - {now := _models(device)}):
        _remark(f"begun on {device} with {others[0]}, resumed on one with {now}")


def _remark(difference: str) -> None:
    print(printable(f"{difference}: results may differ"), file=sys.stderr, flush=True)


def _versions(experiment: Experiment) -> dict[str, object]:
    """The versions of the libraries that compute a run, and what else its last bits may depend on."""
    trained = experiment.data is not None
    names = ("numpy", "torch") if trained else ("numpy",)
    return {**{name: metadata.version(name) for name in names}, "environment": environment(trained=trained)}


def _learnt(resources: Resources, setting: Setting) -> dict[str, object]:
    """The facts that are needed to build the model again, and to check that the data is the same."""
    data, metrics = resources.data, resources.task.metrics
    facts: dict[str, object] = {"data": data.fingerprint, "shape": data.shape, "classes": data.classes}
    if resources.blueprint.tokens:
        facts["tokens"] = True
    if data.class_names:
        facts["class_names"] = data.class_names
    if setting.placement is not None and setting.placement.reserved.size:
        facts["clients_with_tests"] = int(np.count_nonzero(setting.placement.reserved))
    return {**facts, "metrics": [metric.scored._asdict() for metric in metrics]}
