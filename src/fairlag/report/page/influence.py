"""Who the model listens to: every client's share of all weight beside its fair share, and how even these are."""

from collections.abc import Sequence

import numpy as np

from fairlag.analyse import fairness
from fairlag.analyse.evidence import Influence
from fairlag.report.colours import LINES
from fairlag.report.labels import number, shortened, with_deviation
from fairlag.report.page.charts import (
    MOST_GROUPS,
    Panels,
    axis,
    empty,
    extent,
    left_out,
    named_once,
    place_of_axis,
    plain_names,
    present,
    shade,
    strategy_key,
    strategy_switch,
)
from fairlag.report.page.lorenz import jain_in_words, lorenz_chart
from fairlag.report.page.spec import Chart, Json, Named, Section, Table, View, numbers
from fairlag.text.numerals import NONE

MANY = 60
"""The most clients with one bar each. More bars would be too thin: the clients of a group are sorted into a line."""

_TOGETHER = 3
"""The most strategies that are shown below one another; more are shown one at a time."""

_PATTERNS = ("", "/", ".", "x", "-", "\\", "+", "|")
_TICKS = 15
_MANY_LINES = 100
"""If there are more lines, each has fewer points."""

_SECTION = Section(
    "influence",
    "Who the model listens to",
    "A client's influence is its share of the weight of all updates, where an update counts in every version that it "
    "is part of. The fair share is the same for all clients.",
)
_COMING = (
    "A client's influence is its share of the weight of all updates, where an update counts in every version that it "
    "is part of. Each version is shared among the clients that are present when it is made, equally or by the "
    "strategy's `importance`. A client is entitled to the sum of its shares."
)

_PER_TIME = (
    " Jain÷: the Jain index of influence ÷ entitlement. Per time: a group's influence per unit of time present; 1 is "
    "the mean of all clients."
)

Shown = Sequence[tuple[Named, Influence]]


def influence_section(shown: Sequence[tuple[Named, Influence | None]]) -> Section:
    """Influence of every client, and Lorenz curves. None means that no update has been aggregated."""
    known, remarks = present(shown, "no update has been aggregated yet")
    if not known:
        return empty(_SECTION, "No update has been aggregated yet, so no client has had any influence.")
    remarks += left_out(max(len(found.groups) for _, found in known))
    curved = [named.label for named, found in known if found.lorenz() is None]
    if curved:
        names = " and ".join(curved)
        remarks.append(f"{names}: no Lorenz curve, because the weight of some clients is negative.")
    charts = [_clients(known), *([lorenz_chart(known)] if len(curved) < len(known) else [])]
    lead = _COMING if _comes_and_goes(known) else _SECTION.lead
    return Section(_SECTION.name, _SECTION.title, lead, charts, remarks=remarks)


def _comes_and_goes(shown: Shown) -> bool:
    return any(found.entitlements is not None for _, found in shown)


def _due(found: Influence) -> str:
    """The name of the dashed line."""
    return "fair share" if found.entitlements is None else "entitled to"


def _clients(shown: Shown) -> Chart:
    many = max(len(found.clients) for _, found in shown) > MANY
    together = len(shown) <= _TOGETHER and len({(found.groups, tuple(found.group_of)) for _, found in shown}) == 1
    panels = Panels.of(len(shown), 170) if together else Panels.of(1, 290)
    views = (
        {"": _view(shown, shown, panels, many=many)}
        if together
        else {strategy_key(place): _view([each], shown, panels, many=many) for place, each in enumerate(shown)}
    )
    than = "what it is entitled to" if _comes_and_goes(shown) else "its fair share"
    reading = (
        "The clients of each group are sorted, the one with the least influence at the left. Above the dashed line, a "
        f"client has more than {than}; below it, less."
        if many
        else "One bar per client, in the colour of its group. Above the dashed line, a client has more than "
        f"{than}; below it, less."
    )
    return Chart(
        name="influence",
        title="Influence of every client",
        reading=reading,
        views=views,
        switches=[] if together else [strategy_switch([named for named, _ in shown])],
        height=panels.height,
        table=_table(shown),
    )


def _view(drawn: Shown, all_shown: Shown, panels: Panels, *, many: bool) -> View:
    """The strategies `drawn`, on axes that fit all strategies."""
    traces: list[Json] = []
    layout: Json = {"annotations": [], "barmode": "overlay"}
    names = [named.label for named, _ in drawn]
    low, high = _heights(all_shown, many=many)
    lines = len(all_shown) * max(len(found.groups) for _, found in all_shown)
    for place, (named, found) in enumerate(drawn):
        number_of_axis = place_of_axis(place)
        make = _curves(named, found, 101 if lines <= _MANY_LINES else 51) if many else _bars(named, found)
        traces += [{**each, "yaxis": f"y{number_of_axis}"} for each in make]
        layout[f"yaxis{number_of_axis}"] = axis(
            f"times {_due(found)}".replace("entitled to", "entitlement") if many else "influence",
            domain=panels.domains[place],
            range=[low, high],
            nticks=6,
            tickformat=",~r" if many else ".0%",
        )
        layout["annotations"].append(panels.title(place, names, _indices(found)))
    layout["xaxis"] = _across(drawn[0][1], many=many) | {"anchor": f"y{place_of_axis(len(drawn) - 1)}"}
    return View(named_once(traces), layout, " ".join([*_verdicts(drawn), *_cut(all_shown, high, many=many)]))


