"""Comparing runs: strategies side by side, each over its seeds; computed from what the runs recorded, nothing else."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import floor, isfinite, isnan, nan
from pathlib import Path
from statistics import fmean, stdev
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from fairlag import fairness
from fairlag.analyse.variants import differing, parameters, settings_of, told_apart
from fairlag.errors import InputError
from fairlag.lab.run import Run
from fairlag.lab.scores import curve_of, final_of
from fairlag.text.numerals import made_of

if TYPE_CHECKING:
    import pandas as pd

FRACTION = 0.95
"""Where no target is given: this part of what the worst strategy ended with, so that there is a time for all."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A number over seeds: its mean, its sample standard deviation (None for less than two), and how many had it.

    >>> Spread.of([1.0, 3.0, nan])
    Spread(mean=2.0, deviation=1.4142135623730951, seeds=2)
    """

    mean: float | None
    deviation: float | None
    seeds: int
    by_seed: Mapping[int, float] = field(default_factory=dict, compare=False, repr=False)
    """The values themselves, if it is known which seed each is of."""

    @classmethod
    def of(cls, values: Iterable[float], seeds: Sequence[int] = ()) -> "Spread":
        """The spread of the values that are finite, of these seeds."""
        every = [float(value) for value in values]
        found = [value for value in every if isfinite(value)]
        known = {seed: value for seed, value in zip(seeds, every, strict=False) if isfinite(value)}
        return cls(fmean(found) if found else None, stdev(found) if len(found) > 1 else None, len(found), known)


@dataclass(frozen=True, slots=True)
class Reached:
    """When a curve first reached an accuracy; the means are over the seeds that did."""

    target: float
    virtual_time: Spread
    aggregations: Spread
    chosen: str = ""
    """How the target was chosen; nothing if it was given."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Final: the last version on the whole test set, of finished runs. Best: the highest point of the curve.

    The curve is on the sample of the test set that the experiment evaluates on, and of unfinished runs as well.
    """

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
    entitled: Spread
    """Its part of all versions, each shared by the clients that were there when it was made: equally, unless the
    strategy has `importance`."""
    per_presence: Spread
    """Influence per time present, 1 being the mean over all clients."""
    staleness: Spread

    @property
    def due(self) -> float:
        """What its influence is compared with: what it is entitled to, which is its fair share if nobody is away."""
        return self.fair if self.entitled.mean is None else self.entitled.mean


@dataclass(frozen=True, slots=True)
class Comparison:
    """One strategy on one experiment, over its seeds."""

    experiment: str
    label: str
    """Of the strategy, with the settings in which runs of the same experiment differ."""
    seeds: tuple[int, ...]
    finished: int
    """How many of its runs are."""
    accuracy: Accuracy
    groups: tuple[GroupComparison, ...]
    jain: Spread
    """Over the influence of clients."""
    jain_entitled: Spread
    """Over their influence ÷ what they were entitled to."""
    comes_and_goes: bool
    """Were clients entitled to different parts, because they were not always there, or by `importance`?"""
    staleness: Spread
    updates: Spread
    aggregations: Spread
    virtual_time: Spread
    remarks: tuple[str, ...]
    """What a reader must know before comparing it."""
    deployed: bool = False
    """Was it made by a real fleet?"""
    real_time: bool = False
    """Did its time really pass, on a real fleet or on the wall clock?"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings in which runs of the same experiment differ, with the values that it has."""

    @property
    def evenness(self) -> Spread:
        """Jain's index; of influence ÷ entitlement if clients come and go."""
        return self.jain_entitled if self.comes_and_goes else self.jain

    def as_json(self) -> dict[str, Any]:
        """All of it, as `fairlag compare --json` prints it; groups by name."""
        found = asdict(self, dict_factory=lambda pairs: {name: value for name, value in pairs if name != "by_seed"})
        return {**found, "groups": {group.pop("name"): group for group in found["groups"]}}


