"""Who would gain by cheating: the influence of a client that throttles itself or times its work, with verdicts."""

from collections.abc import Sequence

import numpy as np

from fairlag.analyse.audit import GroupAudit, StrategyAudit
from fairlag.analyse.incentives import FACTORS
from fairlag.report.colours import SYMBOLS
from fairlag.report.figures.incentives import brief_words, found_words, how_tried, verdict
from fairlag.report.labels import span
from fairlag.report.page.charts import MOST_GROUPS, left_out, plain_names, present, strategy_key, strategy_switch
from fairlag.report.page.spec import Chart, Json, Named, Section, Table, View, group_colour, numbers
from fairlag.text.numerals import NONE, number

_LEAD = (
    "Would a client gain influence by taking longer than necessary? If so, the strategy rewards clients for being "
    "slow, and everyone loses."
)
_READING = (
    "One line per group: the influence of one of its clients that takes up to twenty times as long as necessary. If it "
    "rises above its start by more than the thin bars, throttling pays, most at the star. The six-pointed star is the "
    "best timing that a search found, such as being slow at first; it is shown if it pays."
)
_ALIKE = " The dashed line is a fair share."
_UNLIKE = " Dashed lines, in the colour of a group: what one of its clients is entitled to."
_NONE = "Not simulated. `fairlag report` and `fairlag watch --incentives` simulate it."
_TICKS = (1, 2, 4, 8, 20)
_BEYOND = 32.0
"""Where the best timing is drawn: to the right of all factors."""


def incentives_section(shown: Sequence[tuple[Named, StrategyAudit]], notes: Sequence[str] = ()) -> Section:
    """What one client of each group gains by cheating, one strategy at a time, with notes."""
    tried, remarks = present(
        [(named, audit if audit.throttling.tried else None) for named, audit in shown],
        "throttling was not tried, because it would take too many updates",
    )
    if not tried:
        return Section("incentives", "Incentives", _LEAD, remarks=[*remarks, *notes] or [_NONE])
    highest = max(_height(group) for _, audit in tried for group in audit.groups[:MOST_GROUPS])
    chart = Chart(
        name="incentives",
        title="Does it pay to be slow, or to choose when to work?",
        reading=_READING + (_UNLIKE if any(audit.comes_and_goes for _, audit in tried) else _ALIKE),
        views={strategy_key(place): _view(named, audit, highest) for place, (named, audit) in enumerate(tried)},
        switches=[strategy_switch([named for named, _ in tried])],
        table=_table(shown),
    )
    remarks.append(
        "One client at a time is throttled, simulated without training. Means over "
        f"{how_tried([audit for _, audit in tried])}; the first half is warm-up. ±: the error, which a gain "
        "must exceed to count. (< 4%): a gain of 4 % or more would have been noticed."
    )
    remarks += _on_timings([audit for _, audit in tried])
    remarks += [*notes, *left_out(max(len(audit.groups) for _, audit in tried))]
    return Section("incentives", "Incentives", _LEAD, charts=[chart], remarks=remarks)


def _on_timings(audits: Sequence[StrategyAudit]) -> list[str]:
    """How the search for the best timing worked, and what it left out."""
    tried = [audit.timings for audit in audits if audit.timings.tried]
    remarks = []
    if tried:
        many, seeds = span([each.tried for each in tried]), span([each.replications for each in tried])
        remarks.append(
            f"The best timing is the best of {many} per group: schedules, late starts, leaving and returning. The "
            f"most promising ones were measured again in {seeds} fresh runs. New names, two clients: what a client "
            "gains by returning under a new name, or by acting as two clients. No weighting can prevent that."
        )
    left = dict.fromkeys(
        f"Not tried for {audit.label}: {audit.timings.left_out}." for audit in audits if audit.timings.left_out
    )
    return [*remarks, *left]


def _height(group: GroupAudit) -> float:
    """The highest point of its line, its best timing and its entitlement."""
    return max(float(group.incentive.influence.max()), group.cheat.influence, group.due)


def _view(named: Named, audit: StrategyAudit, highest: float) -> View:
    groups = audit.groups[:MOST_GROUPS]
    names = plain_names([group.name for group in groups])
    traces = [
        trace for place, group in enumerate(groups) for trace in _lines(group, named.place_of(place), names[place])
    ]
    best = [_best(group, named.place_of(place), names[place]) for place, group in enumerate(groups) if _pays(group)]
    if audit.comes_and_goes:
        due = [_due(group, named.place_of(place), names[place]) for place, group in enumerate(groups)]
    else:
        due = [_dashed(1 / sum(group.clients for group in audit.groups), "fair share", "fair share of one client")]
    layout = {
        "xaxis": {
            "title": {"text": "time taken ÷ time needed"},
            "type": "log",
            "range": np.log10([FACTORS[0] * 0.93, (_BEYOND if best else FACTORS[-1]) * 1.2]).tolist(),
            "tickvals": [*_TICKS, _BEYOND],
            "ticktext": [*(f"×{factor}" for factor in _TICKS), "best<br>timing"],
        },
        "yaxis": {"title": {"text": "its share of all weight"}, "tickformat": ".1~%", "range": [0, highest * 1.15]},
    }
    words = "; ".join(f"{group.name}: {verdict(group.incentive, tried=True)}" for group in groups) + "."
    paying = "; ".join(f"{group.name} {found_words(group.cheat)}" for group in groups if _pays(group))
    timed = f" Best timing: {paying}." if paying else ""
    return View([*traces, *best, *due], layout, words + timed)


