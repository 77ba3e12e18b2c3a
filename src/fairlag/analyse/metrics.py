"""The table of metrics: for each, its name, how it is computed and written, where it is shown, which values are better.

Comparisons, rankings, tables, frames, pages, audits, JSON and trackers iterate over it: a new metric is a new record.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, Flag, auto
from functools import cache
from math import nan
from typing import Generic, TypeVar

from fairlag.analyse.fairness import GroupFairness
from fairlag.analyse.totals import OwnScores, Totals
from fairlag.text.numerals import number, significant
from fairlag.text.scored import ACCURACY, Scored


class Scope(Enum):
    """What a metric describes."""

    RUN = auto()
    GROUP = auto()
    """One client group."""
    CLASS = auto()
    """One class of the test examples."""
    OWN = auto()
    """The own test data of clients, if they hold some back."""
    TARGET = auto()
    """A run and a target of the leading metric, which some seeds may never reach."""


class Better(Enum):
    """Which values are better, in the words of a ranking."""

    HIGHER = "the highest first"
    LOWER = "the lowest first"
    SHORTER = "the shortest first"
    FAIR = "the closest to fair first"


class Shown(Flag):
    """Where a metric is shown."""

    RANKING = auto()
    """The ranking in a terminal, which has the least room."""
    DETAILS = auto()
    """The table of groups below it."""
    NOTEBOOK = auto()
    PAGE = auto()
    DATA = auto()
    """The JSON and the frame of a comparison."""
    AUDIT = auto()
    """The table and the JSON of an audit."""
    TRACKERS = auto()

    TABLES = RANKING | NOTEBOOK | PAGE
    EVERYWHERE = TABLES | DETAILS | DATA | AUDIT | TRACKERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric.

    >>> LEAD.written(0.5, 0.015), LEAD.written(None)
    ('50.00 ±1.50', '–')
    """

    name: str
    """Its name in JSON, frames, trackers and as an attribute."""
    scope: Scope
    of: Callable[[Totals, str], float]
    """Computes it; the text is the name of the group or class."""
    title: str
    """The head of its column."""
    form: str = "{:.3f}"
    """The format of a value; a percentage is written without its sign, which is in the title; empty: four digits."""
    deviates: bool = False
    """Is the standard deviation over seeds written as well?"""
    better: Better | None = None
    """None if neither is better; then nothing is ranked by it."""
    by: str = ""
    """The name of a ranking by it; empty for its own name."""
    words: str = ""
    """Its name in a sentence; empty for its title."""
    alone: str = ""
    """Its title if only one group is shown; empty for the same title."""
    reading: str = ""
    """How to read the column, if that is not obvious."""
    shown: Shown = Shown.EVERYWHERE
    uneven: Shown | None = None
    """Where it is shown if clients are not entitled equally, such as if they come and go; None for the same places."""

    def where(self, uneven: bool | None) -> Shown:
        """Where it is shown if clients are entitled equally or unequally; None for both cases together."""
        differently = self.shown if self.uneven is None else self.uneven
        return self.shown | differently if uneven is None else differently if uneven else self.shown

    def written(self, value: float | None, deviation: float | None = None) -> str:
        """A value as a cell of a table."""
        around = deviation if self.deviates else None
        if not self.form:
            return significant(value, around)
        text = number(value, self.form).rstrip("%")
        return text if around is None else f"{text} ±{number(around, self.form).rstrip('%')}"


def _score(metric: str, scope: str) -> Callable[[Totals, str], float]:
    return lambda totals, name: totals.scores.get((metric, scope, name), nan)


def _group(number: Callable[[GroupFairness], float]) -> Callable[[Totals, str], float]:
    return lambda totals, name: number(totals.by_group[name])


def _own(number: Callable[[OwnScores], float]) -> Callable[[Totals, str], float]:
    return lambda totals, _: number(totals.own[False]) if False in totals.own else nan


def _personalised(of: Callable[[Totals, str], float]) -> Callable[[Totals, str], float]:
    """The same after the clients' own local steps."""
    return lambda totals, name: of(replace(totals, own={False: totals.own[True]}), name) if True in totals.own else nan


