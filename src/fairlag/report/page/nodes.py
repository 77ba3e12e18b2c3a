"""Nodes: who was admitted to a deployment, refused, bounded or put into quarantine, and why."""

from collections.abc import Sequence

from fairlag.lab.nodelog import Decided, NodeState, decided, lines_of, per_node
from fairlag.lab.run import Run
from fairlag.report.labels import shortened
from fairlag.report.page.spec import Named, Section, Table
from fairlag.runtime.decisions import ADMITTED, BOUNDED, QUARANTINED, REFUSED, RELEASED
from fairlag.text.numerals import NONE

_MOST = 60
"""The most rows of a table: the first ones."""

_LONGEST, _SHORT = 40, 20
"""The most characters of a node's name, where it is introduced and where it is repeated."""

_LEAD = "Which nodes took part in the deployment, and what the server decided about them."
_READING = (
    "Repeated decisions are logged when their number is 1, 2, 4, 8, …, so the true number may be up to twice as large. "
    "Times are those of the server's clock, in UTC."
)


def nodes_sections(shown: Sequence[tuple[Named, Run]]) -> list[Section]:
    """The section, if any run has a log of its nodes."""
    tables, remarks = [], []
    for named, run in shown:
        lines, head = lines_of(run.folder, run.meta)
        if not lines:
            continue
        label = f"{named.label}, seed {run.seed}: " if len(shown) > 1 else ""
        states = per_node(lines)
        tables += [_nodes(label, states), _decisions(label, decided(lines))]
        excluded = [each.node for each in states if each.quarantine is not None]
        names = ", ".join(shortened(excluded[:_MOST], _LONGEST)) or "no node"
        remarks.append(f"{label}in quarantine: {names}.")
        remarks.append(f"{label}the log has {head.lines:,} lines; the digest of all of them is {head.digest}.")
    remarks = [each[0].upper() + each[1:] for each in remarks]
    return [Section("nodes", "Nodes", _LEAD, tables=tables, remarks=[*remarks, _READING])] if tables else []


def _nodes(label: str, states: Sequence[NodeState]) -> Table:
    names = shortened([each.node for each in states[:_MOST]], _LONGEST)
    rows = [
        [
            name,
            NONE if each.client is None else f"{each.client}",
            *(f"{each.counts.get(kind, 0):,}" for kind in (ADMITTED, REFUSED, BOUNDED)),
            "yes" if each.quarantine is not None else "no",
        ]
        for name, each in zip(names, states, strict=False)
    ]
    head = ("node", "client", "admitted", "updates or attempts refused", "statements cut to a bound", "in quarantine")
    marks = ["@bad" if each.quarantine is not None else "" for each in states[:_MOST]]
    return Table(_caption(label, "nodes", len(states)), head, rows, marks)


def _decisions(label: str, found: Sequence[Decided]) -> Table:
    """Quarantines and releases first, then what happened most often."""
    found = sorted(found, key=lambda each: (each.kind not in (QUARANTINED, RELEASED), -each.times))
    names = shortened([each.node for each in found[:_MOST]], _SHORT)
    rows = [
        [each.kind, name, each.why, f"{each.times:,}", _time(each.first), _time(each.last)]
        for name, each in zip(names, found, strict=False)
    ]
    head = ("decision", "node", "why", "times", "first", "last")
    return Table(_caption(label, "decisions", len(found)), head, rows)


def _caption(label: str, what: str, number: int) -> str:
    first = f" (the first {_MOST} of {number:,})" if number > _MOST else ""
    return f"{label}{what if label else what.capitalize()}{first}"


def _time(at: str) -> str:
    """A time without its zone, which is UTC."""
    return at.partition("+")[0].replace("T", " ")
