"""How late updates are: their staleness per client group as a histogram, and the means, simulated and predicted."""

from collections.abc import Sequence
from math import ceil, isfinite
from typing import NamedTuple

import numpy as np

from fairlag.analyse.evidence import GroupStaleness
from fairlag.core.types import Floats, Integers
from fairlag.report.page.charts import (
    MOST_GROUPS,
    Panels,
    axis,
    by_strategy,
    empty,
    left_out,
    named_once,
    place_of_axis,
    plain_names,
    present,
)
from fairlag.report.page.spec import Json, Named, Section, Table, View, group_colour, numbers
from fairlag.text.numerals import NONE

LONG = 60
"""If any staleness is larger, the axis is logarithmic and each bar covers a range."""

_MANY_TICKS = 200
"""If the axis is longer, it shows only powers of ten."""

_SECTION = Section(
    "staleness",
    "How late updates are",
    "The staleness of an update is the number of versions that were made while its client worked on it.",
)

Shown = Sequence[tuple[Named, Sequence[GroupStaleness]]]


class _Bins(NamedTuple):
    """The ranges that the bars cover: each from one staleness up to, but without, the next."""

    first: Integers
    """The first staleness of each bar, and the end of the last bar."""

    @classmethod
    def up_to(cls, longest: int) -> "_Bins":
        """One bar per staleness; on a long axis, ranges that grow by a factor, none narrower than the one before."""
        if longest <= LONG:
            return cls(np.arange(longest + 2))
        growth = (longest + 2) ** (1 / LONG) - 1
        first = [0]
        while first[-1] <= longest:
            first.append(first[-1] + max(1, round(growth * (first[-1] + 1))))
        return cls(np.array(first))

    @property
    def long(self) -> bool:
        return bool(self.first[-1] > LONG + 1)

    def place(self, late: float | Floats | Integers) -> Floats:
        """The position of a staleness on the axis."""
        return np.log10(np.asarray(late, np.float64) + 1) if self.long else np.asarray(late, np.float64)

    @property
    def edges(self) -> Floats:
        return self.place(self.first.astype(np.float64) - 0.5)

    def shares(self, counts: Integers) -> Floats:
        """The share of the updates in each bar."""
        whole: Floats = np.zeros(self.first[-1])
        whole[: len(counts)] = counts / max(1, counts.sum())
        return np.asarray(np.add.reduceat(whole, self.first[:-1]))

    @property
    def words(self) -> list[str]:
        spans = zip(self.first[:-1], self.first[1:] - 1, strict=True)
        return [
            f"{low:,} version{'' if low == 1 else 's'}" if low == high else f"{low:,} to {high:,} versions"
            for low, high in spans
        ]

    def axis(self) -> Json:
        if not self.long:
            return axis(
                "staleness, in versions", range=[-0.6, float(self.first[-1]) - 0.4], tickformat=",d", zeroline=False
            )
        digits = (1, 2, 5) if self.first[-1] <= _MANY_TICKS else (1,)
        ticks = [0, *(digit * 10**power for power in range(10) for digit in digits)]
        ticks = [tick for tick in ticks if tick < self.first[-1]]
        ends = [float(self.edges[0]), float(self.edges[-1])]
        names = [f"{tick:,}" for tick in ticks]
        return axis(
            "staleness, in versions",
            range=ends,
            tickvals=self.place(np.array(ticks)).tolist(),
            ticktext=names,
            zeroline=False,
        )


def staleness_section(shown: Sequence[tuple[Named, Sequence[GroupStaleness] | None]]) -> Section:
    """One histogram per strategy and client group. None means that no update has been aggregated."""
    known, remarks = present(shown, "no update has been aggregated yet")
    if not known:
        return empty(_SECTION, "No update has been aggregated yet.")
    remarks += left_out(max(len(groups) for _, groups in known))
    cut: Shown = [(named, groups[:MOST_GROUPS]) for named, groups in known]
    panels = max(len(groups) for _, groups in cut)
    tall = 220 if panels == 1 else 130 if panels <= 3 else 80
    bins = _Bins.up_to(_longest(cut))
    if bins.long:
        remarks.append("The axis of staleness is logarithmic. Each bar covers a range, which its tooltip shows.")
    chart = by_strategy(
        cut,
        lambda named, groups: _view(named, groups, bins, tall),
        name="staleness",
        title="Staleness of updates",
        reading=(
            "One panel per client group. Bar height: share of its updates with that staleness. Solid line: their mean. "
            "Dashed line: the mean that theory predicts for clients that never wait."
        ),
        height=Panels.of(panels, tall).height,
        table=_table(cut),
    )
    return Section(_SECTION.name, _SECTION.title, _SECTION.lead, [chart], remarks=remarks)


