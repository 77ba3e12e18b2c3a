"""Refusals and losses: how all tasks ended, by client group and reason."""

from collections import Counter
from collections.abc import Sequence

from fairlag.analyse.outcomes import Outcomes, TaskEnd
from fairlag.core.types import Outcome
from fairlag.report.page.charts import MOST_GROUPS, left_out, plain_names, present
from fairlag.report.page.spec import Chart, Json, Named, Section, Switch, Table, View, numbers
from fairlag.text.numerals import NONE

_MOST_PARTS = 8
"""The most parts of a bar: more could not be told apart."""

_REASON = 44
"""How long a reason may be in a legend or a tooltip."""

_OTHER = "other reasons"

_LOOKS: dict[str, tuple[str, Sequence[str]]] = {
    Outcome.AGGREGATED: ("@faint/0.3", ("",)),
    Outcome.REFUSED: ("@bad", ("/", "\\", "x", "-", "|", "+", ".")),
    Outcome.LOST: ("@ink/0.6", ("", "/", "\\", "x", "-", "|", "+", ".")),
    Outcome.CANCELLED: ("@faint", (".", "/", "x", "\\", "-", "|", "+")),
}
"""The colour of an outcome, and the patterns of its reasons."""

_LEAD = "How much work was wasted: updates that were refused, and tasks that were cancelled or lost with their client."
_READING = (
    "One bar per strategy. Its parts show how the tasks that ended did so, in per cent: the shorter the coloured "
    "parts, the less work was wasted."
)
_SHOWN = {"some": "wasted tasks", "all": "all tasks"}


def losses_section(shown: Sequence[tuple[Named, Outcomes]]) -> Section:
    """How the tasks of each strategy ended; only a sentence if all were merged."""
    title = "Refusals and losses"
    ended, remarks = present([(named, each if each.tasks else None) for named, each in shown], "no task has ended yet")
    if not ended:
        return Section("losses", title, _LEAD, remarks=["No task has ended yet."])
    remarks += _remarks(ended)
    parts = _parts(ended)
    if not parts:
        words = "No task was refused, lost or cancelled: every task that ended was merged."
        return Section("losses", title, _LEAD, remarks=[words, *remarks])
    groups = list(dict.fromkeys(name for _, each in ended for name in each.groups))
    several = groups[:MOST_GROUPS] if len(groups) > 1 else []
    clients = {"all": "all"} | {f"g{place}": name for place, name in enumerate(several)}
    views = {
        f"{key}|{extent}": _view(ended, parts, None if key == "all" else clients[key], whole=extent == "all")
        for key in clients
        for extent in _SHOWN
    }
    chart = Chart(
        name="losses",
        title="How all tasks ended",
        reading=_READING,
        views=views,
        switches=[Switch("Clients", clients), Switch("Shown", _SHOWN)],
        height=170 + 34 * len(ended),
        table=_table(ended),
    )
    return Section(
        "losses", title, _LEAD, charts=[chart], tables=[_reasons(ended)], remarks=remarks + left_out(len(groups))
    )


def _parts(shown: Sequence[tuple[Named, Outcomes]]) -> list[TaskEnd]:
    """The parts of a bar, for each outcome the most common reason first; rare reasons share one part."""
    found: Counter[TaskEnd] = Counter()
    for _, each in shown:
        found.update(each.of())
    spoilt = [end for end, _ in found.most_common() if end.outcome != Outcome.AGGREGATED]
    kept = spoilt if len(spoilt) <= _MOST_PARTS else spoilt[: _MOST_PARTS - 3]
    rest = dict.fromkeys(TaskEnd(end.outcome, _OTHER) for end in spoilt[len(kept) :])
    return [end for outcome in _LOOKS for end in (*kept, *rest) if end.outcome == outcome]


def _view(shown: Sequence[tuple[Named, Outcomes]], parts: Sequence[TaskEnd], group: str | None, *, whole: bool) -> View:
    counted = [_counted(each.of(group), parts) for _, each in shown]
    drawn = [TaskEnd(Outcome.AGGREGATED), *parts] if whole else parts
    seen: Counter[str] = Counter()
    traces = []
    for end in drawn:
        part = _part(end, [each[end] for each in counted], [each.total() for each in counted], seen)
        traces.append(part | {"hovertext": plain_names([named.label for named, _ in shown])})
        seen[end.outcome] += 1
    layout: Json = {
        "barmode": "stack",
        "xaxis": {"title": {"text": "share of the tasks that ended"}, "tickformat": ".1~%", "rangemode": "tozero"},
        "yaxis": {
            "tickvals": list(range(len(shown))),
            "ticktext": plain_names([named.label for named, _ in shown], 28),
            "range": [len(shown) - 0.45, -0.55],
            "fixedrange": True,
            "showgrid": False,
            "zeroline": False,
        },
    }
    if whole:
        layout["xaxis"] |= {"range": [0, 1]}
    missing = [named.label for (named, _), each in zip(shown, counted, strict=True) if not each.total()]
    return View(traces, layout, f"No task of these clients ended under {', '.join(missing)}." if missing else "")


