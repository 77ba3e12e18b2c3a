"""Accuracies from the evaluations of a run: the curve, and the final value."""

from math import nan
from typing import TYPE_CHECKING

from fairlag.errors import InputError

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


def curve_of(evaluations: "pd.DataFrame", scope: str = "all", name: str | None = None) -> "pd.DataFrame":
    """`Run.curve` from evaluations that were already read."""
    rows = _chosen(evaluations, scope, name)
    sampled = rows[~rows["whole"]]
    return (sampled if len(sampled) else rows).reset_index(drop=True)


def final_of(evaluations: "pd.DataFrame", scope: str = "all", name: str | None = None) -> float:
    """`Run.accuracy` from evaluations that were already read."""
    accuracies = _chosen(evaluations, scope, name)["accuracy"]
    return float(accuracies.iloc[-1]) if len(accuracies) else nan


def _chosen(evaluations: "pd.DataFrame", scope: str, name: str | None) -> "pd.DataFrame":
    """The evaluations of one scope and name, in order."""
    rows = evaluations[evaluations["scope"] == scope]
    if name is not None:
        return rows[rows["name"] == name]
    names = sorted(rows["name"].unique())
    if len(names) > 1:
        raise InputError(f"there is more than one {scope}: give a name, one of {', '.join(names)}")
    return rows
