"""Clients' own test data: how the scores of clients are distributed, the worst tenth, and the gap between groups."""

from collections.abc import Callable, Sequence

import numpy as np

from fairlag.analyse.own_data import OwnData
from fairlag.analyse.spread import Spread
from fairlag.analyse.totals import OwnScores
from fairlag.report.page.charts import MOST_GROUPS, axis, left_out, plain_names, present, strategy_key
from fairlag.report.page.spec import Chart, Json, Named, Section, Switch, Table, View, group_colour, numbers
from fairlag.text.numerals import NONE

_SHARES = np.linspace(0, 1, 101)
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "pentagon")

Shown = Sequence[tuple[Named, OwnData]]


def own_data_section(shown: Sequence[tuple[Named, OwnData | None]], groups: Sequence[str]) -> Section:
    """The scores of the last version on each client's own test data; some strategies must have them."""
    known, remarks = present(shown, "no run has finished yet: clients are tested at the end")
    lead, steps = known[0][1].lead.words, max(found.steps for _, found in known)
    copies = f" Then each client makes {_steps(steps)} of its own, and its copy is tested in the same way." * bool(
        steps
    )
    charts = [_distribution(known, groups, steps)]
    if len(groups) > 1:
        charts.append(_groups(known, groups, steps))
    return Section(
        "own-data",
        "Clients' own data",
        f"How good the final model is for each client: its {lead} on examples of that client which were held back from "
        f"training.{copies}",
        charts,
        remarks=[*remarks, *_counts(known[0][1]), *left_out(len(groups))],
    )


def _counts(found: OwnData) -> list[str]:
    few, said = found.clients - found.able, []
    if few:
        said.append(f"{few:,} of {found.clients:,} clients have too few examples for a test of their own.")
    if found.tested < found.able:
        said.append(
            f"Tested are {found.tested:,} of {found.able:,} clients: a sample with the same shares of groups, drawn by "
            "the seed."
        )
    return said


def _steps(count: int) -> str:
    return f"{count:,} local step{'s' if count > 1 else ''}"


def _models(steps: int) -> dict[str, str]:
    return {"model": "the final model"} | ({"own": f"after {_steps(steps)}"} if steps else {})


def _distribution(shown: Shown, groups: Sequence[str], steps: int) -> Chart:
    on: dict[str, str | None] = {"all": None}
    if len(groups) > 1:
        on |= {f"g{place}": name for place, name in enumerate(groups[:MOST_GROUPS])}
    models = _models(steps)
    return Chart(
        name="own-data",
        title="Clients from worst to best",
        reading=(
            "One line per strategy. Its clients are sorted, the one with the worst score at the left. The dotted line "
            "marks the worst tenth: a tenth of the clients have the value there or a worse one."
        ),
        views={
            "|".join([key, *([model] if steps else [])]): _lines(shown, group, personalised=model == "own")
            for key, group in on.items()
            for model in models
        },
        switches=[
            Switch("Clients", {key: "all" if name is None else name for key, name in on.items()}),
            *([Switch("Model", models)] if steps else []),
        ],
        highlights={strategy_key(named.place): named.label for named, _ in shown},
        height=400,
        table=_table(shown, list(on.values()), steps),
    )


def _lines(shown: Shown, group: str | None, *, personalised: bool) -> View:
    lead = shown[0][1].lead
    value = "%{y:.1%}" if lead.rate else "%{y:.4g}"
    names = plain_names([named.label for named, _ in shown])
    traces: list[Json] = []
    for name, (named, found) in zip(names, shown, strict=True):
        values = found.quantiles(group, _SHARES, personalised=personalised)
        if values is None:
            continue
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "legendgroup": strategy_key(named.place),
                "x": numbers(_SHARES),
                "y": numbers(values),
                "line": {"color": named.colour, "dash": named.dash, "width": 2},
                "hovertemplate": f"%{{fullData.name}}<br>%{{x:.0%}} of the clients: {value} or worse<extra></extra>",
            }
        )
    mark = {"type": "line", "x0": 0.1, "x1": 0.1, "y0": 0, "y1": 1, "yref": "paper"}
    layout: Json = {
        "xaxis": axis("clients, worst first", range=[0, 1], tickformat=".0%"),
        "yaxis": _score_axis(shown),
        "shapes": [{**mark, "line": {"color": "@faint", "dash": "dot", "width": 1.5}}],
    }
    return View(traces, layout, _over_seeds(shown))


def _score_axis(shown: Shown) -> Json:
    lead = shown[0][1].lead
    if not lead.rate:
        return axis(lead.words, tickformat="~g")
    return axis(lead.words, tickformat=".0%", range=[-0.02, 1.02])


def _over_seeds(shown: Shown) -> str:
    seeds = sorted({len(found.seeds) for _, found in shown})
    return "" if seeds == [1] else f"Means over {' or '.join(map(str, seeds))} seeds."