def _counted(tasks: Counter[TaskEnd], parts: Sequence[TaskEnd]) -> Counter[TaskEnd]:
    """The number of tasks in each part of a bar."""
    found: Counter[TaskEnd] = Counter()
    for end, many in tasks.items():
        merged = end.outcome == Outcome.AGGREGATED
        found[end if merged or end in parts else TaskEnd(end.outcome, _OTHER)] += many
    return found


def _part(end: TaskEnd, tasks: Sequence[int], ended: Sequence[int], seen: Counter[str]) -> Json:
    colour, patterns = _LOOKS[end.outcome]
    name = plain_names([_named(end)], _REASON)[0]
    return {
        "type": "bar",
        "orientation": "h",
        "x": numbers([many / max(1, total) for many, total in zip(tasks, ended, strict=True)], 6),
        "y": list(range(len(tasks))),
        "width": 0.66,
        "customdata": [[many, total] for many, total in zip(tasks, ended, strict=True)],
        "marker": {
            "color": colour,
            "line": {"width": 0},
            "pattern": {"shape": patterns[seen[end.outcome] % len(patterns)], "solidity": 0.4, "size": 7},
        },
        "name": name,
        "hovertemplate": (
            f"%{{hovertext}}<br>{name}"
            "<br>%{customdata[0]:,.0f} of %{customdata[1]:,.0f} tasks, %{x:.3~%}<extra></extra>"
        ),
    }


def _named(end: TaskEnd) -> str:
    if end.outcome == Outcome.AGGREGATED:
        return "merged"
    return f"{end.outcome}: {end.reason}" if end.reason else end.outcome


def _table(shown: Sequence[tuple[Named, Outcomes]]) -> Table:
    rows = []
    for named, each in shown:
        for group in (None, *(each.groups[:MOST_GROUPS] if len(each.groups) > 1 else ())):
            counts = Counter[str]()
            for end, many in each.of(group).items():
                counts[end.outcome] += many
            total = counts.total()
            spoilt = f"{1 - counts[Outcome.AGGREGATED] / total:.2%}" if total else NONE
            name = f"{named.label}, {'all' if group is None else group}"
            rows.append([name, f"{total:,}", *(f"{counts[outcome]:,}" for outcome in Outcome), spoilt])
    head = ("strategy, clients", "tasks that ended", "merged", "refused", "lost", "cancelled", "wasted")
    return Table("How all tasks ended", head, rows)


def _reasons(shown: Sequence[tuple[Named, Outcomes]]) -> Table:
    rows = []
    for named, each in shown:
        found = each.of()
        common = [(end, many) for end, many in found.most_common() if end.outcome != Outcome.AGGREGATED]
        rows += [
            [named.label, end.outcome, end.reason or NONE, f"{many:,}", f"{many / found.total():.2%}"]
            for end, many in common[:_MOST_PARTS]
        ]
        if rest := sum(many for _, many in common[_MOST_PARTS:]):
            rows.append([named.label, NONE, _OTHER, f"{rest:,}", f"{rest / found.total():.2%}"])
    return Table("Why tasks were wasted", ("strategy", "outcome", "reason", "tasks", "share of ended tasks"), rows)


def _remarks(shown: Sequence[tuple[Named, Outcomes]]) -> list[str]:
    short = [f"{named.label} {each.partial:,} of {each.aggregations:,}" for named, each in shown if each.partial]
    strays = [
        f"{named.label} {each.unmatched.total():,} ({_common(each.unmatched)})"
        for named, each in shown
        if each.unmatched
    ]
    left = [f"{named.label} {each.open:,}" for named, each in shown if each.open]
    told = (
        ("Partial aggregations, because all clients were waiting for a buffer that was not full", short),
        ("Updates that were refused because they belonged to no running task", strays),
        ("Tasks that were running or waiting in the buffer at the end, and are not counted", left),
    )
    return [f"{words}: {'; '.join(those)}." for words, those in told if those]


def _common(reasons: Counter[str]) -> str:
    return ", ".join(reason for reason, _ in reasons.most_common(_MOST_PARTS))
