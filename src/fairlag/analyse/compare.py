"""Comparing runs: strategies side by side, each over its seeds, computed only from what the runs recorded."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil, floor, inf, isfinite, log10, nan
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from fairlag.analyse import fairness
from fairlag.analyse.metrics import PERSONALISED, Judged, Measured, Scope, Shown, select
from fairlag.analyse.own_data import own_scores
from fairlag.analyse.spread import Spread
from fairlag.analyse.totals import OwnScores, Totals
from fairlag.analyse.variants import differing, parameters, settings_of, told_apart, without_planned
from fairlag.errors import InputError
from fairlag.lab.run import Run
from fairlag.lab.scores import curve_of, final_of, first_at
from fairlag.text.numerals import made_of
from fairlag.text.scored import ACCURACY, Scored

if TYPE_CHECKING:
    import pandas as pd

FRACTION = 0.95
"""The default target, as a part of the final value of the worst strategy, so that every strategy reaches it."""


@dataclass(frozen=True, slots=True)
class Reached:
    """When a curve first reached a value of the leading metric; the means are over the seeds that did."""

    target: float
    virtual_time: Spread
    aggregations: Spread
    chosen: str = ""
    """How the target was chosen; empty if it was given."""


@dataclass(frozen=True, slots=True)
class Leading:
    """The leading metric. Its final value is that of the last version on the whole test set, over finished runs.

    The best is the best point of the curve. The curve uses the sample of the test set that the experiment evaluates on,
    and includes unfinished runs.
    """

    metric: Scored
    final: Spread
    best: Spread
    reached: tuple[Reached, ...]
    examples: int = 0
    """The number of test examples that the final value is computed on; 0 if there is none, or if each client has its
    own."""


@dataclass(frozen=True, slots=True)
class GroupComparison(Measured[Spread]):
    """The results of a client group: the scores on test examples with its labels, and its influence."""

    name: str
    clients: int
    leading: Leading
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
    leading: Leading
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
    judged: Judged = (ACCURACY,)
    """The metrics that its models are judged by, the leading one first."""
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
            every, shown = (
                {metric.name for metric in select(where, *Scope)} for where in (Shown.EVERYWHERE, Shown.DATA)
            )
            found |= {_JSON.get(each, each): value[each] for each in value if each not in {*found, *(every - shown)}}
        elif name == "leading":
            metric = value.pop("metric")
            found[metric.name] = value
        elif name == "judged":
            if value != (ACCURACY,):
                found["metric"] = value[0].name
        elif name != "by_seed":
            found[name] = value
    return found


_OWN_NAMES = frozenset(metric.name for metric in select(Shown.EVERYWHERE, Scope.OWN))
"""Metrics that only runs have whose clients are tested on their own data."""

_JSON = {"share": "update_share"}
"""Metrics that have a different name in JSON."""


def compare(runs: Iterable[Run], targets: Sequence[float] = (), *, fraction: float = FRACTION) -> list[Comparison]:
    """One comparison per strategy, in the order of the runs.

    Targets are values of the leading metric; an accuracy is between 0 and 1. Without targets, each experiment gets one:
    a `fraction` of the final value of its worst strategy, or, if lower is better, that value ÷ `fraction`. It is in
    whole per cent or has three digits. The experiment gets none if a model reaches that before any training.
    """
    together: dict[str, list[_Strategy]] = {}
    for each in repeated(runs):
        together.setdefault(each.experiment, []).append(_Strategy(each, [_Facts.of(run) for run in each.runs]))
    for experiment, strategies in together.items():
        every = (run for strategy in strategies for run in strategy.called.runs)
        _check_targets(targets, lead_of_all(every, f"the runs of {experiment!r}", "compare"))
    return [
        _compared(strategy, goals, _remarks(strategy.facts, strategies))
        for strategies in together.values()
        for goals in [[_Goal(target) for target in targets] or _default_goals(strategies, fraction)]
        for strategy in strategies
    ]


def groups_scored(strategies: Sequence[Comparison]) -> bool:
    """Are there scores for client groups? A regression has none; before the first evaluation, there may be some."""
    of_groups = [group.leading for each in strategies for group in each.groups]
    of_all = [each.leading for each in strategies]
    return any(each.best.seeds or each.final.seeds for each in of_groups) or not any(each.best.seeds for each in of_all)


def groups_have_labels(strategies: Iterable[Comparison]) -> bool:
    """Are client groups scored on labels? On their clients' own test data, they have a final score but no curve."""
    of_groups = [group.leading for each in strategies for group in each.groups]
    return any(each.best.seeds for each in of_groups) or not any(each.final.seeds for each in of_groups)


