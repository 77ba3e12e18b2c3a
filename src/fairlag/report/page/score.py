"""The leading metric over time: one line per strategy with an interval over seeds, overall and for each group."""

from collections.abc import Sequence

import numpy as np

from fairlag.analyse.curves import Band, Curves, ScoreCurves
from fairlag.analyse.significance import CONFIDENCE
from fairlag.report.labels import bands_in_words
from fairlag.report.page.charts import (
    ALONG,
    MOST_GROUPS,
    along_switch,
    along_words,
    axis,
    empty,
    left_out,
    plain_names,
    present,
    shade,
    strategy_key,
)
from fairlag.report.page.spec import Chart, Json, Named, Section, Switch, Table, View, numbers
from fairlag.text.numerals import NONE, VIRTUAL
from fairlag.text.scored import ACCURACY, Scored

POINTS = 300
"""The most points per line: more could not be told apart."""

_ALL_POINTS = 24_000
"""The most points of all lines in all views, about a megabyte. If there are more lines, each has fewer points."""

_FEWEST = 40


def score_section(shown: Sequence[tuple[Named, Curves]], groups: Sequence[str], clock: str = VIRTUAL) -> Section:
    """The leading metric of every strategy against time and against aggregations; `clock` names the time."""
    lead = shown[0][1].overall.lead
    evaluated = [(named, found if found.of(None) else None) for named, found in shown]
    known, remarks = present(evaluated, "nothing has been evaluated yet")
    held = [name for name in groups if any(found.of(name) for _, found in known)]
    section = Section(lead.name, lead.heading, _lead(lead, held))
    if not known:
        return empty(section, "No version has been evaluated yet. Evaluation needs data and a model.")
    remarks += left_out(len(held))
    on: dict[str, str | None] = {"all": None}
    on |= {f"g{place}": name for place, name in enumerate(held[:MOST_GROUPS])}
    where = {key: _on(name, held) for key, name in on.items()}
    most = min(POINTS, max(_FEWEST, _ALL_POINTS // (2 * len(on) * len(known))))
    chart = Chart(
        name=lead.name,
        title=f"{lead.heading} over time",
        reading=_reading(lead, banded=lead.rate or any(len(found.overall.curves) > 1 for _, found in known)),
        views={
            f"{along}|{key}": _view(known, along, clock, group, where[key], most)
            for along in ALONG
            for key, group in on.items()
        },
        switches=[along_switch(clock), Switch("On", where)],
        highlights={strategy_key(named.place): named.label for named, _ in known},
        height=420,
        table=_table(known, list(on.values())),
    )
    longest = max(len(curve) for _, found in known for curve in found.overall.curves)
    if longest > most:
        remarks.append(f"Each line shows {most} of up to {longest:,} evaluations, spread evenly over the axis.")
    return Section(section.name, section.title, section.lead, [chart], remarks=remarks)


def _lead(lead: Scored, held: Sequence[str]) -> str:
    """The first sentence of the section."""
    what = "How accurate the model is" if lead == ACCURACY else f"The model's {lead.words}"
    if not held and lead != ACCURACY:
        return f"{what} over time, on the test examples."
    return f"{what} over time: on all labels, and on the labels that each client group holds."


def _reading(lead: Scored, *, banded: bool) -> str:
    band = " The band is the 95 % interval of the mean over seeds; with two seeds, their range." if banded else ""
    alone = " With one seed, it is the standard error of the test sample." if lead.rate else ""
    return f"One line per strategy; {'higher' if lead.higher else 'lower'} is better.{band}{alone}"


def _on(group: str | None, held: Sequence[str]) -> str:
    """The test examples that a view is on."""
    return f"labels of {group}" if group is not None else "all labels" if held else "all test examples"


def _view(
    shown: Sequence[tuple[Named, Curves]], along: str, clock: str, group: str | None, where: str, most: int
) -> View:
    names = plain_names([named.label for named, _ in shown])
    lines = [(name, *each, each[1].of(group)) for name, each in zip(names, shown, strict=True)]
    seen = [(name, named, scored) for name, named, _, scored in lines if scored is not None]
    where = where if group is None else f"labels of {plain_names([group])[0]}"
    title, words = along_words(along, clock)
    traces: list[Json] = []
    for name, named, scored in seen:
        band = scored.interval(along).thinned(most)
        key = strategy_key(named.place)
        shaded = shade(band.where, band.low, band.high, named.colour, key)
        traces += [*shaded, _line(band, name, named, scored, along, f"{where}<br>{words}", key)]
    lead = shown[0][1].overall.lead
    layout = {
        "xaxis": axis(title, tickformat=",~r", rangemode="tozero"),
        "yaxis": axis(f"{lead.words} on {where}", tickformat=".0%" if lead.rate else "~g"),
    }
    return View(
        traces, layout, bands_in_words([len(scored.curves) for _, _, scored in seen], rate=lead.rate, interval=True)
    )


def _line(band: Band, name: str, named: Named, scored: ScoreCurves, along: str, where: str, key: str) -> Json:
    seeds, lead = len(scored.curves), scored.lead
    width = {1: "standard error of the test sample", 2: "half the range of 2 seeds"}.get(
        seeds, f"{100 * CONFIDENCE:g} % interval of the mean over {seeds} seeds"
    )
    spread = [f"±{100 * each:.2f}" if lead.rate else f"±{each:.3g}" for each in band.spread]
    value = "%{y:.2%}" if lead.rate else "%{y:.4g}"
    value, about = (f"{value} %{{text}}", f"<br>±: {width}") if lead.rate or seeds > 1 else (value, "")
    return {
        "type": "scatter",
        "mode": "lines" if len(band.where) > 1 else "markers",
        "name": name,
        "legendgroup": key,
        "x": numbers(band.where.astype(np.int64) if along == "version" else band.where),
        "y": numbers(band.mean),
        "text": spread,
        "line": {"color": named.colour, "dash": named.dash, "width": 2},
        "marker": {"color": named.colour},
        "hovertemplate": (f"%{{fullData.name}}<br>{lead.words} {value} on {where}{about}<extra></extra>"),
    }


def _cells(scored: ScoreCurves) -> list[str]:
    return [scored.lead.written(each.mean, each.deviation) for each in (scored.final, scored.best)]


def _table(shown: Sequence[tuple[Named, Curves]], groups: Sequence[str | None]) -> Table:
    heads = ["" if name is None else f", labels of {name}" for name in groups]
    rows = []
    for named, found in shown:
        scored = [found.of(name) for name in groups]
        cells = [cell for each in scored for cell in (_cells(each) if each else (NONE, NONE))]
        rows.append([named.label, f"{len(found.overall.curves)}", *cells])
    lead = shown[0][1].overall.lead
    return Table(
        caption=(
            f"{lead.heading}{' in per cent' if lead.rate else ''}, mean ± standard deviation over seeds. Final: the "
            "last version of finished runs, on the whole test set. Best: the "
            f"{'highest' if lead.higher else 'lowest'} point of the curve."
        ),
        head=["strategy", "seeds", *(f"{what}{head}" for head in heads for what in ("final", "best"))],
        rows=rows,
        marks=[named.colour for named, _ in shown],
    )