def _groups(shown: Shown, groups: Sequence[str], steps: int) -> Chart:
    models = _models(steps)
    return Chart(
        name="own-data-groups",
        title="The gap between groups",
        reading=(
            "One row per strategy, one mark per client group: the mean over its clients. The longer the line between "
            "them, the more unequal the groups."
        ),
        views={
            (model if steps else ""): _marks(shown, groups[:MOST_GROUPS], personalised=model == "own")
            for model in models
        },
        switches=[Switch("Model", models)] if steps else [],
        height=150 + 40 * len(shown),
        table=_gaps(shown, groups, steps),
    )


def _marks(shown: Shown, groups: Sequence[str], *, personalised: bool) -> View:
    means = [
        [_spread(found, name, lambda own: own.mean, personalised=personalised).mean for name in groups]
        for _, found in shown
    ]
    traces: list[Json] = []
    for row, each in enumerate(means):
        if known := [mean for mean in each if mean is not None]:
            line = {"color": "@faint", "width": 2}
            ends = {"x": numbers([min(known), max(known)], 6), "y": [row, row]}
            traces.append(
                {"type": "scatter", "mode": "lines", "line": line, **ends, "showlegend": False, "hoverinfo": "skip"}
            )
    value = "%{x:.1%}" if shown[0][1].lead.rate else "%{x:.4g}"
    labels, names = plain_names([named.label for named, _ in shown]), plain_names(groups)
    for place, name in enumerate(names):
        there = [(mean, row) for row, each in enumerate(means) if (mean := each[place]) is not None]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": numbers([mean for mean, _ in there], 6),
                "y": [row for _, row in there],
                "hovertext": [labels[row] for _, row in there],
                "marker": {"color": group_colour(place), "symbol": _SYMBOLS[place % len(_SYMBOLS)], "size": 12},
                "hovertemplate": f"%{{hovertext}}<br>{name}: {value}<extra></extra>",
            }
        )
    rows: Json = {
        "tickvals": list(range(len(shown))),
        "ticktext": plain_names([named.label for named, _ in shown], 28),
        "range": [len(shown) - 0.5, -0.5],
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
    }
    return View(traces, {"xaxis": _score_axis(shown), "yaxis": rows}, _over_seeds(shown))


def _spread(found: OwnData, group: str | None, number: Callable[[OwnScores], float], *, personalised: bool) -> Spread:
    """A number over seeds, of the clients of a group or of all."""
    return Spread.of(number(each) for each in found.of(group, personalised=personalised))


def _written(found: OwnData, spread: Spread) -> str:
    return found.lead.written(spread.mean, spread.deviation)


def _table(shown: Shown, groups: Sequence[str | None], steps: int) -> Table:
    shown_numbers: tuple[Callable[[OwnScores], float], ...] = (lambda own: own.mean, lambda own: own.worst_tenth)
    rows, marks = [], []
    for named, found in shown:
        for group in groups:
            cells = [
                _written(found, _spread(found, group, number, personalised=personalised))
                for personalised in (False, True)[: 1 + bool(steps)]
                for number in shown_numbers
            ]
            tested = max((len(each.values) for each in found.of(group, personalised=False)), default=0)
            rows.append([f"{named.label}, {group or 'all'}", f"{tested:,}", *cells])
            marks.append(named.colour)
    lead = shown[0][1].lead
    heads = ["mean", "worst tenth"]
    heads += [f"{head} after {_steps(steps)}" for head in heads] if steps else []
    return Table(
        caption=(
            f"{lead.words[:1].upper()}{lead.words[1:]}{' in per cent' if lead.rate else ''} on clients' own test data: "
            "each client counts the same. Worst tenth: a tenth of the clients have this value or a worse one."
        ),
        head=["strategy, clients", "tested", *heads],
        rows=rows,
        marks=marks,
    )


def _gaps(shown: Shown, groups: Sequence[str], steps: int) -> Table:
    rows = []
    for named, found in shown:
        cells = []
        for personalised in (False, True)[: 1 + bool(steps)]:
            gap = _spread(found, None, lambda own: own.group_gap, personalised=personalised)
            means = {
                name: mean
                for name in groups
                if (mean := _spread(found, name, lambda own: own.mean, personalised=personalised).mean) is not None
            }
            worst = (min if found.lead.higher else max)(means, key=means.__getitem__, default=NONE)
            cells += [_written(found, gap), worst]
        rows.append([named.label, *cells])
    heads = ["group gap", "worst group"]
    heads += [f"{head} after {_steps(steps)}" for head in heads] if steps else []
    return Table(
        "The difference between the means of the best and the worst client group: the mean over seeds",
        ["strategy", *heads],
        rows,
        [named.colour for named, _ in shown],
    )
