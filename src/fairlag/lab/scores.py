"""Scores from the evaluations of a run: the curve, and the final value."""

from collections.abc import Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING, Any

from fairlag.errors import InputError, nearest
from fairlag.text.scored import ACCURACY, COLUMNS, LOSS, Scored

if TYPE_CHECKING:
    import pandas as pd

SCOPES = ("all", "class", "group")
"""What an evaluation covers: all test examples, those of one class, or those with the labels of a client group."""


def known_name(scope: str, name: str | int | None, groups: list[str], classes: int) -> str | None:
    """The name as in evaluations; refuses one that no evaluation of a run with these groups and classes can have.

    >>> known_name("class", 3, ["fast", "slow"], classes=10)
    '3'
    """
    if scope not in SCOPES:
        raise InputError(f"evaluations were asked for by {scope!r}, it must be one of {', '.join(SCOPES)}")
    if name is None:
        return None
    if scope == "all":
        raise InputError(f"evaluations on all examples have no name, but {name!r} was given: leave it out")
    if str(name) not in (groups if scope == "group" else map(str, range(classes))):
        known = f"one of {', '.join(groups)}" if scope == "group" else f"from 0 to {classes - 1}"
        raise InputError(f"the run has no {scope} {name!r}: it must be {known}")
    return str(name)


_KEY = ["version", "time", "scope", "name", "whole", "examples"]


def metrics_of(meta: Mapping[str, Any]) -> tuple[Scored, ...]:
    """The metrics of a run, from its record; the first leads."""
    return tuple(Scored(**each) for each in meta.get("metrics", ())) or (ACCURACY,)


def are_metrics(value: object) -> bool:
    """Is this a record of metrics?"""
    kinds = {"name": str, "higher": bool, "rate": bool}
    return isinstance(value, list) and all(
        isinstance(each, dict)
        and each.keys() == kinds.keys()
        and all(isinstance(each[name], kind) for name, kind in kinds.items())
        and each["name"].isidentifier()
        and each["name"] not in COLUMNS
        for each in value
    )


def known_metric(metric: str | None, metrics: Sequence[Scored]) -> Scored:
    """The metric with this name, or the leading one; refuses one that the run does not have.

    >>> known_metric("mse", [ACCURACY])
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: the run has no metric 'mse': choose from accuracy, loss
    """
    known = {each.name: each for each in (*metrics, LOSS)}
    if metric is None:
        return metrics[0]
    if metric not in known:
        raise InputError(f"the run has no metric {metric!r}: {nearest(metric, known)}")
    return known[metric]


def in_columns(rows: "pd.DataFrame", metrics: Sequence[Scored]) -> "pd.DataFrame":
    """One row per evaluation, with a column per metric, from one row per metric."""
    names = dict.fromkeys(each.name for each in (LOSS, *metrics))
    wide = rows.pivot(index=_KEY, columns="metric", values="value").reindex(columns=[*names]).astype("float64")
    wide = wide.rename_axis(columns=None).reset_index().astype(rows.dtypes[_KEY].to_dict())
    lead = wide[metrics[0].name]
    error = (lead * (1 - lead) / wide["examples"]) ** 0.5 if metrics[0].rate else nan * lead
    return wide[[*_KEY[:4], "examples", "whole", *names]].assign(standard_error=error)


def curve_of(evaluations: "pd.DataFrame", scope: str = "all", name: str | None = None) -> "pd.DataFrame":
    """`Run.curve` from evaluations that were already read."""
    rows = _chosen(evaluations, scope, name)
    sampled = rows[~rows["whole"]]
    return (sampled if len(sampled) else rows).reset_index(drop=True)


def final_of(evaluations: "pd.DataFrame", metric: str, scope: str = "all", name: str | None = None) -> float:
    """`Run.score` from evaluations that were already read."""
    values = _chosen(evaluations, scope, name)[metric]
    return float(values.iloc[-1]) if len(values) else nan


def first_at(curve: "pd.DataFrame", target: float, column: str, metric: Scored) -> float:
    """Where a curve first reaches a value of a metric: the "time" or the "version"; NaN if it does not."""
    values = curve[metric.name]
    passed = curve.loc[values >= target if metric.higher else values <= target, column]
    return float(passed.iloc[0]) if len(passed) else nan


def _chosen(evaluations: "pd.DataFrame", scope: str, name: str | None) -> "pd.DataFrame":
    """The evaluations of one scope and name, in order."""
    rows = evaluations[evaluations["scope"] == scope]
    if name is not None:
        return rows[rows["name"] == name]
    names = sorted(rows["name"].unique())
    if len(names) > 1:
        raise InputError(f"there is more than one {scope}: give a name, one of {', '.join(names)}")
    return rows
