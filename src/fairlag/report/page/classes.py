"""A metric of every class over time as a heat map, beside the client groups that hold the class."""

from collections.abc import Sequence

import numpy as np

from fairlag.analyse.classes import COLUMNS, ClassCurves
from fairlag.analyse.curves import mean_of_known
from fairlag.core.types import Floats, Integers
from fairlag.report.page.charts import (
    ALONG,
    along_switch,
    along_words,
    axis,
    empty,
    plain_names,
    present,
    strategy_key,
    strategy_switch,
)
from fairlag.report.page.spec import Chart, Json, Named, Section, Table, View, group_colour, numbers
from fairlag.text.numerals import VIRTUAL
from fairlag.text.scored import ACCURACY, Scored

ROWS = 100
"""The most rows: if there are more classes, neighbours share a row."""

_CELLS = 180_000
"""The most cells of all views, about a megabyte. If there are more views, each has fewer columns."""

_FEWEST = 30

_LONGEST = 20
"""So many characters of a class's name are shown beside its row."""


def classes_section(
    shown: Sequence[tuple[Named, ClassCurves | None]], groups: Sequence[str], clock: str = VIRTUAL
) -> Section:
    """One heat map per strategy, against aggregations and against time. None means that nothing was evaluated."""
    known, remarks = present(shown, "no class has been evaluated yet")
    metric = known[0][1].metric if known else ACCURACY
    section = Section(
        "classes" if metric == ACCURACY else f"classes-{metric.name}",
        f"{metric.heading} per class",
        "Which classes the model knows, and when it learnt them.",
    )
    if not known:
        return empty(section, "No class has been evaluated yet. Evaluation needs data and a model.")
    rows = min(ROWS, max(len(found.names) for _, found in known))
    most = min(COLUMNS, max(_FEWEST, _CELLS // (2 * len(known) * rows)))
    scale = _scale([found for _, found in known], metric)
    chart = Chart(
        name=section.name,
        title=f"{metric.heading} of every class over time",
        reading=(
            "One row per class; the label after it names the only group that holds it, if there is one. Time runs to "
            f"the right. The lighter a cell, {_lighter(metric)}."
        ),
        views={
            f"{strategy_key(place)}|{along}": _view(found, along, clock, most, groups, scale)
            for place, (_, found) in enumerate(known)
            for along in ALONG
        },
        switches=[
            strategy_switch([named for named, _ in known]),
            along_switch(clock),
        ],
        height=min(900, 130 + max(18 * rows, 160)),
        table=_table(known, groups),
    )
    if (longest := max(found.evaluations for _, found in known)) > most:
        remarks.append(f"A heat map shows {most} of up to {longest:,} evaluations, spread evenly over the axis.")
    if (classes := max(len(found.names) for _, found in known)) > ROWS:
        remarks.append(f"{classes:,} classes share {ROWS} rows: a cell is the mean of neighbouring classes.")
    return Section(section.name, section.title, section.lead, [chart], remarks=remarks)


def _lighter(metric: Scored) -> str:
    """What a light cell means."""
    if metric == ACCURACY:
        return "the more test examples of that class are recognised"
    return f"the {'higher' if metric.higher else 'lower'} the {metric.words} of that class"


def _scale(every: Sequence[ClassCurves], metric: Scored) -> Json:
    """The same colours in all views, light for the better values; shares of examples are from 0 to 1."""
    values = np.concatenate([seed.values.ravel() for found in every for seed in found.seeds])
    known = np.array([0, 1]) if metric.rate else values[np.isfinite(values)]
    ends = {"zmin": known.min().item(), "zmax": known.max().item()} if len(known) else {}
    return {**ends, "colorscale": "Viridis", **({} if metric.higher else {"reversescale": True})}


def _view(found: ClassCurves, along: str, clock: str, most: int, groups: Sequence[str], scale: Json) -> View:
    where, values = found.mean(along, most)
    ticks, value = (".0%", ".2%") if found.metric.rate else ("~g", ".4g")
    rows = np.array_split(np.arange(len(found.names)), min(ROWS, len(found.names)))
    title, words = along_words(along, clock)
    trace = {
        "type": "heatmap",
        "x": numbers(where),
        "y": _row_names(found, rows, len(groups)),
        "z": numbers(np.array([mean_of_known(values[row]) for row in rows])),
        **scale,
        "colorbar": {"title": {"text": found.metric.words}, "tickformat": ticks, "thickness": 14},
        "hoverongaps": False,
        "hovertemplate": f"class %{{y}}<br>{found.metric.words} %{{z:{value}}}<br>{words}<extra></extra>",
    }
    layout = {
        "xaxis": axis(title, tickformat=",~r", showgrid=False) | _ends(where),
        "yaxis": axis("class", type="category", autorange="reversed", showgrid=False),
        "shapes": _strip(found, rows, groups),
    }
    seeds = len(found.seeds)
    return View(
        [trace], layout, f"Mean over {seeds} seeds, up to the end of the shortest run." if seeds > 1 else "One seed."
    )


def _ends(where: Floats) -> Json:
    """The axis ends at the first and last evaluation: cells centred on them would start before time 0."""
    return {"range": [float(where[0]), float(where[-1])]} if len(where) > 1 else {}


def _row_names(found: ClassCurves, rows: Sequence[Integers], groups: int) -> list[str]:
    names = []
    words = dict(zip(found.names, plain_names([found.word(name) for name in found.names], _LONGEST), strict=True))
    for row in rows:
        ends = dict.fromkeys(found.names[place] for place in (row[0], row[-1]))
        holders = _holders(found, row)
        held = f" · {plain_names(holders, 14)[0] if len(holders) == 1 else f'{len(holders)} groups'}"
        names.append("–".join(words[end] for end in ends) + (held if 0 < len(holders) < groups else ""))
    return names


def _holders(found: ClassCurves, row: Integers) -> list[str]:
    """The groups that hold any class of a row."""
    return list(dict.fromkeys(name for place in row for name in found.holders.get(found.names[place], ())))


def _strip(found: ClassCurves, rows: Sequence[Integers], groups: Sequence[str]) -> list[Json]:
    """At the right edge, rows that only one group holds have its colour."""
    shapes: list[Json] = []
    for place, row in enumerate(rows):
        holders = _holders(found, row)
        if len(holders) == 1 < len(groups):
            colour = group_colour(groups.index(holders[0]))
            if shapes and (shapes[-1]["fillcolor"], shapes[-1]["y1"]) == (colour, place - 0.5):
                shapes[-1]["y1"] = place + 0.5
                continue
            edge = {"type": "rect", "xref": "paper", "x0": 1.002, "x1": 1.014, "line": {"width": 0}}
            shapes.append({**edge, "y0": place - 0.5, "y1": place + 0.5, "fillcolor": colour})
    return shapes


def _table(shown: Sequence[tuple[Named, ClassCurves]], groups: Sequence[str]) -> Table:
    """One row per class, one column per strategy."""
    names = sorted({name for _, found in shown for name in found.names}, key=lambda name: (len(name), name))
    first = {name: found for _, found in reversed(shown) for name in found.names}
    holders = [first[name].holders.get(name, ()) for name in names]
    places = [{name: place for place, name in enumerate(found.names)} for _, found in shown]
    cells = [
        [_last(found, place[name]) if name in place else "" for (_, found), place in zip(shown, places, strict=True)]
        for name in names
    ]
    metric = shown[0][1].metric
    unit = ", in per cent" if metric.rate else ""
    return Table(
        caption=f"{metric.heading} of every class at the end of the curve{unit}: mean ± standard deviation over seeds.",
        head=["class", "held by", *(named.label for named, _ in shown)],
        rows=[
            [first[name].word(name), ", ".join(held), *row]
            for name, held, row in zip(names, holders, cells, strict=True)
        ],
        marks=[group_colour(groups.index(held[0])) if len(held) == 1 < len(groups) else "" for held in holders],
    )


def _last(found: ClassCurves, place: int) -> str:
    spread = found.last(place)
    return found.metric.written(spread.mean, spread.deviation)