def _longest(shown: Shown) -> int:
    groups = [group for _, found in shown for group in found]
    return max(0, *(max(len(group.counts) - 1, ceil(_or_zero(group.predicted))) for group in groups))


def _or_zero(mean: float) -> float:
    return mean if isfinite(mean) else 0.0


def _view(named: Named, groups: Sequence[GroupStaleness], bins: _Bins, tall: int) -> View:
    panels = Panels.of(len(groups), tall)
    names = plain_names([group.name for group in groups], 40)
    traces: list[Json] = []
    layout: Json = {"annotations": [], "bargap": 0}
    for place, (name, group) in enumerate(zip(names, groups, strict=True)):
        shares = bins.shares(group.counts)
        top = float(shares.max()) or 1.0
        axis_of = {"yaxis": f"y{place_of_axis(place)}"}
        drawn = [*_bars(name, named.place_of(place), shares, bins), *_means(name, group, top, bins)]
        traces += [each | axis_of for each in drawn]
        layout[f"yaxis{place_of_axis(place)}"] = axis(
            "updates", domain=panels.domains[place], range=[0, 1.15 * top], nticks=4, tickformat=".0~%"
        )
        layout["annotations"].append(panels.title(place, [each.name for each in groups], _means_in_words(group)))
    layout["xaxis"] = bins.axis() | {"anchor": f"y{place_of_axis(len(groups) - 1)}"}
    return View(named_once(traces), layout)


def _bars(name: str, place: int, shares: Floats, bins: _Bins) -> list[Json]:
    edges, words, kept = bins.edges, bins.words, np.flatnonzero(shares)
    if not len(kept):
        return []
    bar = {
        "type": "bar",
        "name": name,
        "legendgroup": f"group {place}",
        "showlegend": False,
        "x": numbers(((edges[:-1] + edges[1:]) / 2)[kept]),
        "y": numbers(shares[kept]),
        "width": numbers((0.92 * np.diff(edges))[kept]),
        "marker": {"color": group_colour(place)},
        "hovertext": [words[each] for each in kept],
        "hovertemplate": "%{y:.2%} of the updates of %{fullData.name}<br>are %{hovertext} late<extra></extra>",
    }
    return [bar]


def _means(name: str, group: GroupStaleness, top: float, bins: _Bins) -> list[Json]:
    """The means as vertical lines with a mark at the top."""
    kinds = (
        ("mean, predicted", group.predicted, "dash", {"symbol": "diamond-open", "size": [0, 13]}),
        ("mean, simulated", group.mean, "solid", {"symbol": "circle", "size": [0, 7]}),
    )
    return [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": kind,
            "legendgroup": kind,
            "legendrank": 1001,
            "x": [float(bins.place(mean))] * 2,
            "y": [0, 1.06 * top],
            "line": {"color": "@ink", "dash": dash, "width": 1.5},
            "marker": {"color": "@ink", "line": {"width": 1.5, "color": "@ink"}, **marker},
            "hovertemplate": f"staleness of {name}<br>{kind}: {mean:,.2f} versions<extra></extra>",
        }
        for kind, mean, dash, marker in kinds
        if isfinite(mean)
    ]


def _means_in_words(group: GroupStaleness) -> str:
    if not group.counts.any():
        return "sent no update"
    theory = f", predicted {group.predicted:,.2f}" if isfinite(group.predicted) else ""
    return f"mean {group.mean:,.2f}{theory}"


def _table(shown: Shown) -> Table:
    rows, marks = [], []
    for named, groups in shown:
        for place, group in enumerate(groups):
            means = [NONE if not isfinite(mean) else f"{mean:,.2f}" for mean in (group.mean, group.predicted)]
            parts = [group.at_most(part) for part in (0.5, 0.95, 1.0)]
            late = [f"{part:,.0f}" if isfinite(part) else NONE for part in parts]
            rows.append([group.name, named.label, f"{group.counts.sum():,}", *means, *late])
            marks.append(named.group_colour(place))
    return Table(
        caption="Staleness in versions, of all aggregated updates of all seeds.",
        head=["group", "strategy", "updates", "mean", "predicted mean", "median", "95 % at most", "largest"],
        rows=rows,
        marks=marks,
    )