def compare(runs: Iterable[Run], targets: Sequence[float] = (), *, fraction: float = FRACTION) -> list[Comparison]:
    """One comparison a strategy, in the order of the runs.

    Targets are accuracies between 0 and 1; without any, one is chosen for each experiment: a `fraction` of what its
    worst strategy ended with, in whole per cent; unless a model reaches that before it has learnt anything.
    """
    for target in targets:
        if not 0 < target <= 1:
            raise InputError(f"a target accuracy is {target}, it must be above 0 and at most 1")
    together: dict[str, list[_Strategy]] = {}
    for each in repeated(runs):
        together.setdefault(each.experiment, []).append(_Strategy(each, [_Facts.of(run) for run in each.runs]))
    return [
        _compared(strategy, goals, _remarks(strategy.facts, strategies))
        for strategies in together.values()
        for goals in [[_Goal(target) for target in targets] or _default_goals(strategies, fraction)]
        for strategy in strategies
    ]


class Repeated(NamedTuple):
    """Runs that differ in nothing but their seed, which they are sorted by, and how they are called."""

    experiment: str
    label: str
    runs: tuple[Run, ...]
    settings: Mapping[str, Any] = MappingProxyType({})
    """What tells them from others of the same experiment."""


def repeated(runs: Iterable[Run]) -> list[Repeated]:
    """The runs by experiment, strategy and settings, in their order; the label names the settings that differ.

    Runs that were made before their settings were kept count as having the same, as far as their groups are; if they
    differ, the label names their folder.
    """
    together: dict[str, dict[str, dict[tuple[object, ...], list[Run]]]] = {}
    known: dict[Path, dict[str, Any]] = {}
    for run in runs:
        known[run.folder] = settings = settings_of(run)
        key = (run.meta.get("experiment_key", ""), parameters(settings), *run.groups)
        together.setdefault(run.experiment, {}).setdefault(run.label, {}).setdefault(key, []).append(run)
    found = []
    for experiment, strategies in together.items():
        first = {label: [known[each[0].folder] for each in variants.values()] for label, variants in strategies.items()}
        names = differing([(label, settings) for label, each in first.items() for settings in each])
        for label, variants in strategies.items():
            suffixes = told_apart(first[label], list(variants.values()), names)
            for settings, suffix, each in zip(first[label], suffixes, variants.values(), strict=True):
                called = f"{label} [{suffix}]" if suffix else label
                own = {name: settings.get(name) for name in names}
                found.append(Repeated(experiment, called, tuple(sorted(each, key=lambda run: run.seed)), own))
    return found


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

    def final(self, scope: str, name: str | None) -> float:
        """The accuracy that the run ended with; not a number while it has not."""
        return final_of(self.evaluations, scope, name) if self.finished else nan


class _Strategy(NamedTuple):
    called: Repeated
    facts: list[_Facts]


class _Goal(NamedTuple):
    """An accuracy to be reached, and how it was chosen."""

    target: float
    chosen: str = ""


def _compared(strategy: _Strategy, goals: Sequence[_Goal], remarks: tuple[str, ...]) -> Comparison:
    called, facts = strategy
    shares = [_by_group(each) for each in facts]
    seeds = tuple(each.run.seed for each in facts)
    return Comparison(
        experiment=called.experiment,
        label=called.label,
        seeds=seeds,
        finished=sum(each.finished for each in facts),
        accuracy=_accuracy(facts, goals, "all", None),
        groups=tuple(
            _group([group[place] for group in shares], seeds, _accuracy(facts, goals, "group", name))
            for place, name in enumerate(called.runs[0].groups)
        ),
        jain=Spread.of((fairness.jain_if_any(each.clients["weight"].to_numpy()) for each in facts), seeds),
        jain_entitled=Spread.of(map(_jain_entitled, facts), seeds),
        comes_and_goes=any(fairness.comes_and_goes(each.clients["entitled"].to_numpy()) for each in facts),
        staleness=Spread.of(_mean_staleness(each.clients) for each in facts),
        updates=Spread.of(each.clients["updates"].sum() for each in facts),
        aggregations=Spread.of(each.version for each in facts),
        virtual_time=Spread.of(each.virtual_time for each in facts),
        remarks=remarks,
        deployed=any(run.deployed for run in called.runs),
        real_time=any(run.real_time for run in called.runs),
        settings=dict(called.settings),
    )


