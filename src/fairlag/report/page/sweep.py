"""A sweep on the page: every trial, how much settings matter to each strategy, and what failed or was stopped."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from fairlag.analyse.significance import CONFIDENCE, FEWEST, factor
from fairlag.analyse.sweep import Sensitivity, Swept
from fairlag.core import seeds
from fairlag.lab.sweep.result import FINISHED, Tried, Tuned
from fairlag.report.labels import sentences
from fairlag.report.page.charts import axis, plain, plain_names
from fairlag.report.page.spec import Chart, Json, Named, Section, Switch, Table, View, numbers
from fairlag.report.sweep import in_words, sweep_plain
from fairlag.text.calls import write

_LEAD = (
    "Every strategy was tuned with trials of different settings, which were judged on validation examples. The best "
    "setting of each was then trained on all training examples with fresh seeds, and tested; the rest of this page is "
    "about these tests."
)
_READING = (
    "One dot per trial. For each strategy, the box is the middle half of its trials, the line in it their median, and "
    "the diamond its best setting on test examples ({interval}). The narrower the box, the less settings matter. The "
    "other choices show the trials along one setting, with a line through the best trial of each value."
)
_ROW = 46
"""The height of a strategy in pixels."""
_LABEL, _TRIAL = 26, 60
"""The longest label beside a row, and the longest setting in a tooltip."""
_WIDE, _TICKS = 5, 6
"""From this ratio of the largest to the smallest value, an axis is logarithmic; the most values that are its ticks."""
_REASONS = 8
"""The most trials whose failure is described."""


class _Shown(NamedTuple):
    """A strategy of the sweep."""

    row: Sensitivity
    tuned: Tuned
    colour: str
    name: str

    @property
    def dots(self) -> list[tuple[Tried, float]]:
        """Its trials that have a value."""
        return [(each, value) for each in self.tuned.tried if (value := each.result.value) is not None]


def sweep_section(swept: Swept, named: Mapping[str, Named], number: int = 0) -> Section:
    """One sweep; `named` are the strategies of the page by their labels in the sweep, `number` tells sweeps apart."""
    places = {row.label: named[row.label].colour if row.label in named else "@faint" for row in swept.rows}
    tuned = {each.label: each for each in swept.tuned}
    rows = swept.best_first
    names = plain_names([row.label for row in rows])
    shown = [_Shown(row, tuned[row.label], places[row.label], name) for row, name in zip(rows, names, strict=True)]
    plain_table = sweep_plain(swept)
    table = Table(plain_table.title, plain_table.head, plain_table.rows, [places[row.label] for row in rows])
    drawn = [each for each in shown if each.row.values]
    charts = [_chart(swept, drawn, f"sweep{number or ''}")] if drawn else []
    return Section(
        name=f"sweep{number or ''}",
        title="Sweep",
        lead=_LEAD,
        charts=charts,
        tables=[table, *_failures(shown)],
        remarks=[sentences([line.rstrip(".")]) for line in plain_table.notes],
    )


def _chart(swept: Swept, shown: Sequence[_Shown], name: str) -> Chart:
    keys = list(dict.fromkeys(key for each in shown for key in each.row.setting))
    options = {"all": "strategies"} | {f"k{place}": key for place, key in enumerate(keys)}
    views = {"all": _spread(swept, shown)} | {f"k{place}": _along(swept, shown, key) for place, key in enumerate(keys)}
    many = max(len(each.row.tested) for each in shown)
    interval = (
        f"mean and {100 * CONFIDENCE:g} % interval" if many >= FEWEST else "mean and range" if many > 1 else "a seed"
    )
    return Chart(
        name=name,
        title=f"Trials by {swept.objective.words}",
        reading=_READING.format(interval=interval),
        views=views,
        switches=[Switch("Along", options)],
        height=max(300, 130 + _ROW * len(shown)),
    )


def _scale(swept: Swept) -> tuple[Json, str]:
    """The axis of the objective, and how a tooltip writes a value."""
    rate = swept.objective.scored.rate
    return axis(f"{swept.objective.words}", tickformat=".0%" if rate else "~g"), ".2%" if rate else ".4g"


def _spread(swept: Swept, shown: Sequence[_Shown]) -> View:
    """One row per strategy: dots, the middle half as a box, and the test of the best."""
    scale, form = _scale(swept)
    traces: list[Json] = []
    shapes: list[Json] = []
    for place, each in enumerate(shown):
        traces += [_dots(each, place, form), *_tested(each, place, form)]
        shapes += _box(each.row, place, each.colour)
    layout: Json = {
        "xaxis": scale,
        "yaxis": {
            "tickvals": list(range(len(shown))),
            "ticktext": plain_names([each.row.label for each in shown], _LABEL),
            "range": [len(shown) - 0.5, -0.5],
            "fixedrange": True,
            "showgrid": False,
            "zeroline": False,
        },
        "showlegend": False,
        "shapes": shapes,
    }
    return View(traces, layout)


def _dots(each: _Shown, place: int, form: str) -> Json:
    # Dots are moved up and down a little, always by the same amount, so that equal values stay visible.
    aside = place + 0.5 * (seeds.uniforms(seeds.key(0, "sweep figure"), 0, len(each.dots)) - 0.5)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": each.name,
        "x": numbers([value for _, value in each.dots], 6),
        "y": numbers(aside, 4),
        "text": [plain(_told(tried.setting)) for tried, _ in each.dots],
        "marker": {"color": each.colour, "size": 6, "opacity": 0.75},
        "hovertemplate": f"{each.name}<br>%{{text}}<br>%{{x:{form}}} on validation examples<extra></extra>",
    }


def _tested(each: _Shown, place: int, form: str) -> list[Json]:
    """The best setting on test examples."""
    tested = each.row.tested
    if not tested:
        return []
    margin = stdev(tested) * factor(len(tested)) if len(tested) > 1 else 0.0
    line = {"type": "data", "array": [margin], "color": "@ink", "thickness": 1.5, "width": 5}
    words = f"{len(tested)} fresh seed{'s' * (len(tested) > 1)}"
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{each.name}, tested",
            "x": numbers([fmean(tested)], 6),
            "y": [place],
            "error_x": line,
            "text": [plain(_told(each.row.setting))],
            "marker": {"symbol": "diamond", "size": 11, "color": "@ink", "line": {"color": "@panel", "width": 1}},
            "hovertemplate": f"{each.name}<br>%{{text}}<br>%{{x:{form}}} on test examples, {words}<extra></extra>",
        }
    ]


def _box(row: Sensitivity, place: int, colour: str) -> list[Json]:
    low, middle, high = (row.quantile(part) or 0.0 for part in (0.25, 0.5, 0.75))
    within: Json = {"y0": place - 0.32, "y1": place + 0.32, "layer": "below"}
    return [
        {"type": "rect", "x0": low, "x1": high, "fillcolor": f"{colour}/0.2", "line": {"width": 0}, **within},
        {"type": "line", "x0": middle, "x1": middle, "line": {"color": colour, "width": 2}, **within},
    ]


def _along(swept: Swept, shown: Sequence[_Shown], key: str) -> View:
    """The objective against one setting, with a line through the best trial of each value."""
    scale, form = _scale(swept)
    values = list(dict.fromkeys(tried.setting[key] for each in shown for tried, _ in each.dots if key in tried.setting))
    positive = all(isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values)
    measured = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    across = axis(key) if measured else axis(key, type="category")
    if positive and max(values) >= _WIDE * min(values):
        across |= {"type": "log"}
    if measured and len(values) <= _TICKS:
        across |= {"tickvals": sorted(values), "ticktext": [write(each) for each in sorted(values)]}
    traces: list[Json] = []
    for each in shown:
        dots = [(tried, value) for tried, value in each.dots if key in tried.setting]
        traces += [
            _trials_along(each, dots, key, form, measured=measured),
            *_best_along(swept, each, dots, key, measured),
        ]
    missing = [each.row.label for each in shown if not any(key in tried.setting for tried, _ in each.dots)]
    words = f"{key} was not tried with {', '.join(missing)}." if missing else ""
    return View([each for each in traces if len(each["y"])], {"xaxis": across, "yaxis": scale}, words)


def _trials_along(each: _Shown, dots: Sequence[tuple[Tried, float]], key: str, form: str, *, measured: bool) -> Json:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": each.name,
        "legendgroup": each.name,
        "x": [_at(tried, key, measured) for tried, _ in dots],
        "y": numbers([value for _, value in dots], 6),
        "text": [plain(_told(tried.setting)) for tried, _ in dots],
        "marker": {"color": each.colour, "size": 7, "opacity": 0.75},
        "hovertemplate": f"{each.name}<br>%{{text}}<br>%{{y:{form}}} on validation examples<extra></extra>",
    }


def _best_along(
    swept: Swept, each: _Shown, dots: Sequence[tuple[Tried, float]], key: str, measured: bool
) -> list[Json]:
    """A line through the best trial of each value, if values were tried several times."""
    best: dict[Any, float] = {}
    for tried, value in dots:
        at = _at(tried, key, measured)
        best[at] = value if at not in best else (max if swept.objective.higher else min)(best[at], value)
    if not 1 < len(best) < len(dots):
        return []
    where = sorted(best) if measured else list(best)
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": each.name,
            "legendgroup": each.name,
            "showlegend": False,
            "x": where,
            "y": numbers([best[at] for at in where], 6),
            "line": {"color": each.colour, "width": 1.5},
            "hoverinfo": "skip",
        }
    ]


def _at(tried: Tried, key: str, measured: bool) -> Any:
    value = tried.setting[key]
    return value if measured else plain(write(value))


def _told(setting: Mapping[str, Any]) -> str:
    words = in_words(setting)
    return words if len(words) <= _TRIAL else f"{words[: _TRIAL - 1]}…"


def _failures(shown: Sequence[_Shown]) -> list[Table]:
    """The trials that failed or were stopped, and why."""
    lost = [(each, tried) for each in shown for tried in each.tuned.tried if tried.result.status != FINISHED]
    if not lost:
        return []
    rows = [
        [each.row.label, _told(tried.setting), tried.result.status, tried.result.reason or "other settings were better"]
        for each, tried in lost[:_REASONS]
    ]
    caption = "Trials that failed or were stopped"
    if len(lost) > _REASONS:
        caption += f": the first {_REASONS} of {len(lost):,}"
    return [
        Table(caption, ["strategy", "setting", "status", "why"], rows, [each.colour for each, _ in lost[:_REASONS]])
    ]