def _pays(group: GroupAudit) -> bool:
    return not group.cheat.truthful


def _best(group: GroupAudit, place: int, name: str) -> Json:
    """The influence of the best timing, and its error."""
    found, colour = group.cheat, group_colour(place)
    error = found.error * found.influence / (1 + found.gain)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [_BEYOND],
        "y": numbers([found.influence], 6),
        "error_y": {"type": "data", "array": numbers([error], 6), "color": f"{colour}/0.5", "thickness": 1.2},
        "marker": {"symbol": "hexagram", "size": 13, "color": colour, "line": {"color": "@panel", "width": 1.5}},
        "name": f"{name}: best timing",
        "legendgroup": f"g{place}",
        "hovertemplate": f"{name}: {found_words(found)}<br>{found.influence:.3%} of all weight<extra></extra>",
    }


def _lines(group: GroupAudit, place: int, name: str) -> list[Json]:
    found = group.incentive
    start, colour = float(found.influence[0]), group_colour(place)
    gains = found.influence / start - 1 if start else np.zeros(len(found.factors))
    needed = np.where(np.arange(len(found.factors)) > 0, found.error, 0.0)
    line: Json = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": list(found.factors),
        "y": numbers(found.influence, 6),
        "error_y": {"type": "data", "array": numbers(needed * start, 6), "color": f"{colour}/0.5", "thickness": 1.2},
        "text": [_told(*point) for point in zip(found.factors, found.influence, gains, needed, strict=True)],
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour, "symbol": SYMBOLS[place % len(SYMBOLS)], "size": 7},
        "name": name,
        "legendgroup": f"g{place}",
        "hovertemplate": f"one client of {name} %{{text}}<extra></extra>",
    }
    if found.truthful:
        return [line]
    best = found.factors.index(found.best_throttle)
    star = {
        "type": "scatter",
        "mode": "markers",
        "x": [found.best_throttle],
        "y": [float(found.influence[best])],
        "marker": {"symbol": "star", "size": 17, "color": colour, "line": {"color": "@panel", "width": 1.5}},
        "name": f"{name}: pays most",
        "legendgroup": f"g{place}",
        "hovertemplate": f"{name}: {verdict(found, tried=True)}<extra></extra>",
    }
    return [line, star]


def _told(factor: float, share: float, gain: float, needed: float) -> str:
    if factor == 1:
        return f"takes as long as necessary<br>{share:.3%} of all weight"
    return (
        f"takes {factor:g} times as long<br>{share:.3%} of all weight, {gain:+.1%}"
        f"<br>a gain counts if it is above {needed:.1%}"
    )


def _due(group: GroupAudit, place: int, name: str) -> Json:
    line = _dashed(group.due, f"{name}: entitled to", f"one client of {name} is entitled to", group_colour(place))
    return {**line, "legendgroup": f"g{place}", "showlegend": False}


def _dashed(share: float, name: str, words: str, colour: str = "@ink") -> Json:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [FACTORS[0] * 0.93, _BEYOND * 1.2],
        "y": [share] * 2,
        "line": {"color": colour, "dash": "dash", "width": 1.2},
        "name": name,
        "hovertemplate": f"{words}: {share:.3%}<extra></extra>",
    }


def _table(shown: Sequence[tuple[Named, StrategyAudit]]) -> Table:
    rows, marks = [], []
    for named, audit in shown:
        tried = audit.throttling.tried
        for place, group in enumerate(audit.groups[:MOST_GROUPS]):
            found = group.incentive
            best = found.factors.index(found.best_throttle)
            shares = (found.influence[0], found.influence[best])
            rows.append(
                [
                    f"{named.label}, {group.name}",
                    *(f"{share:.3%}" if tried else NONE for share in shares),
                    f"×{found.best_throttle:g}" if tried else NONE,
                    f"{group.due:.3%}",
                    verdict(found, tried=tried),
                    brief_words(group.cheat),
                    *(number(each, "{:+.0%}") for each in (group.identities.rejoin_anew, group.identities.two)),
                ]
            )
            marks.append(named.group_colour(place))
    head = (
        "strategy, group",
        "one client's share",
        "throttled",
        "reached at",
        "entitled to" if any(audit.comes_and_goes for _, audit in shown) else "fair share",
        "throttling",
        "best timing",
    )
    return Table("What one client gains by cheating", (*head, "new names", "two clients"), rows, marks)