def _bars(named: Named, found: Influence) -> list[Json]:
    mean, deviation = found.mean, found.deviation
    traces: list[Json] = []
    names = plain_names(found.groups)
    for group in _groups(found):
        mine = np.flatnonzero(found.group_of == group)
        traces.append(
            {
                "type": "bar",
                "name": names[group],
                "legendgroup": f"group {group}",
                "x": numbers(mine),
                "y": numbers(mean[mine]),
                "marker": {
                    "color": named.group_colour(group),
                    "pattern": {
                        "shape": _PATTERNS[named.place_of(group) % len(_PATTERNS)],
                        "fillmode": "overlay",
                        "fgcolor": "@panel",
                        "size": 7,
                        "solidity": 0.2,
                    },
                },
                "hovertext": [_about(found, place, names[group]) for place in mine.tolist()],
                "hovertemplate": "%{hovertext}<extra></extra>",
            }
        )
        if deviation is not None:
            error = {"type": "data", "array": numbers(deviation[mine]), "color": "@ink", "thickness": 1, "width": 2}
            traces[-1]["error_y"] = error
    if found.entitlements is not None:
        return [*traces, _entitled_line(found)]
    return [*traces, _fair_line(-0.5, len(found.clients) - 0.5, found.fair, f"{found.fair:.2%} of all weight")]


def _entitled_line(found: Influence) -> Json:
    """A line with one step per client."""
    places = np.arange(len(found.clients))
    return {
        **_fair_line(0, 0, 0, ""),
        "name": _due(found),
        "x": numbers(np.concatenate([[-0.5], places, [places[-1] + 0.5]])),
        "y": numbers(found.entitled[np.concatenate([[0], places, [-1]])]),
        "line": {"color": "@ink", "dash": "dash", "width": 1.5, "shape": "hvh"},
        "hovertemplate": "entitled to %{y:.2%} of all weight<extra></extra>",
    }


def _about(found: Influence, place: int, group: str) -> str:
    mean, deviation = found.mean[place], found.deviation
    spread = "" if deviation is None else f" ± {100 * deviation[place]:.2f} over {len(found.shares)} seeds"
    due = float(found.entitled[place])
    times = f"{mean / due:.2f} times its fair share of {due:.2%}" if due else "entitled to nothing"
    if found.entitlements is not None:
        times = times.replace("its fair share of", "what it is entitled to,")
    return f"client {found.clients[place]} of {group}<br>influence {mean:.2%}{spread} of all weight<br>{times}"


def _curves(named: Named, found: Influence, points: int) -> list[Json]:
    traces: list[Json] = []
    names = plain_names(found.groups)
    for group in _groups(found):
        where, times = found.quantiles(group, points)
        mean, key, colour = times.mean(axis=0), f"group {group}", named.group_colour(group)
        if len(times) > 1:
            spread = times.std(axis=0, ddof=1)
            traces += shade(where, mean - spread, mean + spread, colour, key)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": names[group],
                "legendgroup": key,
                "x": numbers(where),
                "y": numbers(mean),
                "line": {"color": colour, "dash": LINES[named.place_of(group) % len(LINES)], "width": 2.5},
                "hovertemplate": "%{x:.0%} of the clients of %{fullData.name}<br>have at most %{y:.2f} times "
                + (
                    f"their fair share, {found.fair:.2g} of all weight<extra></extra>"
                    if found.entitlements is None
                    else "what they are entitled to<extra></extra>"
                ),
            }
        )
    if found.entitlements is not None:
        words = "what each client is entitled to<extra></extra>"
        return [*traces, {**_fair_line(0, 1, 1.0, ""), "name": _due(found), "hovertemplate": words}]
    return [*traces, _fair_line(0, 1, 1.0, f"{found.fair:.2g} of all weight")]


def _fair_line(begin: float, end: float, height: float, words: str) -> Json:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "fair share",
        "legendgroup": "fair",
        "x": [begin, end],
        "y": [height, height],
        "line": {"color": "@ink", "dash": "dash", "width": 1.5},
        "hovertemplate": f"fair share: {words}, the same for every client<extra></extra>",
    }