def _accuracy(facts: list[_Facts], goals: Sequence[_Goal], scope: str, name: str | None) -> Accuracy:
    curves = [curve_of(each.evaluations, scope, name) for each in facts]
    seeds = [each.run.seed for each in facts]
    return Accuracy(
        final=Spread.of((each.final(scope, name) for each in facts), seeds),
        best=Spread.of(curve["accuracy"].max() for curve in curves),
        reached=tuple(
            Reached(
                target,
                virtual_time=Spread.of((_first(curve, target, "time") for curve in curves), seeds),
                aggregations=Spread.of(_first(curve, target, "version") for curve in curves),
                chosen=chosen,
            )
            for target, chosen in goals
        ),
    )


def _first(curve: "pd.DataFrame", target: float, column: str) -> float:
    there = curve.loc[curve["accuracy"] >= target, column]
    return float(there.iloc[0]) if len(there) else nan


def _by_group(facts: _Facts) -> list[fairness.GroupFairness]:
    clients, names = facts.clients, facts.run.groups
    late = (clients["staleness"] * clients["updates"]).fillna(0.0)
    place = clients["group"].map({name: place for place, name in enumerate(names)})
    columns = (clients["updates"], clients["weight"], late, clients["entitled"], clients["presence"])
    found = fairness.by_group(place.to_numpy(), names, *(column.to_numpy() for column in columns))
    if clients["updates"].any():
        return found
    # Of nothing there is no part.
    return [replace(each, update_share=nan, influence=nan, per_presence=nan) for each in found]


def _group(found: list[fairness.GroupFairness], seeds: Sequence[int], accuracy: Accuracy) -> GroupComparison:
    return GroupComparison(
        name=found[0].name,
        clients=found[0].clients,
        accuracy=accuracy,
        update_share=Spread.of(each.update_share for each in found),
        influence=Spread.of((each.influence for each in found), seeds),
        fair=found[0].fair,
        entitled=Spread.of(each.entitled for each in found),
        per_presence=Spread.of(each.per_presence for each in found),
        staleness=Spread.of(each.mean_staleness if each.update_share > 0 else nan for each in found),
    )


def _jain_entitled(facts: _Facts) -> float:
    weight, entitled = (facts.clients[name].to_numpy() for name in ("weight", "entitled"))
    return fairness.jain_entitled(weight, entitled) if not isnan(fairness.jain_if_any(weight)) else nan


def _mean_staleness(clients: "pd.DataFrame") -> float:
    updates = clients["updates"].sum()
    return float((clients["staleness"] * clients["updates"]).sum() / updates) if updates else nan


def _default_goals(strategies: list[_Strategy], fraction: float) -> list[_Goal]:
    means = [(Spread.of(each.final("all", None) for each in facts).mean, called.label) for called, facts in strategies]
    lowest, label = min(((mean, label) for mean, label in means if mean is not None), default=(0.0, ""))
    target = floor(100 * fraction * lowest) / 100
    curves = (curve_of(each.evaluations) for _, facts in strategies for each in facts)
    if not target or any(_first(curve, target, "version") == 0 for curve in curves):
        return []
    return [_Goal(target, f"{100 * fraction:g} % of the lowest final accuracy, {100 * lowest:.1f} % of {label}")]


def _remarks(facts: list[_Facts], strategies: list[_Strategy]) -> tuple[str, ...]:
    seeds = [each.run.seed for each in facts]
    everyone = [run for others in strategies for run in others.called.runs]
    remarks = []
    for each in facts:
        if not each.finished:
            made = made_of(each.version, each.run.planned)
            remarks.append(f"seed {each.run.seed} is unfinished, at {made} aggregations")
    if late := [found for each in facts if (found := each.run.meta.get("lateness"))]:
        mean, share = (fmean(each[name] for each in late) for name in ("mean", "share"))
        remarks.append(
            f"updates arrived {mean:.2g} s late on average, which is {share:.1%} of what tasks take, "
            f"and at most {max(each['most'] for each in late):.2g} s"
        )
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
