"""Comparing runs: strategies side by side, each over its seeds, computed only from what the runs recorded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import floor, nan
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from fairlag.analyse import fairness
from fairlag.analyse.metrics import LEAD, Measured, Scope, Shown, select
from fairlag.analyse.spread import Spread
from fairlag.analyse.totals import Totals
from fairlag.analyse.variants import differing, parameters, settings_of, told_apart
from fairlag.errors import InputError
from fairlag.lab.run import Run
from fairlag.lab.scores import curve_of, final_of
from fairlag.text.numerals import made_of

if TYPE_CHECKING:
    import pandas as pd

FRACTION = 0.95
"""The default target, as a part of the final accuracy of the worst strategy, so that every strategy reaches it."""


@dataclass(frozen=True, slots=True)
class Reached:
    """When a curve first reached an accuracy; the means are over the seeds that did."""

    target: float
    virtual_time: Spread
    aggregations: Spread
    chosen: str = ""
    """How the target was chosen; empty if it was given."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The final accuracy is that of the last version on the whole test set, over finished runs.

    The best is the highest point of the curve. The curve uses the sample of the test set that the experiment evaluates
    on, and includes unfinished runs.
    """

    final: Spread
    best: Spread
    reached: tuple[Reached, ...]


@dataclass(frozen=True, slots=True)
class GroupComparison(Measured[Spread]):
    """The results of a client group: the accuracy on test examples with its labels, and its influence."""

    name: str
    clients: int
    accuracy: Accuracy
    fair: float
    metrics: Mapping[str, Spread]

    @property
    def due(self) -> float:
        """What its influence is compared with: its entitlement, which is its fair share if no client is ever away."""
        return self.fair if self.entitled.mean is None else self.entitled.mean


@dataclass(frozen=True, slots=True)
class Comparison(Measured[Spread]):
    """One strategy on one experiment, over its seeds."""

    experiment: str
    label: str
    """The strategy's label, with the settings in which runs of the same experiment differ."""
    seeds: tuple[int, ...]
    finished: int
    """The number of its finished runs."""
    accuracy: Accuracy
    groups: tuple[GroupComparison, ...]
    metrics: Mapping[str, Spread]
    comes_and_goes: bool
    """Were clients entitled to different shares, because they were not always present, or by `importance`?"""
    remarks: tuple[str, ...]
    """What a reader must know before comparing this strategy with others."""
    deployed: bool = False
    """Was it made by a real fleet?"""
    real_time: bool = False
    """Is its time real, on a real fleet or on the wall clock?"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings in which runs of the same experiment differ, with this strategy's values."""

    @property
    def evenness(self) -> Spread:
        """Jain's index; of influence ÷ entitlement if clients come and go."""
        return self.jain_entitled if self.comes_and_goes else self.jain

    def group(self, name: str | None) -> GroupComparison | None:
        """The client group of this name, or None if the fleet has none."""
        return next((group for group in self.groups if group.name == name), None)

    def as_json(self) -> dict[str, Any]:
        """All fields, as `fairlag compare --json` prints them; groups by name."""
        found = asdict(self, dict_factory=_flat)
        return {**found, "groups": {group.pop("name"): group for group in found["groups"]}}


