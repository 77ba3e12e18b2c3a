"""Privacy: what each client has paid, how that depends on its speed, and how many clients hide each other."""

from collections.abc import Sequence

import numpy as np

from fairlag.analyse.spending import Private, Spending
from fairlag.report.colours import SYMBOLS
from fairlag.report.page.charts import MOST_GROUPS, axis, by_strategy, left_out, plain_names, shade, strategy_key
from fairlag.report.page.spec import Chart, Json, Named, Section, Table, View, numbers
from fairlag.text.numerals import NONE

_POINTS = 40
"""The most points on a line of effective sizes."""

_NOISE = (
    "Noise on every version hides whether a client took part, up to its ε: the smaller, the better hidden. A client "
    "pays for each version by the square of its weight in it, so who pays most depends on the strategy."
)
_MASKS = "The server sees only weighted sums of updates, never a single one."

Paid = Sequence[tuple[Named, Spending]]


def privacy_sections(shown: Sequence[tuple[Named, Private | None]], clock: str) -> list[Section]:
    """The section, if any run adds noise or masks its updates."""
    known = [(named, found) for named, found in shown if found is not None]
    if not known:
        return []
    paid = [(named, found.paid) for named, found in known if found.paid is not None]
    charts = [_over_versions(paid), _by_speed(paid, clock)] if paid else []
    charts += [_sizes(known)] if any(len(found.sizes.version) for _, found in known) else []
    lead = [_NOISE] * any(found.table.differential for _, found in known)
    lead += [_MASKS] * any(found.table.secure for _, found in known)
    remarks = ["For each strategy, the run with its first seed is shown.", *_remarks(known)]
    remarks += left_out(max((len(found.groups) for _, found in paid), default=0))
    return [Section("privacy", "Privacy", " ".join(lead), charts, remarks=remarks)]


def _remarks(shown: Sequence[tuple[Named, Private]]) -> list[str]:
    unknown = list(dict.fromkeys(found.unknown for _, found in shown if found.unknown))
    if not any(found.table.differential for _, found in shown):
        return []
    return [
        "ε is exact for one client against zeros in place of all its updates. Who takes part, when and how late is "
        "public.",
        *(f"What clients have paid is not shown: {why}." for why in unknown),
    ]


def _over_versions(shown: Paid) -> Chart:
    budget = any(found.budget is not None for _, found in shown)
    line = " Dashed: the budget. A client that might exceed it with its next update gets no more tasks." * budget
    return by_strategy(
        shown,
        _growing,
        name="privacy-paid",
        title="What clients have paid",
        reading=f"One line per client group: the mean ε of its clients. Band: from the smallest to the largest.{line}",
        table=_table(shown),
    )


def _growing(named: Named, found: Spending) -> View:
    names, traces = plain_names(found.groups), []
    for group in _groups(found):
        mine, colour, key = found.of(group), named.group_colour(group), f"g{group}"
        low, mean, high = mine.min(axis=1), mine.mean(axis=1), mine.max(axis=1)
        traces += shade(found.versions.astype(np.float64), low, high, colour, key)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines" if len(mean) > 1 else "markers",
                "name": names[group],
                "legendgroup": key,
                "x": numbers(found.versions),
                "y": numbers(mean),
                "customdata": numbers(np.stack([low, high], axis=1)),
                "line": {"color": colour, "width": 2},
                "marker": {"color": colour},
                "hovertemplate": (
                    f"{names[group]} after %{{x:,.0f}} aggregations<br>mean ε %{{y:.4~g}}"
                    "<br>from %{customdata[0]:.4~g} to %{customdata[1]:.4~g}<extra></extra>"
                ),
            }
        )
    layout = {
        "xaxis": axis("aggregations", tickformat=",.0f", rangemode="tozero"),
        "yaxis": axis(f"ε at δ = {found.delta:g}", tickformat="~g", rangemode="tozero"),
    }
    return View([*traces, *_budget(found, [0, int(found.versions[-1])])], layout, _words(found))


def _budget(found: Spending, where: Sequence[float]) -> list[Json]:
    if found.budget is None:
        return []
    line: Json = {"type": "scatter", "mode": "lines", "x": numbers(where, 6), "y": [found.budget] * 2}
    look = {"line": {"color": "@ink", "dash": "dash", "width": 1.2}, "name": "budget"}
    return [{**line, **look, "hovertemplate": f"budget: ε = {found.budget:g}<extra></extra>"}]


def _words(found: Spending) -> str:
    if found.budget is None:
        return ""
    counts = [
        f"{int(found.stopped[found.group_of == group].sum()):,} of {int((found.group_of == group).sum()):,} clients of "
        f"{found.groups[group]}"
        for group in _groups(found)
    ]
    return f"The budget is spent for {', '.join(counts)}."


def _by_speed(shown: Paid, clock: str) -> Chart:
    hollow = " Hollow: its budget is spent." * any(found.budget is not None for _, found in shown)
    return by_strategy(
        shown,
        lambda named, found: _speeds(named, found, clock),
        name="privacy-speed",
        title="What a client pays for its speed",
        reading=f"One mark per client: how long its tasks take on average, and its ε at the end.{hollow}",
    )


