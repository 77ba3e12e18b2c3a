"""How far strategies are from the first of their ranking, with intervals and tests over seeds; and their mean ranks."""

from collections.abc import Mapping, Sequence
from math import isnan

from fairlag.analyse.ranking import Ranked, Ranking
from fairlag.analyse.ranks import Ranks
from fairlag.analyse.significance import CONFIDENCE, LEVEL, Test, p_in_words
from fairlag.report.differences import differences, first_of, subject
from fairlag.report.labels import sentences
from fairlag.report.page.charts import axis, plain_names
from fairlag.report.page.spec import Chart, Json, Named, Section, Table, View, numbers
from fairlag.report.ranks import about_ranks

_LEAD = (
    "How far each strategy is from the first, and whether seeds can tell them apart. Seeds are paired: the same seed "
    "gives all strategies the same fleet, the same data and the same batches."
)
_READING = (
    f"One row per strategy: the mean difference from the first over seeds, and its {100 * CONFIDENCE:g} % interval. A "
    f"filled mark is distinguishable from the first, an open one is not (t-test, p < {LEVEL:g} after Holm's "
    "correction for all pairs). So a row can be open although its interval, which is for this pair alone, excludes 0."
)
_ROW, _LABEL = 34, 26
"""The height of a row in pixels, and the longest label beside it."""


def differences_section(rankings: Sequence[Ranking], ranks: Ranks | None, named: Sequence[Named]) -> list[Section]:
    """The differences in each experiment that has enough seeds, then the ranks over all; nothing if there are none."""
    charts, tables, remarks = list[Chart](), list[Table](), list[str]()
    for ranking in rankings:
        table = differences(ranking)
        if table is None:
            continue
        looks = _looks(ranking.experiment, named)
        rows = [list(row) for row in table.rows]
        numbered = Table(table.title, table.head, rows, [_colour(looks, row[0]) for row in rows])
        charts.append(_forest(ranking, looks, numbered, f"differences{len(charts) or ''}"))
        tables.append(numbered)
        remarks += [sentences(list(table.notes))]
    if ranks is not None:
        charts.append(_ranks(ranks, named))
    title = "Differences between strategies"
    return [Section("differences", title, _LEAD, charts, tables, list(dict.fromkeys(remarks)))] if charts else []


def _looks(experiment: str, named: Sequence[Named]) -> Mapping[str, Named]:
    """The strategies of an experiment by their labels in it."""
    suffix = f", {experiment}"
    return {name.label: name for name in named} | {name.label.removesuffix(suffix): name for name in named}


def _colour(looks: Mapping[str, Named], label: str) -> str:
    return looks[label].colour if label in looks else "@ink"


def _forest(ranking: Ranking, looks: Mapping[str, Named], table: Table, name: str) -> Chart:
    """A point with its interval per strategy."""
    rivals, first, unit = ranking.rivals(), first_of(ranking), 100 if "%" in ranking.metric.form else 1
    traces = [
        _interval(row, test, place, unit, _colour(looks, row.comparison.label), table.rows[place])
        for place, (row, test) in enumerate(rivals)
    ]
    what = subject(ranking).replace(" %", "") + (", points" if unit == 100 else "")
    ends = [0.0, *(unit * end for _, test in rivals for end in (test.difference, test.low, test.high))]
    known = [end for end in ends if not isnan(end)]
    room = 0.06 * (max(known) - min(known)) or 1.0
    layout: Json = {
        "xaxis": axis(f"difference in {what}", zeroline=False, range=[min(known) - room, max(known) + room]),
        "yaxis": _rows([row.comparison.label for row, _ in rivals], len(rivals) - 0.45, -0.55),
        "showlegend": False,
        "shapes": [_rule(0, -0.55, len(rivals) - 0.45, dash="dash")],
    }
    return Chart(
        name=name,
        title=f"Differences from {first}, {ranking.experiment}",
        reading=_READING,
        views={"": View(traces, layout)},
        height=130 + _ROW * len(rivals),
    )


