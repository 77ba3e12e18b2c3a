"""Who would gain by cheating: the influence of a client that throttles itself, one panel per strategy."""

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from fairlag.analyse.audit import StrategyAudit
from fairlag.analyse.incentives import FACTORS, Incentive
from fairlag.analyse.timings import Found
from fairlag.report.figures import identity
from fairlag.report.figures.identity import Look, Sheet
from fairlag.report.labels import gain, shortened, span, timing_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TICKS = (1, 2, 4, 8, 20)


def incentives_figure(
    audits: Sequence[StrategyAudit], sheet: Sheet, size: str = "double", looks: Sequence[Look] | None = None
) -> None:
    """Influence of one client of each group against how much longer than necessary it takes, and its gain."""
    identity.check_panels(len(audits))
    looks = looks or [identity.strategy_look(place) for place in range(len(audits))]
    groups = max(len(each.groups) for each in audits)
    with identity.panels(sheet, len(audits), size, tall=1.65 + 0.13 * groups, around=0.95) as (figure, axes):
        room = identity.title_width(len(audits), size)
        brief = room < identity.WIDE
        labels = shortened([each.label for each in audits], room)
        for panel, look, label, each in zip(axes, looks, labels, audits, strict=True):
            _draw(panel, each, brief=brief)
            identity.headline(panel, look, label)
        from matplotlib.lines import Line2D

        fair = identity.fair_key("entitled to") if any(each.comes_and_goes for each in audits) else identity.fair_key()
        best = Line2D([], [], color="#222222", marker="*", markersize=8, linestyle="", label="pays most")
        names = list(dict.fromkeys(group.name for each in audits for group in each.groups))
        identity.group_legend(figure, names, [fair, best] if _tempting(audits) else [fair])
        every = [group for each in audits for group in each.groups]
        highest = max(max(float(group.incentive.influence.max()), group.due) for group in every)
        axes[0].set_ylim(0, highest * (1.1 + 0.11 * groups))
        identity.caption(figure, _reading(audits))


def verdict(incentive: Incentive, *, tried: bool, brief: bool = False) -> str:
    """What a client gains by throttling, in words; `brief` if there is little room."""
    if brief:
        return brief_verdict(incentive, tried=tried)
    if not tried:
        return "not tried: it would take too many updates"
    if not incentive.heard:
        return "no update merged, so nothing is known"
    if not incentive.truthful:
        return f"gains {incentive.throttle_gain:.0%} ± {incentive.gain_error:.0%} at ×{incentive.best_throttle:g}"
    if incentive.largest_gain >= 1:
        return "trials too short to tell"
    return f"gains nothing{_at_most(incentive)}"


def brief_verdict(incentive: Incentive, *, tried: bool) -> str:
    """The same for a cell of a table."""
    if not tried:
        return "not tried"
    if not incentive.heard:
        return "no update merged"
    if not incentive.truthful:
        return f"+{incentive.throttle_gain:.0%} ±{incentive.gain_error:.0%} at ×{incentive.best_throttle:g}"
    return "too short" if incentive.largest_gain >= 1 else f"no{_at_most(incentive)}"


def found_words(found: Found) -> str:
    """The best timing found for a client, in words.

    >>> from fairlag.fleet.timing import Schedule
    >>> found_words(Found(Schedule((64, 1, 1, 1)), gain=0.38, error=0.011))
    'gains 38% ± 1% by schedule(64, 1, 1, 1): 64 times slower in the first quarter of the run, then truthful'
    """
    if found.truthful:
        return brief_words(found)
    return f"gains {gain(found.gain, found.error)} by {found.timing}: {timing_words(found.timing)}"


def brief_words(found: Found) -> str:
    """The same for a cell of a table.

    >>> from fairlag.fleet.timing import Truthful
    >>> brief_words(Found(Truthful(), at_most=0.031))
    'none found (< 4%)'
    """
    if not found.known:
        return "no update merged" if found.tried else "not tried"
    if found.truthful:
        return f"none found (< {ceil(100 * found.at_most)}%)" if found.at_most else "none found"
    return f"+{gain(found.gain, found.error)}, {found.timing}"


def _at_most(incentive: Incentive) -> str:
    """The gain that would have been noticed, rounded up; empty if all factors clearly lose."""
    return f" (< {ceil(100 * incentive.largest_gain)}%)" if incentive.largest_gain > 0 else ""


def how_tried(audits: Sequence[StrategyAudit]) -> str:
    """The number and length of throttling trials; empty if there were none."""
    tried = [audit.throttling for audit in audits if audit.throttling.tried]
    if not tried:
        return ""
    seeds, length = span([each.replications for each in tried]), span([n for each in tried for n in each.aggregations])
    return f"{seeds} seeds of {length} aggregations"


def _reading(audits: Sequence[StrategyAudit]) -> str:
    words = "One client at a time takes longer than necessary. Simulated without training"
    tried = how_tried(audits)
    return f"{words}, {tried}. ±: the error, which a gain must exceed to count." if tried else f"{words}."


def _tempting(audits: Sequence[StrategyAudit]) -> bool:
    return any(not group.incentive.truthful for each in audits for group in each.groups)


def _draw(axes: "Axes", audit: StrategyAudit, *, brief: bool) -> None:
    from matplotlib.ticker import NullLocator

    tried = audit.throttling.tried
    words = []
    for place, group in enumerate(audit.groups):
        look, found = identity.group_look(place), group.incentive
        words.append(f"{group.name}: {verdict(found, tried=tried, brief=brief)}")
        if audit.comes_and_goes:
            axes.axhline(group.due, **{**identity.FAIR, "color": look.colour})
        if not tried:
            continue
        axes.plot(found.factors, found.influence, marker="o", markersize=3, linewidth=1.4, color=look.colour)
        if not found.truthful:
            best = found.influence[found.factors.index(found.best_throttle)]
            star: Any = {"markersize": 10, "markeredgecolor": "white", "zorder": 4}
            axes.plot(found.best_throttle, best, "*", color=look.colour, **star)
    if not audit.comes_and_goes:
        axes.axhline(1 / sum(group.clients for group in audit.groups), **identity.FAIR)
    axes.set_xscale("log")
    axes.set_xlim(FACTORS[0] * 0.93, FACTORS[-1] * 1.08)
    axes.set_xticks(_TICKS, [f"×{factor}" for factor in _TICKS])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(identity.percent)
    axes.set_xlabel("throttling factor")
    axes.set_ylabel("share of all weight")
    corner: Any = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "right", "va": "top"}
    told = axes.annotate("\n".join(words), (1, 1), (-2, -3), fontsize=6.5 if brief else None, **corner)
    told.set_in_layout(False)  # a long name must not narrow the panels