def _speeds(named: Named, found: Spending, clock: str) -> View:
    names, traces = plain_names(found.groups), []
    heard = np.isfinite(found.duration)
    for group in _groups(found):
        mine = heard & (found.group_of == group)
        symbol, colour = SYMBOLS[named.place_of(group) % len(SYMBOLS)], named.group_colour(group)
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": names[group],
                "x": numbers(found.duration[mine]),
                "y": numbers(found.last[mine]),
                "customdata": numbers(found.clients[mine]),
                "marker": {
                    "color": colour,
                    "symbol": [f"{symbol}-open" if spent else symbol for spent in found.stopped[mine]],
                    "size": 8,
                    "opacity": 0.8,
                },
                "hovertemplate": (
                    f"client %{{customdata:,.0f}}, {names[group]}<br>ε %{{y:.4~g}}<br>its tasks take %{{x:,.4~g}}"
                    "<extra></extra>"
                ),
            }
        )
    ends = [0.0, float(found.duration[heard].max(initial=0.0))]
    layout = {
        "xaxis": axis(f"mean duration of a task, in {clock}", tickformat=",~g", rangemode="tozero"),
        "yaxis": axis(f"ε at δ = {found.delta:g}", tickformat="~g", rangemode="tozero"),
    }
    silent = int((~heard).sum())
    many = f"{silent:,} clients have no merged update yet, and have paid nothing."
    words = "" if not silent else many if silent > 1 else "1 client has no merged update yet, and has paid nothing."
    return View([*traces, *_budget(found, ends)], layout, words)


def _sizes(shown: Sequence[tuple[Named, Private]]) -> Chart:
    return Chart(
        name="privacy-sizes",
        title="How many clients hide each other",
        reading=(
            "One line per strategy: the effective size 1/Σα² of its aggregations, where α is a client's share of the "
            "weight. It is the number of clients if all weigh the same, and 1 if one client has all the weight. Band: "
            "from the smallest to the largest."
        ),
        views={"": _sized(shown)},
        highlights={strategy_key(named.place): named.label for named, _ in shown},
        table=Table(
            "The effective size 1/Σα² of aggregations",
            ("strategy", "clients", "mean", "smallest"),
            [_size_row(named, found) for named, found in shown],
            [named.colour for named, _ in shown],
        ),
    )


def _size_row(named: Named, found: Private) -> list[str]:
    sizes = found.sizes.size[np.isfinite(found.sizes.size)]
    if not len(sizes):
        return [named.label, NONE, NONE, NONE]
    return [named.label, f"{found.sizes.clients.mean():.3g}", f"{sizes.mean():.3g}", f"{sizes.min():.3g}"]


def _sized(shown: Sequence[tuple[Named, Private]]) -> View:
    names, traces = plain_names([named.label for named, _ in shown]), []
    for name, (named, found) in zip(names, shown, strict=True):
        known = np.isfinite(found.sizes.size)
        versions, sizes = found.sizes.version[known], found.sizes.size[known]
        if not len(sizes):
            continue
        starts = np.unique(np.linspace(0, len(sizes), min(_POINTS, len(sizes)), endpoint=False).astype(np.int64))
        counts = np.diff([*starts, len(sizes)])
        where, mean = (np.add.reduceat(each, starts) / counts for each in (versions.astype(np.float64), sizes))
        key = strategy_key(named.place)
        low, high = np.minimum.reduceat(sizes, starts), np.maximum.reduceat(sizes, starts)
        traces += shade(where, low, high, named.colour, key)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines" if len(mean) > 1 else "markers",
                "name": name,
                "legendgroup": key,
                "x": numbers(where),
                "y": numbers(mean),
                "line": {"color": named.colour, "dash": named.dash, "width": 2},
                "marker": {"color": named.colour},
                "hovertemplate": (
                    "%{fullData.name}<br>effective size %{y:.3~g} around aggregation %{x:,.0f}<extra></extra>"
                ),
            }
        )
    layout = {
        "xaxis": axis("aggregation", tickformat=",.0f", rangemode="tozero"),
        "yaxis": axis("effective size", tickformat="~g", rangemode="tozero"),
    }
    return View(traces, layout)


def _groups(found: Spending) -> list[int]:
    return [group for group in np.unique(found.group_of).tolist() if group < MOST_GROUPS]


def _table(shown: Paid) -> Table:
    rows, marks = [], []
    for named, found in shown:
        for group in _groups(found):
            mine = found.group_of == group
            paid, spent = found.last[mine], f"{int(found.stopped[mine].sum()):,}" if found.budget is not None else NONE
            numbers = (f"{each:.4g}" for each in (paid.mean(), paid.min(), paid.max()))
            rows.append([f"{named.label}, {found.groups[group]}", f"{mine.sum():,}", *numbers, spent])
            marks.append(named.group_colour(group))
    head = ("strategy, group", "clients", "mean ε", "smallest", "largest", "budget spent")
    return Table("What clients have paid", head, rows, marks)