def _flat(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a record, and its metrics among them, unless a field has the same name."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name == "metrics":
            shown = {metric.name for metric in select(Shown.DATA, *Scope)}
            found |= {_JSON.get(each, each): value[each] for each in value if each in shown and each not in found}
        elif name != "by_seed":
            found[name] = value
    return found


_JSON = {"share": "update_share"}
"""Metrics that have a different name in JSON."""


def compare(runs: Iterable[Run], targets: Sequence[float] = (), *, fraction: float = FRACTION) -> list[Comparison]:
    """One comparison per strategy, in the order of the runs.

    Targets are accuracies between 0 and 1. Without targets, each experiment gets one: a `fraction` of the final
    accuracy of its worst strategy, in whole per cent. It gets none if a model reaches that before any training.
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
    """Runs that differ only in their seed, sorted by seed, and their common label."""

    experiment: str
    label: str
    runs: tuple[Run, ...]
    settings: Mapping[str, Any] = MappingProxyType({})
    """The settings that distinguish them from other runs of the same experiment."""


def repeated(runs: Iterable[Run]) -> list[Repeated]:
    """Groups runs by experiment, strategy and settings, in their order; the label names the settings that differ.

    Old runs that did not record their settings count as having the same settings if their groups are the same. If
    those differ, the label names the folder.
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
    """What is read from a run; it is read only once."""

    run: Run
    finished: bool
    version: int
    virtual_time: float
    evaluations: "pd.DataFrame"
    clients: "pd.DataFrame"

    @classmethod
    def of(cls, run: Run) -> "_Facts":
        return cls(run, run.status == "finished", run.version, run.virtual_time, run.evaluations, run.influence())

    def totals(self, goal: "_Goal | None") -> Totals:
        """The totals that metrics are computed from; `reached` is the time to the goal."""
        clients, names = self.clients, self.run.groups
        return Totals(
            groups=names,
            group_of=clients["group"].map({name: place for place, name in enumerate(names)}).to_numpy(),
            updates=clients["updates"].to_numpy(),
            weights=clients["weight"].to_numpy(),
            staleness=(clients["staleness"] * clients["updates"]).fillna(0.0).to_numpy(),
            entitled=clients["entitled"].to_numpy(),
            presence=clients["presence"].to_numpy(),
            version=self.version,
            time=self.virtual_time,
            scores=self._scores(),
            reached=nan if goal is None else _first(curve_of(self.evaluations), goal.target, "time"),
        )

    def _scores(self) -> dict[tuple[str, str, str], float]:
        scopes = (("all", ""), *(("group", name) for name in self.run.groups))
        return {(LEAD.name, scope, name): self.final(scope, name) for scope, name in scopes}

    def final(self, scope: str = "all", name: str = "") -> float:
        """The final accuracy of the run; NaN while it is unfinished."""
        return final_of(self.evaluations, scope, name or None) if self.finished else nan


class _Strategy(NamedTuple):
    called: Repeated
    facts: list[_Facts]


class _Goal(NamedTuple):
    """A target accuracy, and how it was chosen."""

    target: float
    chosen: str = ""


def _compared(strategy: _Strategy, goals: Sequence[_Goal], remarks: tuple[str, ...]) -> Comparison:
    called, facts = strategy
    totals = [each.totals(next(iter(goals), None)) for each in facts]
    seeds = tuple(each.run.seed for each in facts)
    overall = _measured(totals, seeds, "", Scope.RUN, Scope.TARGET)
    return Comparison(
        experiment=called.experiment,
        label=called.label,
        seeds=seeds,
        finished=sum(each.finished for each in facts),
        accuracy=_accuracy(facts, goals, "all", None, overall),
        groups=tuple(_group(totals, facts, goals, name) for name in called.runs[0].groups),
        metrics=overall,
        comes_and_goes=any(fairness.comes_and_goes(each.clients["entitled"].to_numpy()) for each in facts),
        remarks=remarks,
        deployed=any(run.deployed for run in called.runs),
        real_time=any(run.real_time for run in called.runs),
        settings=dict(called.settings),
    )


def _group(totals: Sequence[Totals], facts: list[_Facts], goals: Sequence[_Goal], name: str) -> GroupComparison:
    measured = _measured(totals, [each.run.seed for each in facts], name, Scope.GROUP)
    first = totals[0].by_group[name]
    accuracy = _accuracy(facts, goals, "group", name, measured)
    return GroupComparison(name, first.clients, accuracy, first.fair, measured)


def _measured(totals: Sequence[Totals], seeds: Sequence[int], name: str, *scopes: Scope) -> dict[str, Spread]:
    """The metrics of these scopes, over seeds."""
    return {
        metric.name: Spread.of((metric.of(each, name) for each in totals), seeds)
        for metric in select(Shown.EVERYWHERE, *scopes)
    }


def _accuracy(
    facts: list[_Facts], goals: Sequence[_Goal], scope: str, name: str | None, measured: Mapping[str, Spread]
) -> Accuracy:
    curves = [curve_of(each.evaluations, scope, name) for each in facts]
    seeds = [each.run.seed for each in facts]
    return Accuracy(
        final=measured[LEAD.name],
        best=Spread.of(curve[LEAD.name].max() for curve in curves),
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
    passed = curve.loc[curve[LEAD.name] >= target, column]
    return float(passed.iloc[0]) if len(passed) else nan


def _default_goals(strategies: list[_Strategy], fraction: float) -> list[_Goal]:
    means = [(Spread.of(each.final() for each in facts).mean, called.label) for called, facts in strategies]
    lowest, label = min(((mean, label) for mean, label in means if mean is not None), default=(0.0, ""))
    target = floor(100 * fraction * lowest) / 100
    curves = (curve_of(each.evaluations) for _, facts in strategies for each in facts)
    if not target or any(_first(curve, target, "version") == 0 for curve in curves):
        return []
    return [_Goal(target, f"{100 * fraction:g} % of the lowest final accuracy, {100 * lowest:.1f} % of {label}")]


def _remarks(facts: list[_Facts], strategies: list[_Strategy]) -> tuple[str, ...]:
    seeds = [each.run.seed for each in facts]
    every_run = [run for others in strategies for run in others.called.runs]
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
    if missing := sorted({run.seed for run in every_run} - set(seeds)):
        remarks.append(f"no run has seed {_listed(missing)}, which other strategies have")
    if len({run.planned for run in every_run}) > 1:
        lengths = sorted({each.run.planned for each in facts}, key=lambda planned: planned or 0)
        remarks.append(f"lengths differ: here {_listed(lengths)} aggregations were planned")
    return tuple(remarks)


def _listed(values: Sequence[int | None]) -> str:
    return ", ".join("any number of" if value is None else f"{value:,}" for value in values)
