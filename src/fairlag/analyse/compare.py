"""Comparing runs: strategies side by side, each over its seeds; computed from what the runs recorded, nothing else."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import floor, isfinite, nan
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from fairlag.analyse import fairness
from fairlag.errors import InputError
from fairlag.lab.run import Run, curve_of, final_of
from fairlag.types import Floats

if TYPE_CHECKING:
    import pandas as pd

FRACTION = 0.95
"""Where no target is given: this part of what the worst strategy reached, so that there is a time for all of them."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A number over seeds: its mean, its sample standard deviation (None for less than two), and how many had it.

    >>> Spread.of([1.0, 3.0, nan])
    Spread(mean=2.0, deviation=1.4142135623730951, seeds=2)
    """

    mean: float | None
    deviation: float | None
    seeds: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """The spread of the values that are finite."""
        found = [float(value) for value in values if isfinite(value)]
        return cls(fmean(found) if found else None, stdev(found) if len(found) > 1 else None, len(found))


@dataclass(frozen=True, slots=True)
class Reached:
    """When a curve first reached an accuracy; the means are over the seeds that did."""

    target: float
    virtual_time: Spread
    aggregations: Spread


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Final: the last version on the whole test set. Best: the highest point of the curve, on its sample."""

    final: Spread
    best: Spread
    reached: tuple[Reached, ...]


@dataclass(frozen=True, slots=True)
class GroupComparison:
    """What a client group got: accuracy on the test examples with its labels, and how much it was listened to."""

    name: str
    clients: int
    accuracy: Accuracy
    update_share: Spread
    influence: Spread
    fair: float
    staleness: Spread


@dataclass(frozen=True, slots=True)
class Comparison:
    """One strategy on one experiment, over its seeds."""

    experiment: str
    label: str
    seeds: tuple[int, ...]
    finished: int
    """How many of its runs are."""
    accuracy: Accuracy
    groups: tuple[GroupComparison, ...]
    jain: Spread
    """Over the influence of clients."""
    staleness: Spread
    updates: Spread
    aggregations: Spread
    virtual_time: Spread
    remarks: tuple[str, ...]
    """What a reader must know before comparing it."""

    def as_json(self) -> dict[str, Any]:
        """All of it, as `fairlag compare --json` prints it; groups by name."""
        found = asdict(self)
        return {**found, "groups": {group.pop("name"): group for group in found["groups"]}}


