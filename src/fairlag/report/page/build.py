"""Builds a page: reads runs or an audit, and makes the sections that show them."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from fairlag.analyse.audit import StrategyAudit
from fairlag.analyse.classes import class_curves, class_names
from fairlag.analyse.compare import Comparison, Repeated, compare, repeated
from fairlag.analyse.curves import curves
from fairlag.analyse.evidence import GroupStaleness, Influence, influence_if_any, staleness_if_any
from fairlag.analyse.outcomes import audited_outcomes, outcomes
from fairlag.analyse.own_data import own_data
from fairlag.analyse.ranking import Ranking, ranked
from fairlag.analyse.ranks import ranks_if_any
from fairlag.analyse.spending import private
from fairlag.analyse.sweep import Swept, ranking_of
from fairlag.analyse.timeline import timeline_if_any
from fairlag.analyse.weights import weights
from fairlag.lab.experiment import Experiment
from fairlag.lab.run import Run
from fairlag.lab.serialise import written
from fairlag.report.answer import answer
from fairlag.report.colours import strategy_places
from fairlag.report.labels import labels_of
from fairlag.report.page.classes import classes_section
from fairlag.report.page.deployment import deployment_section
from fairlag.report.page.differences import differences_section
from fairlag.report.page.incentives import incentives_section
from fairlag.report.page.influence import influence_section
from fairlag.report.page.losses import losses_section
from fairlag.report.page.nodes import nodes_sections
from fairlag.report.page.own_data import own_data_section
from fairlag.report.page.privacy import privacy_sections
from fairlag.report.page.score import score_section
from fairlag.report.page.settled import settled_sections
from fairlag.report.page.spec import Named, Page, Section
from fairlag.report.page.staleness import staleness_section
from fairlag.report.page.summary import Tables, counted, experiment_section, findings, settings
from fairlag.report.page.sweep import sweep_section
from fairlag.report.page.timeline import BARS, timeline_section
from fairlag.report.page.weights import POINTS, weights_section
from fairlag.text import numerals
from fairlag.text.scored import ACCURACY, Scored

Found = TypeVar("Found")

_REAL = "Some of these runs are of a real fleet: their times are real, not virtual."


def runs_page(
    runs: Sequence[Run],
    audits: Sequence[StrategyAudit] | None = None,
    status: str = "",
    notes: Sequence[str] = (),
    sweeps: Sequence[Swept] = (),
) -> Page:
    """A page with everything about these runs. Audits are matched to strategies by label.

    `notes` are remarks on the audits; `sweeps` are those that the runs are tests of.
    """
    found = repeated(runs)
    groups = list(dict.fromkeys(name for each in found for name in each.runs[0].groups))
    named = [
        Named(label, place, tuple(groups.index(name) for name in each.runs[0].groups))
        for each, label, place in zip(found, labels_of(found), strategy_places(found), strict=True)
    ]
    own, targets = ranking_of(sweeps, runs)
    experiments, compared = settings(found), compare(runs, targets)
    rankings = _rankings(experiments, compared, own)
    clock = numerals.clock(*(each.real_time for each in compared))
    deployed = any(each.deployed for each in compared)
    trained = any(tables.get("data") for tables in experiments)
    audited = _by_label(named, audits or [])
    return Page(
        title=", ".join(dict.fromkeys(each.experiment for each in found)),
        lead=[*findings(compared), *([_REAL] if deployed else [])],
        facts=_facts(experiments, len(found), runs),
        sections=[
            experiment_section(
                experiments,
                rankings,
                named,
                groups,
                clock,
                assumed=deployed,
                classes={each.experiment: class_names(each.runs[0]) for each in found},
            ),
            *(sweep_section(each, _tested(each, found, named), place) for place, each in enumerate(sweeps)),
            *differences_section(rankings, ranks_if_any(runs) if trained else None, named),
            *(_learnt(found, named, groups, clock) if trained else []),
            *_own(found, named, groups),
            *_heard(found, named, clock),
            *privacy_sections(_each(found, named, lambda each: private(each.runs[0])), clock),
            incentives_section(audited, notes),
            *settled_sections(audited),
            losses_section(_each(found, named, lambda each: outcomes(each.runs))),
            *nodes_sections([(name, run) for name, each in zip(named, found, strict=True) for run in each.runs]),
        ],
        status=status,
    )


def audit_page(experiment: Experiment, audits: Sequence[StrategyAudit], seeds: int) -> Page:
    """A page with everything that an audit found. Nothing was trained."""
    shown = [(Named(audit.label, place), audit) for place, audit in enumerate(audits)]
    tables = {**json.loads(written(experiment))["experiment"], "data": None}
    return Page(
        title=f"Audit of {experiment.name}",
        lead=[
            "Simulated without training: who the model would listen to, how late updates would be, and who would gain "
            "by cheating.",
            *answer(audits),
        ],
        facts=_counts([tables]) | {"strategies": f"{len(audits)}", "seeds": f"{seeds}"},
        sections=[
            experiment_section([tables], [], [], [table["group"] for table in tables["clients"]]),
            influence_section([(named, Influence.of_audit(audit)) for named, audit in shown]),
            staleness_section([(named, GroupStaleness.of_audit(audit)) for named, audit in shown]),
            incentives_section(shown),
            *settled_sections(shown),
            deployment_section(shown),
            losses_section([(named, audited_outcomes(audit, seeds)) for named, audit in shown]),
        ],
    )


def waiting_page(title: str, why: str) -> Page:
    """A page to show while there are no results."""
    return Page(title=title, lead=[f"Nothing to show yet: {why}."], facts={}, sections=[], status="waiting")


def _rankings(experiments: Sequence[Tables], compared: Sequence[Comparison], own: str | None = None) -> list[Ranking]:
    """One ranking per experiment: by its `own` or leading metric if it trains, otherwise by the Jain index."""
    trained = {tables["name"] for tables in experiments if tables.get("data")}
    criteria = {each.experiment: own if each.experiment in trained else "jain" for each in compared}
    return [
        ranking
        for name, by in criteria.items()
        for ranking in ranked([each for each in compared if each.experiment == name], by)
    ]


def _tested(swept: Swept, found: Sequence[Repeated], named: Sequence[Named]) -> dict[str, Named]:
    """The strategies of the page that are tests of a sweep, by their labels there."""
    return {each.runs[0].label: name for each, name in zip(found, named, strict=True) if swept.holds(each.runs[0])}


def _learnt(found: Sequence[Repeated], named: Sequence[Named], groups: Sequence[str], clock: str) -> list[Section]:
    """The leading metric over time, then per class; one section for each metric that leads in some of the runs."""
    over_time, of_classes = _each(found, named, curves), _each(found, named, class_curves)
    leads = [each.overall.lead for _, each in over_time]
    # A run without scores of classes may have none yet; but a regression never has any.
    known = [
        each.metric if each else lead if lead == ACCURACY else None
        for (_, each), lead in zip(of_classes, leads, strict=True)
    ]
    return [
        *(score_section(mine, groups, clock) for mine in _by_metric(over_time, leads)),
        *(classes_section(mine, groups, clock) for mine in _by_metric(of_classes, known)),
    ]


def _by_metric(
    shown: Sequence[tuple[Named, Found]], metrics: Sequence[Scored | None]
) -> list[list[tuple[Named, Found]]]:
    """The strategies of each metric; without those that have none."""
    together: dict[Scored, list[tuple[Named, Found]]] = {}
    for each, metric in zip(shown, metrics, strict=True):
        if metric is not None:
            together.setdefault(metric, []).append(each)
    return list(together.values())


def _own(found: Sequence[Repeated], named: Sequence[Named], groups: Sequence[str]) -> list[Section]:
    shown = _each(found, named, lambda each: own_data(each.runs))
    return [own_data_section(shown, groups)] if any(each is not None for _, each in shown) else []


def _heard(found: Sequence[Repeated], named: Sequence[Named], clock: str) -> list[Section]:
    bars, points = BARS.of_each(len(found)), POINTS.of_each(len(found))
    return [
        influence_section(_each(found, named, influence_if_any)),
        staleness_section(_each(found, named, staleness_if_any)),
        timeline_section(_each(found, named, lambda each: timeline_if_any(each.runs[0], bars)), clock),
        weights_section(_each(found, named, lambda each: weights(each.runs[0], points))),
    ]


def _each(
    found: Sequence[Repeated], named: Sequence[Named], read: Callable[[Repeated], Found]
) -> list[tuple[Named, Found]]:
    return [(name, read(each)) for name, each in zip(named, found, strict=True)]


def _by_label(named: Sequence[Named], audits: Sequence[StrategyAudit]) -> list[tuple[Named, StrategyAudit]]:
    known = {audit.label: audit for audit in audits}
    return [(name, known[name.label]) for name in named if name.label in known]


def _facts(experiments: Sequence[Tables], strategies: int, runs: Sequence[Run]) -> dict[str, str]:
    finished = sum(run.status == "finished" for run in runs)
    made = sum(run.version for run in runs)
    return _counts(experiments) | {
        "strategies": f"{strategies:,}",
        "seeds": f"{len({run.seed for run in runs}):,}",
        "runs finished": f"{finished:,} of {len(runs):,}",
        "aggregations": f"{made:,}",
    }


def _counts(experiments: Sequence[Mapping[str, object]]) -> dict[str, str]:
    sizes = [counted(tables) for tables in experiments]
    return {"clients": " or ".join(dict.fromkeys(f"{size:,}" for size in sizes))}
