"""The colours of strategies and client groups, the same in all figures and pages, for light and dark backgrounds."""

from collections.abc import Sequence
from typing import NamedTuple

from fairlag.analyse.compare import Repeated
from fairlag.lab.plan import planned_labels


class Shade(NamedTuple):
    """A colour for a light and for a dark background."""

    light: str
    dark: str


STRATEGIES = (
    Shade("#0072B2", "#4BA3DF"),
    Shade("#D55E00", "#EE7D3B"),
    Shade("#009E73", "#2FC596"),
    Shade("#CC79A7", "#E295C1"),
    Shade("#000000", "#F2F2F2"),
    Shade("#E69F00", "#F2B632"),
    Shade("#56B4E9", "#9CDBFF"),
)
"""Okabe and Ito's colours, distinct for every kind of colour vision; the paler ones last, without yellow."""

GROUPS = (
    Shade("#3DA494", "#5CCBB8"),
    Shade("#882255", "#D9659C"),
    Shade("#999933", "#C2C254"),
    Shade("#332288", "#9184E8"),
    Shade("#CC6677", "#E78C99"),
    Shade("#117733", "#55B573"),
    Shade("#88CCEE", "#A9E1FB"),
    Shade("#DDCC77", "#EADC98"),
)
"""Tol's muted colours: equally distinct, and different from the strategies'; the paler ones last. The first is darkened
a little to be visible on white; the first two also differ when printed in grey."""

LINES = ("solid", "dash", "dot", "dashdot")
"""Line styles, used in turn once all colours are used."""

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "pentagon", "triangle-down")
"""The marks of client groups, one per colour, so that groups can be told apart without colour."""


def strategy_places(found: Sequence[Repeated]) -> list[int]:
    """The places of these strategies, which set their colours: their order in the plan if all are of one, else here."""
    plans = {run.folder.parent for each in found for run in each.runs}
    planned = planned_labels(plans.pop()) if len(plans) == 1 else []
    if len({each.label for each in found} & set(planned)) == len(found):
        return [planned.index(each.label) for each in found]
    return list(range(len(found)))