def compare(runs: Iterable[Run], targets: Sequence[float] = (), *, fraction: float = FRACTION) -> list[Comparison]:
    """One comparison a strategy, in the order of the runs.

    Targets are accuracies between 0 and 1; without any, one is chosen for each experiment: a `fraction` of what its
    worst strategy reached, in whole per cent.
    """
    for target in targets:
        if not 0 < target <= 1:
            raise InputError(f"a target accuracy is {target}, it must be above 0 and at most 1")
    together: dict[str, dict[str, list[_Facts]]] = {}
    for run in runs:
        together.setdefault(run.experiment, {}).setdefault(run.label, []).append(_Facts.of(run))
    return [
        _compared(sorted(facts, key=lambda each: each.run.seed), goals, _remarks(facts, strategies))
        for strategies in together.values()
        for goals in [tuple(targets) or _default_targets(strategies, fraction)]
        for facts in strategies.values()
    ]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is read of a run, once."""

    run: Run
    finished: bool
    version: int
    virtual_time: float
    evaluations: "pd.DataFrame"
    clients: "pd.DataFrame"

    @classmethod
    def of(cls, run: Run) -> "_Facts":
        return cls(run, run.status == "finished", run.version, run.virtual_time, run.evaluations, run.influence())


def _compared(facts: list[_Facts], targets: tuple[float, ...], remarks: tuple[str, ...]) -> Comparison:
    first = facts[0].run
    shares = [_by_group(each) for each in facts]
    return Comparison(
        experiment=first.experiment,
        label=first.label,
        seeds=tuple(each.run.seed for each in facts),
        finished=sum(each.finished for each in facts),
        accuracy=_accuracy(facts, targets, "all", None),
        groups=tuple(
            _group([group[place] for group in shares], _accuracy(facts, targets, "group", name))
            for place, name in enumerate(first.groups)
        ),
        jain=Spread.of(_jain(each.clients["weight"].to_numpy()) for each in facts),
        staleness=Spread.of(_mean_staleness(each.clients) for each in facts),
        updates=Spread.of(each.clients["updates"].sum() for each in facts),
        aggregations=Spread.of(each.version for each in facts),
        virtual_time=Spread.of(each.virtual_time for each in facts),
        remarks=remarks,
    )


def _accuracy(facts: list[_Facts], targets: tuple[float, ...], scope: str, name: str | None) -> Accuracy:
    curves = [curve_of(each.evaluations, scope, name) for each in facts]
    return Accuracy(
        final=Spread.of(final_of(each.evaluations, scope, name) for each in facts),
        best=Spread.of(curve["accuracy"].max() for curve in curves),
        reached=tuple(
            Reached(
                target,
                virtual_time=Spread.of(_first(curve, target, "time") for curve in curves),
                aggregations=Spread.of(_first(curve, target, "version") for curve in curves),
            )
            for target in targets
        ),
    )


def _first(curve: "pd.DataFrame", target: float, column: str) -> float:
    there = curve.loc[curve["accuracy"] >= target, column]
    return float(there.iloc[0]) if len(there) else nan


def _by_group(facts: _Facts) -> list[fairness.GroupFairness]:
    clients, names = facts.clients, facts.run.groups
    late = (clients["staleness"] * clients["updates"]).fillna(0.0)
    place = clients["group"].map({name: place for place, name in enumerate(names)})
    columns = (clients["updates"], clients["weight"], late)
    return fairness.by_group(place.to_numpy(), names, *(column.to_numpy() for column in columns))


def _group(found: list[fairness.GroupFairness], accuracy: Accuracy) -> GroupComparison:
    return GroupComparison(
        name=found[0].name,
        clients=found[0].clients,
        accuracy=accuracy,
        update_share=Spread.of(each.update_share for each in found),
        influence=Spread.of(each.influence for each in found),
        fair=found[0].fair,
        staleness=Spread.of(each.mean_staleness if each.update_share else nan for each in found),
    )


def _jain(weights: Floats) -> float:
    """Jain's index, or not a number where nobody has influence yet or some have less than none."""
    return fairness.jain(weights) if weights.min() >= 0 and weights.any() else nan


def _mean_staleness(clients: "pd.DataFrame") -> float:
    updates = clients["updates"].sum()
    return float((clients["staleness"] * clients["updates"]).sum() / updates) if updates else nan


def _default_targets(strategies: dict[str, list[_Facts]], fraction: float) -> tuple[float, ...]:
    means = [Spread.of(final_of(each.evaluations) for each in facts).mean for facts in strategies.values()]
    target = floor(100 * fraction * min((mean for mean in means if mean is not None), default=0.0)) / 100
    return (target,) if target else ()


def _remarks(facts: list[_Facts], strategies: dict[str, list[_Facts]]) -> tuple[str, ...]:
    seeds = [each.run.seed for each in facts]
    everyone = [each.run for others in strategies.values() for each in others]
    remarks = []
    for each in facts:
        if not each.finished:
            of = f" of {each.run.planned:,}" if each.run.planned else ""
            remarks.append(f"seed {each.run.seed} is unfinished, at {each.version:,}{of} aggregations")
    if twice := sorted({seed for seed in seeds if seeds.count(seed) > 1}):
        remarks.append(f"more than one run has seed {_listed(twice)}")
    if missing := sorted({run.seed for run in everyone} - set(seeds)):
        remarks.append(f"no run has seed {_listed(missing)}, which other strategies have")
    if len({run.planned for run in everyone}) > 1:
        lengths = sorted({each.run.planned for each in facts}, key=lambda planned: planned or 0)
        remarks.append(f"lengths differ: here {_listed(lengths)} aggregations were planned")
    return tuple(remarks)


def _listed(values: Sequence[int | None]) -> str:
    return ", ".join("any number of" if value is None else f"{value:,}" for value in values)