_ACCURACY = Metric(
    name="accuracy",
    scope=Scope.RUN,
    of=_score("accuracy", "all"),
    title="accuracy %",
    form="{:.2%}",
    deviates=True,
    better=Better.HIGHER,
    words="accuracy",
    reading="accuracy: final, on all test examples; mean ± deviation over finished seeds",
    shown=Shown.TABLES | Shown.DATA | Shown.TRACKERS,
)
_LOSS = Metric(name="loss", scope=Scope.RUN, of=_score("loss", "all"), title="loss", shown=Shown.TRACKERS)
_JAIN = Metric(
    name="jain",
    scope=Scope.RUN,
    of=lambda totals, _: totals.jain,
    title="Jain",
    better=Better.HIGHER,
    words="Jain index",
    uneven=Shown.DETAILS | Shown.DATA | Shown.AUDIT | Shown.TRACKERS,
)
_STALENESS = Metric(
    name="staleness",
    scope=Scope.RUN,
    of=lambda totals, _: totals.mean_staleness,
    title="staleness",
    form="{:.2f}",
    shown=Shown.NOTEBOOK | Shown.PAGE | Shown.DETAILS | Shown.DATA | Shown.TRACKERS,
    uneven=Shown.NOTEBOOK | Shown.PAGE | Shown.DATA | Shown.TRACKERS,
)
_UPDATES = Metric(
    name="updates",
    scope=Scope.RUN,
    of=lambda totals, _: float(totals.updates.sum()),
    title="updates",
    form="{:,.0f}",
    shown=Shown.DATA | Shown.TRACKERS,
)
_INFLUENCE = Metric(
    name="influence",
    scope=Scope.GROUP,
    of=_group(lambda group: group.influence),
    title="influence",
    better=Better.FAIR,
)

_OWN = Metric(
    name="own_data",
    scope=Scope.OWN,
    of=_own(lambda own: own.mean),
    title="mean %",
    form=_ACCURACY.form,
    deviates=True,
    better=Better.HIGHER,
    words="accuracy on clients' own data",
    reading="mean: over clients, each on its own test data",
    shown=Shown.DETAILS | Shown.DATA | Shown.TRACKERS,
)
_OWN_DATA = (
    _OWN,
    replace(
        _OWN,
        name="worst_tenth",
        of=_own(lambda own: own.worst_tenth),
        title="worst tenth %",
        words="worst tenth of clients",
        reading="worst tenth: a tenth of the clients have this value or a worse one",
    ),
    replace(
        _OWN,
        name="group_gap",
        of=_own(lambda own: own.group_gap),
        title="group gap %",
        better=Better.LOWER,
        words="gap between groups",
        reading="group gap: between the means of the best and the worst client group",
    ),
)
PERSONALISED = "_personalised"
"""The end of the name of a metric on clients' own data after their own local steps."""

METRICS: tuple[Metric, ...] = (
    _ACCURACY,
    _JAIN,
    replace(
        _JAIN,
        name="jain_entitled",
        of=lambda totals, _: totals.jain_entitled,
        title="Jain÷",
        by="jain",
        words="Jain÷",
        reading="Jain÷: Jain index of influence ÷ entitlement",
        shown=Shown.DATA | Shown.TRACKERS,
        uneven=Shown.TABLES | Shown.DETAILS | Shown.DATA | Shown.AUDIT | Shown.TRACKERS,
    ),
    _STALENESS,
    replace(
        _UPDATES,
        name="time",
        scope=Scope.TARGET,
        of=lambda totals, _: totals.reached,
        title="time",
        better=Better.SHORTER,
        shown=Shown.TABLES,
    ),
    _LOSS,
    _UPDATES,
    replace(_UPDATES, name="aggregations", of=lambda totals, _: totals.version, title="aggregations", shown=Shown.DATA),
    replace(_UPDATES, name="virtual_time", of=lambda totals, _: totals.time, title="virtual time"),
    replace(
        _ACCURACY,
        scope=Scope.GROUP,
        of=_score("accuracy", "group"),
        by="group",
        alone="group %",
        reading="accuracy of a group: on the labels that it holds",
    ),
    replace(_LOSS, scope=Scope.GROUP, of=_score("loss", "group")),
    replace(_ACCURACY, scope=Scope.CLASS, of=_score("accuracy", "class"), shown=Shown.TRACKERS),
    replace(
        _INFLUENCE,
        name="share",
        of=_group(lambda group: group.update_share),
        title="share",
        better=None,
        reading="share: the group's share of all updates",
        shown=Shown.DATA | Shown.AUDIT,
    ),
    _INFLUENCE,
    replace(
        _INFLUENCE,
        name="fair",
        of=_group(lambda group: group.fair),
        title="fair",
        better=None,
        reading="influence: the group's share of all weight; fair: its share of all clients",
        shown=Shown.TABLES | Shown.DETAILS | Shown.AUDIT,
        uneven=Shown(0),
    ),
    replace(
        _INFLUENCE,
        name="entitled",
        of=_group(lambda group: group.entitled),
        title="entitled",
        better=None,
        reading="influence: the group's share of all weight; entitled: its share of all versions, each split among the "
        "clients present: equally, or by the strategy's `importance`",
        shown=Shown.DATA | Shown.TRACKERS,
        uneven=Shown.TABLES | Shown.DETAILS | Shown.AUDIT | Shown.DATA | Shown.TRACKERS,
    ),
    replace(
        _INFLUENCE,
        name="per_presence",
        of=_group(lambda group: group.per_presence),
        title="per time",
        form="{:.2f}",
        better=None,
        reading="per time: its influence per unit of time present; 1 is the mean of all clients",
        shown=Shown.DATA,
        uneven=Shown.DETAILS | Shown.AUDIT | Shown.DATA,
    ),
    replace(
        _STALENESS,
        scope=Scope.GROUP,
        of=_group(lambda group: group.mean_staleness),
        reading="staleness: how many versions late its updates are on average",
        shown=Shown.NOTEBOOK | Shown.DETAILS | Shown.AUDIT | Shown.DATA | Shown.TRACKERS,
        uneven=Shown.NOTEBOOK | Shown.AUDIT | Shown.DATA | Shown.TRACKERS,
    ),
    *_OWN_DATA,
    *(replace(each, name=each.name + PERSONALISED, of=_personalised(each.of)) for each in _OWN_DATA),
)
"""All metrics, in the order in which they are shown."""