def lead_of_all(runs: Iterable[Run], what: str, verb: str) -> Scored:
    """The leading metric of all these runs; refuses to compare, or to draw, runs that have different ones."""
    leads = {run.lead for run in runs}
    if len(leads) > 1:
        names = " and ".join(sorted(lead.name for lead in leads))
        raise InputError(f"{what} are judged by {names}: {verb} them separately")
    return leads.pop()


def _check_targets(targets: Sequence[float], lead: Scored) -> None:
    for target in targets:
        if lead.rate and not 0 < target <= 1:
            raise InputError(f"a target {lead.words} is {target}, it must be above 0 and at most 1")
        if not isfinite(target):
            raise InputError(f"a target {lead.words} is {target}, it must be a finite number")


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
    those differ, the label names the folder. Labels do not name what one plan gives to a strategy in its own [local].
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
        said = without_planned(names, [list(variants.values()) for variants in strategies.values()])
        for label, variants in strategies.items():
            suffixes = told_apart(first[label], list(variants.values()), said)
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
    own: Mapping[bool, OwnScores]

    @classmethod
    def of(cls, run: Run) -> "_Facts":
        finished = run.status == "finished"
        own = own_scores(run) if finished else {}
        return cls(run, finished, run.version, run.virtual_time, run.evaluations, run.influence(), own)

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
            own=self.own,
            reached=nan if goal is None else first_at(curve_of(self.evaluations), goal.target, "time", self.run.lead),
        )

    def _scores(self) -> dict[tuple[str, str, str], float]:
        scopes = (("all", ""), *(("group", name) for name in self.run.groups))
        names = [metric.name for metric in self.run.metrics]
        return {(each, scope, name): self.final(each, scope, name) for each in names for scope, name in scopes}

    @property
    def groups_by_own(self) -> bool:
        """Are client groups scored on their clients' own test data, because the task has no labels?"""
        return bool(self.own) and not (self.evaluations["scope"] == "group").any()

    def final(self, metric: str, scope: str = "all", name: str = "") -> float:
        """The final value of a metric; NaN while the run is unfinished."""
        if scope == "group" and self.groups_by_own:
            own = own_scores(self.run, metric).get(False)
            return nan if own is None else own.by_group.get(name, nan)
        return final_of(self.evaluations, metric, scope, name or None) if self.finished else nan

    def examples(self, scope: str, name: str | None) -> int:
        """The number of test examples of the last evaluation."""
        found = final_of(self.evaluations, "examples", scope, name)
        return int(found) if isfinite(found) else 0


class _Strategy(NamedTuple):
    called: Repeated
    facts: list[_Facts]


class _Goal(NamedTuple):
    """A target, which is a value of the leading metric, and how it was chosen."""

    target: float
    chosen: str = ""


def _compared(strategy: _Strategy, goals: Sequence[_Goal], remarks: tuple[str, ...]) -> Comparison:
    called, facts = strategy
    totals = [each.totals(next(iter(goals), None)) for each in facts]
    seeds = tuple(each.run.seed for each in facts)
    judged = called.runs[0].metrics
    tested = {part for each in facts for part in each.own}
    overall = {
        name: spread
        for name, spread in _measured(totals, seeds, judged, "", Scope.RUN, Scope.TARGET, Scope.OWN).items()
        if name not in _OWN_NAMES or name.endswith(PERSONALISED) in tested
    }
    return Comparison(
        experiment=called.experiment,
        label=called.label,
        seeds=seeds,
        finished=sum(each.finished for each in facts),
        leading=_leading(facts, goals, "all", None, overall),
        groups=tuple(_group(totals, facts, goals, name) for name in called.runs[0].groups),
        metrics=overall,
        comes_and_goes=any(fairness.comes_and_goes(each.clients["entitled"].to_numpy()) for each in facts),
        remarks=remarks,
        deployed=any(run.deployed for run in called.runs),
        real_time=any(run.real_time for run in called.runs),
        judged=judged,
        settings=dict(called.settings),
    )


