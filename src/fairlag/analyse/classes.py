"""The first metric that classes have, over runs. The database thins it, because classes and evaluations may be many."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairlag.analyse.compare import Repeated
from fairlag.analyse.curves import evenly, mean_of_known, shared
from fairlag.analyse.spread import Spread
from fairlag.core.types import Floats, Integers
from fairlag.errors import UnreadableError
from fairlag.lab.folder import reading
from fairlag.lab.run import Run
from fairlag.lab.schema import SCORES
from fairlag.text.scored import ACCURACY, LOSS, Scored

COLUMNS = 150
"""The most evaluations that a reader can tell apart side by side."""

_CURVE = """
FROM {scores} WHERE scope = 'class' AND metric = ?
AND whole = (SELECT MIN(whole) FROM evaluations WHERE scope = 'class')
"""
"""The curve is on the sample of the test set if there is one, otherwise on the whole test set."""
_VERSIONS = f"SELECT DISTINCT version {_CURVE}"
_SCORES = f"SELECT version, time, name, value {_CURVE} AND version IN ({{versions}})"


class ClassCurve(NamedTuple):
    """One seed: when it was evaluated, and the metric on each class."""

    versions: Floats
    times: Floats
    values: Floats
    """One row per class, one column per evaluation; NaN if there was no example."""

    def places(self, along: str) -> Floats:
        """The places of its columns along "time" or "version"."""
        return self.times if along == "time" else self.versions


@dataclass(frozen=True, slots=True)
class ClassCurves:
    """A metric of every class under one strategy over its seeds."""

    names: tuple[str, ...]
    holders: Mapping[str, tuple[str, ...]]
    """The client groups that hold each class, if the experiment says so."""
    seeds: tuple[ClassCurve, ...]
    evaluations: int
    """The number of evaluations before thinning."""
    metric: Scored = ACCURACY
    """The first metric of the run that classes have, or else the loss: AUROC, for instance, is not one of a class."""
    called: tuple[str, ...] = ()
    """What the data calls the classes, if not by their numbers."""

    def word(self, name: str) -> str:
        """What a class is called."""
        place = int(name) if name.isdecimal() else len(self.called)
        return self.called[place] if place < len(self.called) else name

    def mean(self, along: str, most: int = COLUMNS) -> tuple[Floats, Floats]:
        """At most `most` places that all seeds cover, and the mean value there: one row per class."""
        where = shared([seed.places(along) for seed in self.seeds])
        where = where[evenly(where, most)]
        values = np.array([[np.interp(where, seed.places(along), row) for row in seed.values] for seed in self.seeds])
        return where, mean_of_known(values)

    def last(self, place: int) -> Spread:
        """The last value of the curves of the class at this place."""
        return Spread.of(seed.values[place, -1] for seed in self.seeds)


def class_curves(strategy: Repeated) -> ClassCurves | None:
    """A metric of a strategy on every class, over its finished seeds, or over all if none is finished.

    None if classes were not evaluated.
    """
    runs = [run for run in strategy.runs if run.status == "finished"] or strategy.runs
    metrics = (*runs[0].metrics, LOSS)
    tried = ((metric, _versions(runs, metric)) for metric in metrics)
    metric, versions = next((each for each in tried if len(each[1])), (None, np.array([])))
    if metric is None:
        return None
    kept = versions[evenly(versions, COLUMNS)].tolist()
    rows = []
    for run in runs:
        with reading(run.folder) as database:
            query = _SCORES.format(scores=SCORES[run.meta["format"]], versions=", ".join("?" * len(kept)))
            rows.append(database.execute(query, (metric.name, *kept)).fetchall())
    names = sorted({name for found in rows for _, _, name, _ in found}, key=lambda name: (len(name), name))
    return ClassCurves(
        names=tuple(names),
        holders=_holders(strategy.runs[0]),
        seeds=tuple(_curve(found, names) for found in rows if found),
        evaluations=len(versions),
        metric=metric,
        called=class_names(strategy.runs[0]),
    )


def class_names(run: Run) -> tuple[str, ...]:
    """What the data of a run calls its classes; nothing if it has only numbers for them."""
    names = run.meta.get("class_names", ())
    return tuple(map(str, names)) if isinstance(names, list | tuple) else ()


def _versions(runs: Sequence[Run], metric: Scored) -> Integers:
    """All versions for which any of these runs has the metric of classes."""
    found: set[int] = set()
    for run in runs:
        with reading(run.folder) as database:
            query = _VERSIONS.format(scores=SCORES[run.meta["format"]])
            found |= {version for (version,) in database.execute(query, (metric.name,))}
    return np.array(sorted(found), np.int64)


def _curve(rows: Sequence[tuple[int, float, str, float | None]], names: Sequence[str]) -> ClassCurve:
    times = dict(sorted((version, time) for version, time, _, _ in rows))
    columns = {version: place for place, version in enumerate(times)}
    places = {name: place for place, name in enumerate(names)}
    values = np.full((len(names), len(times)), np.nan)
    for version, _, name, value in rows:
        values[places[name], columns[version]] = np.nan if value is None else value
    return ClassCurve(np.array([*times], np.float64), np.array([*times.values()], np.float64), values)


def _holders(run: Run) -> dict[str, tuple[str, ...]]:
    """Which groups hold each class, if groups name their labels and the data is partitioned by them."""
    try:
        tables = run.settings
        clients, partition = tables["clients"], tables.get("data", {}).get("partition", "labels")
    except UnreadableError:  # the run was not made from an experiment
        return {}
    holders: dict[str, tuple[str, ...]] = {}
    for table in clients if partition == "labels" else ():
        for label in table.get("labels", ()):
            holders[str(label)] = (*holders.get(str(label), ()), table["group"])
    return holders
