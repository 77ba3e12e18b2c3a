"""What tests of the report page share: what must be true of every section, and the content of charts."""

import json
import re
from base64 import b64decode
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np
from plotly.graph_objects import Figure  # type: ignore[import-untyped]

from fairlag.report.page.spec import Section, View

_TOKEN = re.compile(r"@[a-z]+[0-9]*(/[0-9.]+)?")


def checked(section: Section) -> None:
    """Plotly accepts every view, every chart has one view per choice, and nothing that readers need is missing."""
    names = [chart.name for chart in section.charts]
    assert section.name and section.title and section.lead.endswith(".")
    assert len(set(names)) == len(names)
    assert section.charts or section.tables or section.remarks
    for remark in section.remarks:
        assert remark.endswith(".")
    for chart in section.charts:
        assert chart.title and chart.reading.endswith(".")
        keys = ["|".join(keys) for keys in product(*(switch.options for switch in chart.switches))]
        assert sorted(chart.views) == sorted(keys)
        for view in chart.views.values():
            _check_view(view)
    for table in (*section.tables, *(chart.table for chart in section.charts if chart.table)):
        assert table.caption and {len(row) for row in table.rows} <= {len(table.head)}
        assert len(table.marks) in (0, len(table.rows))
        assert all(isinstance(cell, str) for row in table.rows for cell in row)
    size(section)


def _check_view(view: View) -> None:
    layout = dict(_coloured(view.layout))
    notes = [{name: part for name, part in note.items() if name != "narrow"} for note in layout.pop("annotations", [])]
    Figure(data=_coloured(list(view.traces)), layout={**layout, "annotations": notes})
    for trace in view.traces:
        assert "<extra></extra>" in trace.get("hovertemplate", "") or trace.get("hoverinfo") == "skip"
        assert "%{" not in trace.get("name", "")


def _coloured(value: Any) -> Any:
    if isinstance(value, str):
        return "#123456" if _TOKEN.fullmatch(value) else value
    if isinstance(value, dict):
        return {name: _coloured(each) for name, each in value.items()}
    return [_coloured(each) for each in value] if isinstance(value, list) else value


def size(section: Section) -> int:
    """The number of characters of the section in a page; fails if a number in it is infinite or NaN."""
    return len(json.dumps(asdict(section), allow_nan=False, ensure_ascii=False, separators=(",", ":")))


def values(array: Any) -> list[Any]:
    """The numbers of a chart's array, in whatever form they are written."""
    if isinstance(array, list):
        return array
    found = np.frombuffer(b64decode(array["bdata"]), array["dtype"])
    shape = [int(side) for side in array["shape"].split(",")] if "shape" in array else [-1]
    return list(found.reshape(shape).tolist())


def named(view: View) -> dict[str, dict[str, Any]]:
    """The traces of a view that have an entry in its legend, by name."""
    return {trace["name"]: trace for trace in view.traces if "name" in trace and trace.get("showlegend", True)}


HOSTILE = ["<b>bold</b>", "%{x} &", "@bad", "x" * 200]
"""Names that a page must show exactly."""