def _group(totals: Sequence[Totals], facts: list[_Facts], goals: Sequence[_Goal], name: str) -> GroupComparison:
    measured = _measured(totals, [each.run.seed for each in facts], facts[0].run.metrics, name, Scope.GROUP)
    first = totals[0].by_group[name]
    leading = _leading(facts, goals, "group", name, measured)
    return GroupComparison(name, first.clients, leading, first.fair, measured)


def _measured(
    totals: Sequence[Totals], seeds: Sequence[int], judged: Judged, name: str, *scopes: Scope
) -> dict[str, Spread]:
    """The metrics of these scopes, over seeds."""
    return {
        metric.name: Spread.of((metric.of(each, name) for each in totals), seeds)
        for metric in select(Shown.EVERYWHERE, *scopes, judged=judged)
    }


def _leading(
    facts: list[_Facts], goals: Sequence[_Goal], scope: str, name: str | None, measured: Mapping[str, Spread]
) -> Leading:
    curves = [curve_of(each.evaluations, scope, name) for each in facts]
    seeds, lead = [each.run.seed for each in facts], facts[0].run.lead
    return Leading(
        metric=lead,
        final=measured[lead.name],
        best=Spread.of(best_of(curve[lead.name], lead) for curve in curves),
        examples=min((each.examples(scope, name) for each in facts if each.finished), default=0),
        reached=tuple(
            Reached(
                target,
                virtual_time=Spread.of((first_at(curve, target, "time", lead) for curve in curves), seeds),
                aggregations=Spread.of(first_at(curve, target, "version", lead) for curve in curves),
                chosen=chosen,
            )
            for target, chosen in goals
        ),
    )


def best_of(values: "pd.Series[float]", lead: Scored) -> float:
    """The best value of a curve."""
    return float(values.max() if lead.higher else values.min())


def _default_goals(strategies: list[_Strategy], fraction: float) -> list[_Goal]:
    lead = strategies[0].facts[0].run.lead
    means = [(Spread.of(each.final(lead.name) for each in facts).mean, called.label) for called, facts in strategies]
    known = [(mean, label) for mean, label in means if mean is not None]
    worst, label = (min if lead.higher else max)(known, default=(0.0, ""))
    if lead.rate and lead.higher:
        target = floor(100 * fraction * worst) / 100
    else:
        target = _to_three_digits(worst * fraction if lead.higher else worst / fraction, floor if lead.higher else ceil)
    curves = (curve_of(each.evaluations) for _, facts in strategies for each in facts)
    if not 0 < target < inf or any(first_at(curve, target, "version", lead) == 0 for curve in curves):
        return []
    ended = f"{100 * worst:.1f} %" if lead.rate else lead.told(worst)
    if lead.higher:
        return [_Goal(target, f"{100 * fraction:g} % of the lowest final {lead.words}, {ended} of {label}")]
    return [_Goal(target, f"{100 * fraction:g} % of it is the highest final {lead.words}, {ended} of {label}")]


def _to_three_digits(value: float, rounded: Callable[[float], int]) -> float:
    """A positive number with three digits, rounded up (`ceil`) or down (`floor`).

    >>> _to_three_digits(3141.5, ceil), _to_three_digits(0.012341, floor), _to_three_digits(0.0, ceil)
    (3150.0, 0.0123, 0.0)
    """
    if not 0 < value < inf:
        return value
    place = 2 - floor(log10(value))
    return float(f"{rounded(value * 10.0**place) / 10.0**place:.6g}")


def _remarks(facts: list[_Facts], strategies: list[_Strategy]) -> tuple[str, ...]:
    seeds = [each.run.seed for each in facts]
    every_run = [run for others in strategies for run in others.called.runs]
    remarks = []
    for each in facts:
        lead, made, failure = each.run.lead, made_of(each.version, each.run.planned), each.run.failure
        if not each.finished:
            failed = f"failed: {failure.partition(';')[0]}; it was last saved" if failure else "is unfinished,"
            remarks.append(f"seed {each.run.seed} {failed} at {made} aggregations")
        elif len(curve_of(each.evaluations)) and not isfinite(each.final(lead.name)):
            remarks.append(f"seed {each.run.seed} diverged: its final {lead.words} is not finite")
        elif each.version < (each.run.planned or 0) and each.run.meta.get("until_time") is None:
            remarks.append(f"seed {each.run.seed} ended at {made} aggregations: {each.run.meta['reason']}")
    if any(each.groups_by_own for each in facts):
        remarks.append(
            "the scores of client groups are on their clients' own test data, because the task has no labels"
        )
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