LEAD = _ACCURACY
"""The metric of a model's quality, unless its task has another: targets are values of it, and runs are ranked by it."""

Judged = tuple[Scored, ...]
"""The metrics that models are judged by, the leading one first."""


def lead_of(judged: Judged) -> Metric:
    """The leading metric of runs whose models are judged by these.

    >>> lead_of((Scored("mse", higher=False, rate=False),)).title, lead_of((ACCURACY,)) == LEAD
    ('MSE', True)
    """
    return next(metric for metric in _metrics(judged) if metric.name == judged[0].name)


def _metrics(judged: Judged) -> tuple[Metric, ...]:
    """The table of runs that are judged by these: the leading one in place of accuracy, the others after it."""
    return _replaced(METRICS, judged)


@cache
def _replaced(metrics: tuple[Metric, ...], judged: Judged) -> tuple[Metric, ...]:
    lead, *others = judged
    found = []
    for metric in metrics:
        if metric.name != LEAD.name:
            found.append(_as(metric, lead) if metric.scope is Scope.OWN else metric)
            continue
        found.append(_as(metric, lead))
        for each in others if metric.scope is not Scope.CLASS else ():
            other = replace(_as(metric, each), shown=Shown.DATA | Shown.TRACKERS)
            if metric is LEAD:
                found.append(replace(other, shown=Shown.EVERYWHERE & ~(Shown.RANKING | Shown.AUDIT), reading=""))
            else:
                found.append(replace(other, by="", better=None))
    return tuple(found)


def _as(metric: Metric, scored: Scored) -> Metric:
    """A metric of accuracy as one of something else."""
    if scored == ACCURACY:
        return metric
    if metric.scope is Scope.OWN:
        better = metric.better if scored.higher else Better.LOWER
        title = metric.title if scored.rate else metric.title.removesuffix(" %")
        return replace(metric, title=title, form=metric.form if scored.rate else "", better=better)
    return replace(
        metric,
        name=scored.name,
        of=_score(scored.name, {Scope.RUN: "all", Scope.GROUP: "group", Scope.CLASS: "class"}[metric.scope]),
        title=scored.title,
        form=metric.form if scored.rate else "",
        better=Better.HIGHER if scored.higher else Better.LOWER,
        words=scored.words,
        alone=metric.alone and f"group {scored.title}",
        reading=metric.reading.replace(LEAD.words, scored.words),
    )


def select(where: Shown, *scopes: Scope, uneven: bool | None = None, judged: Judged = (ACCURACY,)) -> list[Metric]:
    """The metrics of these scopes that are shown in any of these places; `uneven` is as in `Metric.where`.

    >>> [metric.title for metric in select(Shown.RANKING, Scope.GROUP, uneven=True)]
    ['accuracy %', 'influence', 'entitled']
    >>> select(Shown.RANKING, Scope.RUN, judged=(Scored("mse", higher=False, rate=False),))[0].title
    'MSE'
    """
    return [metric for metric in _metrics(judged) if metric.scope in scopes and where & metric.where(uneven)]


def criteria(*, uneven: bool = False, judged: Judged = (ACCURACY,)) -> dict[str, Metric]:
    """The metrics that strategies can be ranked by, by the name of the ranking.

    >>> [*criteria()], criteria()["jain"].title, criteria(uneven=True)["jain"].title
    (['accuracy', 'group', 'influence', 'jain', 'time'], 'Jain', 'Jain÷')
    >>> [*criteria(judged=(Scored("mse", False, False), Scored("r2", True, False)))]
    ['group', 'influence', 'jain', 'mse', 'r2', 'time']
    """
    found = select(Shown.TABLES, *Scope, uneven=uneven, judged=judged)
    by_name = {metric.by or metric.name: metric for metric in found if metric.better is not None}
    return {name: by_name[name] for name in sorted(by_name)}


Value = TypeVar("Value")


class Measured(Generic[Value]):
    """A record with metrics; each is also an attribute, as in `found.jain`."""

    __slots__ = ()
    metrics: Mapping[str, Value]

    def __getattr__(self, name: str) -> Value:
        if name != "metrics" and name in self.metrics:
            return self.metrics[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