def _across(found: Influence, *, many: bool) -> Json:
    if many:
        return axis("clients of a group, least influence first", range=[0, 1], tickformat=".0%")
    places = np.arange(0, len(found.clients), -(-len(found.clients) // _TICKS))
    names = [str(client) for client in found.clients[places]]
    ends = [-0.6, len(found.clients) - 0.4]
    return axis(
        "client, by group", range=ends, tickvals=places.tolist(), ticktext=names, showgrid=False, zeroline=False
    )


def _heights(shown: Shown, *, many: bool) -> tuple[float, float]:
    """The same range for all strategies. With many clients, the few with by far the most influence are cut off."""
    if many:
        low, high = extent(
            [found.quantiles(group, 21)[1].mean(axis=0) for _, found in shown for group in _groups(found)]
        )
        return low, 1.1 * min(high, 1.2 * max(found.heard_by(0.95) for _, found in shown))
    spreads = [0.0 if found.deviation is None else found.deviation for _, found in shown]
    low, high = extent([found.mean + spread for (_, found), spread in zip(shown, spreads, strict=True)])
    return low, 1.08 * max(high, *(float(found.entitled.max()) for _, found in shown))


def _cut(shown: Shown, high: float, *, many: bool) -> list[str]:
    highest = max(found.heard_by(1.0) for _, found in shown) if many else 0.0
    due = "their entitlement" if _comes_and_goes(shown) else "the fair share"
    words = f"The highest values, up to {highest:,.1f} times {due}, are cut off: zoom out to see them."
    return [words] if highest > high else []


def _verdicts(shown: Shown) -> list[str]:
    """How even the influence is under each strategy, in words."""
    clients = len(shown[0][1].clients)
    names = shortened([named.label for named, _ in shown], 40)
    indices = "; ".join(f"{jain_in_words(found)} under {name}" for name, (_, found) in zip(names, shown, strict=True))
    words = [f"Jain index: {indices}. It is 1 if all clients have equal influence, and 1/{clients:,} if one has all."]
    if _comes_and_goes(shown):
        evenness = [with_deviation(found.jain_entitled, "{:.3f}") for _, found in shown]
        indices = "; ".join(f"{index} under {name}" for index, name in zip(evenness, names, strict=True))
        words.append(
            f"Jain÷ (of influence ÷ entitlement): {indices}. It is 1 if each client has what it is entitled to."
        )
        times = "; ".join(f"{_per_time(found)} under {name}" for name, (_, found) in zip(names, shown, strict=True))
        words.append(f"Influence per unit of time present (1 is the mean of all clients): {times}.")
    for name, (_, found) in zip(names, shown, strict=True):
        heard = int(np.count_nonzero((found.shares != 0).any(axis=0)))
        if heard < clients:
            words.append(f"Under {name}, only {heard:,} of {clients:,} clients have had any influence.")
    return words


def _per_time(found: Influence) -> str:
    """Influence per unit of time present, of each group."""
    groups = zip(found.groups[:MOST_GROUPS], found.per_presence, strict=False)
    return ", ".join(f"{name} {number(times, '{:.2f}')}" for name, times in groups)


def _indices(found: Influence) -> str:
    """The indices beside the title of a panel."""
    if found.entitlements is None:
        return f"Jain {jain_in_words(found)}"
    return ", ".join(
        f"{name} {number(index, '{:.3f}')}" for name, index in (("Jain", found.jain), ("Jain÷", found.jain_entitled))
    )


def _groups(found: Influence) -> list[int]:
    return [int(group) for group in np.unique(found.group_of)][:MOST_GROUPS]


def _table(shown: Shown) -> Table:
    groups = list(dict.fromkeys(name for _, found in shown for name in found.groups[:MOST_GROUPS]))
    measures = (fairness.gini, fairness.welfare, fairness.largest_deviation)
    rows, coming = [], _comes_and_goes(shown)
    for named, found in shown:
        evenness = [with_deviation(found.over_seeds(measure), "{:.3f}") for measure in measures]
        parts = [_group_cell(found, name) for name in groups]
        indices = [jain_in_words(found), *([with_deviation(found.jain_entitled, "{:.3f}")] if coming else [])]
        rows.append([named.label, f"{len(found.clients):,}", *indices, *evenness, *parts])
    return Table(
        caption=(
            "How even influence is, mean ± standard deviation over seeds. Jain index: 1 is even. Gini coefficient: 0 "
            "is even. Welfare: the sum of all clients' distances from an equal share; beside it the largest of them."
            + (_PER_TIME if coming else "")
        ),
        head=[
            "strategy",
            "clients",
            "Jain",
            *(["Jain÷"] if coming else []),
            "Gini",
            "welfare",
            "largest distance",
            *(f"group {name}" for name in groups),
        ],
        rows=rows,
        marks=[named.colour for named, _ in shown],
    )


def _group_cell(found: Influence, name: str) -> str:
    if name not in found.groups:
        return NONE
    place = found.groups.index(name)
    part, due = found.of_group(place)
    if found.entitlements is None:
        return f"{number(part, '{:.3f}')}, fair {due:.3f}"
    return f"{number(part, '{:.3f}')}, entitled {due:.3f}, per time {number(found.per_presence[place], '{:.2f}')}"
