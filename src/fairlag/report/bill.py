"""Who pays how much privacy: a table for a terminal, and how to read it."""

from collections.abc import Sequence
from math import isfinite, isnan
from textwrap import wrap

from rich.console import Group, RenderableType
from rich.text import Text

from fairlag.analyse.bill import Bill, GroupBill, Terms, Unbilled
from fairlag.lab.experiment import Experiment
from fairlag.report.labels import span
from fairlag.report.tables import block, with_groups
from fairlag.text.numerals import NONE, number

_ENDLESS = "∞"

_READING = (
    "influence: the group's share of all weight",
    "ε: of a client, the mean of its group; largest ε: of the client that pays most",
    "noise: the standard deviation of the noise on a step is noise · weight · clip",
    "weight: the largest that one client can have in one version",
    "unequal: the largest ε of a client ÷ the smallest",
)
_LASTS = "lasts: after how many versions a client of the group reaches the wanted ε"
_UNHEARD = f"{NONE}: no update of the group was merged; more --aggregations show what it pays"
_NEEDED = "needed: the smallest noise with which no client's ε is above the wanted one"


def bill_table(experiment: Experiment, wanted: Terms, found: Sequence[Bill | Unbilled], seeds: int) -> RenderableType:
    """The bill of an experiment, one block per strategy, one row per group."""
    title = f"Who pays how much privacy in {experiment.name}: ε at δ = {wanted.delta:g}"
    title += "" if wanted.epsilon is None else f", {wanted.epsilon:g} wanted"
    columns = {
        "clients": 9,
        "influence": 11,
        "ε": 10,
        "largest ε": 11,
        **({} if wanted.epsilon is None else {"lasts": 13}),
    }
    columns = with_groups(columns, most=24)
    parts: list[RenderableType] = [Text(title, style="bold"), Text()]
    parts.append(block(columns, [[Text(name, style="dim") for name in columns]]))
    for each in found:
        if isinstance(each, Unbilled):
            parts.append(Text(each.label, style="bold"))
            parts += [Text(f"  {line}", style="yellow") for line in wrap(f"no ε: {each.reason}", 76)]
            continue
        parts += [Text(each.label, style="bold"), Text(f"  {_summary(each)}", style="dim")]
        parts.append(block(columns, (_cells(group, wanted) for group in each.groups)))
    parts += [Text(), *(Text(line, style="dim") for line in _reading(wanted, found, seeds))]
    return Group(*parts)


def _summary(bill: Bill) -> str:
    words = f"noise {bill.noise:.3g}, weight {bill.bound:.3g}, unequal {_times(bill.ratio)}"
    return words if bill.needed is None or bill.needed == bill.noise else f"{words}, needed {bill.needed:.3g}"


def _times(ratio: float) -> str:
    return f"×{ratio:.2f}" if isfinite(ratio) else _ENDLESS


def _cells(group: GroupBill, wanted: Terms) -> list[Text]:
    cells = [
        Text(f"  {group.name}"),
        Text(f"{group.clients:,}"),
        Text(f"{group.influence:.3f}"),
        Text(number(group.epsilon, "{:.4g}")),
    ]
    over = wanted.epsilon is not None and group.largest > wanted.epsilon * (1 + 1e-9)
    cells.append(Text(number(group.largest, "{:.4g}"), style="red" if over else ""))
    if group.lasts is not None:
        cells.append(Text(number(group.lasts, "{:,.0f}")))
    return cells


def _reading(wanted: Terms, found: Sequence[Bill | Unbilled], seeds: int) -> list[str]:
    billed = [each for each in found if isinstance(each, Bill)]
    lines = [*_READING, *([] if wanted.epsilon is None else [_LASTS])]
    if any(each.needed not in (None, each.noise) for each in billed):
        lines.append(_NEEDED)
    if any(isnan(group.epsilon) for each in billed for group in each.groups):
        lines.append(_UNHEARD)
    if any(not isfinite(each.ratio) for each in billed):
        lines.append(f"unequal {_ENDLESS}: no update of some client was merged")
    lines.append("Neighbours: all updates of one client are zeros. Metadata are public.")
    if billed:
        made = span([each.aggregations for each in billed])
        lines.append(
            f"Means over {seeds} {'seed' if seeds == 1 else 'seeds'} of {made} aggregations, without training."
        )
    return lines
