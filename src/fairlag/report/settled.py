"""Where a fleet settles if updates cost something: a table for a terminal, and how to read it."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from fairlag.analyse.audit import StrategyAudit
from fairlag.analyse.equilibrium import SLOWEST
from fairlag.analyse.settling import Equilibrium, GroupAtRest, Untried
from fairlag.report.tables import block

_COLUMNS = {"group": 16, "clients": 8, "cost": 9, "slower": 9, "updates/s": 11, "influence": 11, "payoff": 10}

TITLE = "Where the fleet settles if every client chooses the speed that pays it most"

_ROUGH = 0.01
"""The smallest possible gain, relative to a fair share, that gets a remark."""

READING = (
    "cost: the influence that sending one update per second costs a client",
    "slower: how many times as long as necessary its tasks take; ×1: full speed",
    "updates/s: of one client, if a unit of virtual time is a second",
    "influence: the group's share of all weight",
    "payoff: of one client, its influence − cost · updates/s",
    "welfare: the sum of all payoffs, 1 − Σ cost · updates/s",
)


def settled_table(audits: Sequence[StrategyAudit]) -> RenderableType:
    """One block per strategy, one row per group, for the strategies that it was computed for."""
    parts: list[RenderableType] = [Text(), Text(TITLE, style="bold"), Text()]
    parts.append(block(_COLUMNS, [[Text(name, style="dim") for name in _COLUMNS]]))
    for audit in audits:
        if isinstance(rest := audit.rest, Untried):
            parts += [Text(audit.label, style="bold"), Text(f"  not computed: {rest}", style="yellow")]
        elif rest is not None:
            parts += [Text(audit.label, style="bold"), Text(f"  {summary(rest)}")]
            parts.append(block(_COLUMNS, map(_row, rest.groups)))
            parts += [Text(f"  {remark}", style="yellow") for remark in remarks(rest)]
    parts += [Text(), *(Text(line, style="dim") for line in READING)]
    return Group(*parts)


def summary(found: Equilibrium) -> str:
    """Versions, fairness and welfare at rest."""
    return (
        f"{found.versions:.3g} versions/s ({found.speed:.0%} of full speed), Jain index {found.jain:.3f}, "
        f"welfare {found.welfare:.3f}"
    )


def remarks(found: Equilibrium) -> Iterator[str]:
    """What the numbers alone do not say."""
    for group in found.groups:
        if not group.response.is_content:
            at = f"at ×{group.throttle:.3g}, a client of {group.name} would rather be at ×{group.prefers:.3g}"
            yield f"It does not settle: {at}."
    if slowest := [group.name for group in found.groups if group.slowest]:
        at = f"at the slowest speed that was tried (×{2**SLOWEST:g})"
        yield f"{', '.join(slowest)}: {at}, because speed buys too little influence."
    if unclear := [group.name for group in found.groups if not group.response.at_stake]:
        why = "no speed within reach pays clearly more or less"
        yield f"{', '.join(unclear)}: {why}, so it may settle elsewhere as well."
    if found.settled and found.largest_gain >= _ROUGH:
        gain = f"{found.largest_gain:.1%} of a fair share"
        yield f"A client might gain up to {gain} by a different speed: the trials cannot tell."


def cells(group: GroupAtRest) -> dict[str, str]:
    """The cells of a group, by column."""
    return {
        "clients": f"{group.clients:,}",
        "cost": f"{group.cost:g}",
        "slower": f"×{group.throttle:.3g}",
        "updates/s": f"{group.rate:.3g}",
        "influence": f"{group.influence:.3f}",
        "payoff": f"{group.payoff:.4f}",
    }


def _row(group: GroupAtRest) -> list[Text]:
    style = "green" if group.throttle == 1 else "red" if group.slowest else "yellow"
    return [
        Text(f"  {group.name}"),
        *(Text(cell, style=style if name == "slower" else "") for name, cell in cells(group).items()),
    ]
