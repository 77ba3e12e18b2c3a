"""What the card of a run shows, read from its HTML."""

import xml.etree.ElementTree as ElementTree
from math import nan
from pathlib import Path

import numpy as np

from fairlag.core.types import Aggregation, Dispatch
from fairlag.lab.run import Run
from fairlag.lab.store import Store
from tests.support.scores import scored

HOSTILE = '<script>alert("1")</script>&amp;'


def page(html: str) -> ElementTree.Element:
    """Parses HTML as a browser would; fails if an element is not closed or text is not escaped."""
    return ElementTree.fromstring(html)


def words(element: ElementTree.Element) -> list[str]:
    return [text for each in element for text in ["".join(each.itertext())]]


def rows(html: str) -> list[list[str]]:
    return [words(row) for row in page(html).iter("tr")]


def bars(html: str) -> list[tuple[float, float]]:
    """The length of each bar and the place of its mark, relative to the longest bar."""
    found = []
    for svg in page(html).iter("svg"):
        whole, part = (float(each.attrib["width"]) for each in svg.iter("rect"))
        mark = [float(each.attrib["d"].split()[0][1:]) for each in svg.iter("path")]
        found.append((part / whole, mark[0] / whole if mark else nan))
    return found


def hostile(folder: Path) -> Run:
    """One aggregation by two clients. Their group, the experiment and the strategy all have hostile names."""
    meta = {"experiment": HOSTILE, "label": HOSTILE, "seed": 0, "aggregations": 1}
    one = np.array([0, 0])
    with Store.create(folder, meta, experiment="", groups=[HOSTILE], group_of=one, examples=one) as store:
        tasks = (Dispatch(0, 0, 0, 0, 0.0), Dispatch(1, 1, 0, 0, 0.0))
        store.record(Aggregation(1, 1.0, tasks, [1.0, 1.0], np.array([0, 0]), np.array([0.5, 0.5]), False))
        store.evaluated(
            1, 1.0, [scored(scope, name, 10, 9, 1.0, True) for scope, name in (("all", ""), ("group", HOSTILE))]
        )
        store.fail(HOSTILE)
    return Run(folder)