def _interval(row: Ranked, test: Test, place: int, unit: int, colour: str, cells: Sequence[str]) -> Json:
    name, (_, difference, interval, p, seeds, _) = plain_names([row.comparison.label])[0], cells
    margin = 0.0 if isnan(test.margin) else unit * test.margin
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": numbers([unit * test.difference], 9),
        "y": [place],
        "error_x": {"type": "data", "array": numbers([margin], 9), "color": colour, "thickness": 2, "width": 5},
        "marker": {
            "color": colour if test.clear else "@panel",
            "size": 11,
            "line": {"color": colour, "width": 2},
        },
        "hovertemplate": f"{name}<br>{difference}, interval {interval}<br>p {p}, {seeds} seeds<extra></extra>",
    }


def _ranks(ranks: Ranks, named: Sequence[Named]) -> Chart:
    """The critical-difference diagram: mean ranks, a scale, and bars at the right that join equals."""
    last, many = len(ranks.labels) - 1, len(ranks.labels)
    colours = {name.label: name.colour for name in named}
    points: list[Json] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": numbers([mean], 6),
            "y": [place],
            "marker": {"color": colours.get(label, "@ink"), "size": 11},
            "hovertemplate": f"{name}<br>mean rank %{{x:.2f}}<extra></extra>",
        }
        for place, (label, name, mean) in enumerate(
            zip(ranks.labels, plain_names(ranks.labels), ranks.means, strict=True)
        )
    ]
    scale: Json = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "critical difference",
        "x": numbers([1, 1 + ranks.critical], 6),
        "y": [-1, -1],
        "marker": {"symbol": "line-ns-open", "size": 9, "color": "@faint"},
        "line": {"color": "@faint", "width": 2},
        "hoverinfo": "skip",
    }
    bars = [
        _rule(many + 0.15 + 0.05 * (many - 1) * number, first - 0.25, end + 0.25, width=4)
        for number, (first, end) in enumerate(ranks.alike, 1)
    ]
    rightmost = max([many + 0.2, 1 + ranks.critical, *(bar["x0"] for bar in bars)]) + 0.1
    layout: Json = {
        "xaxis": axis("mean rank; 1 is the best", range=[0.85, rightmost], tickvals=_ticks(many), zeroline=False),
        "yaxis": _rows(ranks.labels, last + 0.6, -2.0),
        "showlegend": False,
        "shapes": bars,
        "annotations": [
            {
                "text": f"critical difference {ranks.critical:.2f}",
                **{"x": 1, "y": -1, "xanchor": "left", "yanchor": "bottom", "yshift": 4, "showarrow": False},
                "font": {"color": "@faint"},
            }
        ],
    }
    rows = [[label, f"{mean:.2f}"] for label, mean in zip(ranks.labels, ranks.means, strict=True)]
    return Chart(
        name="ranks",
        title="Mean ranks",
        reading=about_ranks(ranks),
        views={"": View([*points, scale], layout)},
        height=190 + _ROW * len(ranks.labels),
        table=Table(
            f"Mean ranks; critical difference {ranks.critical:.2f}, Friedman's test {p_in_words(ranks.p)}",
            ["strategy", "mean rank"],
            rows,
            [colours.get(label, "") for label in ranks.labels],
        ),
    )


def _ticks(many: int) -> list[int]:
    return list(range(1, many + 1, 1 if many <= 12 else 5))


def _rows(labels: Sequence[str], low: float, high: float) -> Json:
    """An axis with one strategy per row, the first above."""
    return {
        "tickvals": list(range(len(labels))),
        "ticktext": plain_names(labels, _LABEL),
        "range": [low, high],
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
    }


def _rule(x: float, low: float, high: float, *, dash: str = "solid", width: int = 1) -> Json:
    """A vertical line."""
    line = {"color": "@ink", "width": width, "dash": dash}
    return {"type": "line", "x0": x, "x1": x, "y0": low, "y1": high, "line": line}
