"""An audit's answer to "what should I deploy?": the cells of its table, and a few sentences."""

from collections.abc import Iterator, Sequence
from math import ceil
from statistics import fmean, stdev

from fairlag.analyse.audit import GroupAudit, StrategyAudit
from fairlag.analyse.deployment import SETTLED, Deployment, GroupDeployment
from fairlag.analyse.settling import Untried
from fairlag.analyse.timings import Found
from fairlag.report.labels import gain, listed, timing_words
from fairlag.text import numerals

DEPLOYMENT = {
    "versions/h": "new versions per hour, if a unit of virtual time is a second",
    "updates/day, MB/day": "merged updates and megabytes both ways, per device and day; megabytes need `model_bytes`",
    "lost": "share of finished tasks that are in no version",
    "waiting": "share of the time in which devices are present but not training",
    "settled": f"when each group's influence so far has come within {SETTLED} of its final value, to stay; –: later "
    "than half of the run, so the run is too short to tell",
}
"""How to read the columns."""

_PRACTICAL = 0.005
"""Jain indices that differ by less count as equal, and so do speeds that differ by less than twice this share."""

_FAIR = 0.05
"""How far below its fair share, relative to it, a group may be without being named."""

_FULL = 1.005
"""A group that is slower by a smaller factor counts as working at full speed."""

_QUANTILE = 2.0


def deployment_cells(audit: StrategyAudit) -> list[str]:
    """Versions per hour, updates and megabytes per device and day, lost, waiting, settled."""
    found = audit.deployment
    return [
        f"{found.versions_per_hour:,.0f}" if found.versions_per_hour >= 10 else f"{found.versions_per_hour:.2f}",
        *device_cells(found),
        f"{found.lost:.1%}",
        f"{found.waiting:.1%}",
        numerals.duration(found.settled),
    ]


def device_cells(found: Deployment | GroupDeployment) -> list[str]:
    """Updates and megabytes per device and day."""
    return [_count(found.updates_per_day), _count(found.megabytes_per_day)]


def _count(value: float | None) -> str:
    return numerals.number(value, "{:,.0f}" if value is None or value >= 100 else "{:.1f}")


def answer(audits: Sequence[StrategyAudit]) -> list[str]:
    """The fairest and the fastest strategy, who gets too little, who would gain by cheating, and which to choose."""
    fairest, fastest = _fairest(audits), _fastest(audits)
    both = next((audit for audit in fairest if any(audit is each for each in fastest)), None)
    least_fair = min(audits, key=lambda audit: audit.jain_entitled)
    named = [both] if both else [fairest[0], fastest[0]]
    if not any(least_fair is each for each in (*fairest, *named)):
        named.append(least_fair)
    sentences = [*map(_who_gets_less, named), *_on_cheating(audits), *_on_rest(audits)]
    if len(audits) == 1:
        return sentences
    return [_on_fairness(audits, fairest), _on_speed(audits, fastest), *sentences, _choice(fairest, fastest, both)]


def _choice(fairest: Sequence[StrategyAudit], fastest: Sequence[StrategyAudit], both: StrategyAudit | None) -> str:
    if both is None:
        choice = f"So choose {fairest[0].label} if fairness matters more, {fastest[0].label} if speed does."
        return f"{choice} Learning was not simulated."
    return f"So choose {both.label}: none of these is fairer, and none is faster. Learning was not simulated."


def _fairest(audits: Sequence[StrategyAudit]) -> list[StrategyAudit]:
    """The strategy with the highest Jain index, and those that the seeds cannot tell apart from it."""
    best = max(audits, key=lambda audit: audit.jain_entitled)
    return [best, *(audit for audit in audits if audit is not best and not _differs(best, audit))]


def _differs(best: StrategyAudit, other: StrategyAudit) -> bool:
    """Do their Jain indices differ by more than chance? Seeds are paired, because they share their durations."""
    pairs = zip(best.jains_entitled, other.jains_entitled, strict=True)
    apart = [mine - theirs for mine, theirs in pairs]
    error = _QUANTILE * stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
    return fmean(apart) > max(_PRACTICAL, error)


def _fastest(audits: Sequence[StrategyAudit]) -> list[StrategyAudit]:
    best = max(audits, key=lambda audit: audit.deployment.versions_per_hour)
    least = (1 - 2 * _PRACTICAL) * best.deployment.versions_per_hour
    return [best, *(each for each in audits if each is not best and each.deployment.versions_per_hour >= least)]


def _on_fairness(audits: Sequence[StrategyAudit], fairest: Sequence[StrategyAudit]) -> str:
    of = " of influence ÷ entitlement" if fairest[0].comes_and_goes else ""
    index = f"Jain index{of} {fairest[0].jain_entitled:.3f}"
    if len(fairest) == len(audits):
        return f"All are equally fair ({index}), as far as these seeds can tell."
    seeds = len(audits[0].influences)
    chance = " With one seed, the effect of chance is not known." if seeds == 1 else ""
    if len(fairest) == 1:
        return f"{fairest[0].label} is the fairest ({index}).{chance}"
    return f"{_labels(fairest)} are the fairest, and equally fair ({index}).{chance}"


def _on_speed(audits: Sequence[StrategyAudit], fastest: Sequence[StrategyAudit]) -> str:
    most = f"{deployment_cells(fastest[0])[0]} versions per hour"
    if len(fastest) == len(audits):
        return f"All are equally fast, with about {most}."
    slowest = min(audits, key=lambda audit: audit.deployment.versions_per_hour)
    rest = f"{slowest.label} is the slowest, with {deployment_cells(slowest)[0]}."
    return f"{_labels(fastest)} {'is' if len(fastest) == 1 else 'are'} the fastest, with {most}; {rest}"


def _who_gets_less(audit: StrategyAudit) -> str:
    short = [group for group in audit.groups if group.influence < (1 - _FAIR) * group.entitled]
    idle = audit.deployment.waiting
    waits = f" Devices wait {idle:.0%} of their time." if idle >= _FAIR else ""
    if not short:
        return f"Under {audit.label}, no group has clearly less than its fair share.{waits}"
    names = listed([group.name for group in short])
    get = f"the group {names} gets" if len(short) == 1 else f"the groups {names} get"
    has, fair = (listed([f"{part:.3f}" for part in parts]) for parts in zip(*map(_parts, short), strict=True))
    return f"Under {audit.label}, {get} too little influence: {has} of all, while {fair} would be fair.{waits}"


def _parts(group: GroupAudit) -> tuple[float, float]:
    return group.influence, group.entitled


def _on_cheating(audits: Sequence[StrategyAudit]) -> list[str]:
    """The strategies under which some timing pays or none does, and what false identities gain."""
    sentences = [_who_cheats(audit) for audit in audits if any(not group.cheat.truthful for group in audit.groups)]
    honest = [audit for audit in audits if (known := _known(audit)) and all(each.truthful for each in known)]
    if honest:
        most = max(found.at_most for audit in honest for found in _known(audit))
        bound = f" The best of these gains less than {ceil(100 * most)}%." if 0 < most < 1 else ""
        sentences.append(f"Under {_labels(honest)}, no timing that was tried pays.{bound}")
    return [*sentences, *_on_the_unmerged(audits), *_on_identities(audits)]


def _on_the_unmerged(audits: Sequence[StrategyAudit]) -> list[str]:
    """One sentence per set of groups without any merged update, if cheating was tried."""
    about: dict[str, list[StrategyAudit]] = {}
    for audit in audits:
        if names := [group.name for group in audit.groups if group.cheat.tried and not group.cheat.heard]:
            about.setdefault(listed(names), []).append(audit)
    help_ = "Longer runs may help (--aggregations, or --set until_time=…)."
    return [
        f"Under {_labels(found)}, no update of {names} was merged, so nothing is known about cheating there. {help_}"
        for names, found in about.items()
    ]


def _known(audit: StrategyAudit) -> list[Found]:
    return [group.cheat for group in audit.groups if group.cheat.known]


def _who_cheats(audit: StrategyAudit) -> str:
    cheats = [group for group in audit.groups if not group.cheat.truthful]
    most = max(cheats, key=lambda group: group.cheat.gain)
    others = [f"{group.name} ({_gained(group)})" for group in cheats if group is not most]
    so_do = f" Clients of {listed(others)} gain too." if others else ""
    timing = most.cheat.timing
    by = f"{timing}: {timing_words(timing)}"
    return f"Under {audit.label}, a client of {most.name} gains {_gained(most)} by {by}.{so_do}"


def _gained(group: GroupAudit) -> str:
    return gain(group.cheat.gain, group.cheat.error)


def _on_identities(audits: Sequence[StrategyAudit]) -> list[str]:
    """One sentence about false identities, if they were tried."""
    tried = [(audit, group) for audit in audits for group in audit.groups]
    words = []
    for what, name in (("two", "acting as two clients"), ("rejoin_anew", "taking new names")):
        gains = [(getattr(group.identities, what), audit, group) for audit, group in tried]
        known = [each for each in gains if each[0] is not None]
        if known:
            found, audit, group = max(known, key=lambda each: float(each[0]))
            where = f"under {audit.label}" if len(audits) > 1 else "here"
            words.append(f"{name} gains up to {max(found, 0.0):.0%} (for a client of {group.name} {where})")
    return [f"No weighting can prevent false identities unless they cost something: {listed(words)}."] if words else []


def _on_rest(audits: Sequence[StrategyAudit]) -> Iterator[str]:
    """Where the fleet settles under each strategy, if updates cost something."""
    for audit in audits:
        if isinstance(rest := audit.rest, Untried):
            yield f"Where the fleet settles under {audit.label} was not computed: {rest}."
        elif rest is not None and not rest.settled:
            moves = "some client always gains by changing its speed"
            yield f"At these costs the fleet does not settle under {audit.label}: {moves}."
        elif rest is not None:
            slow = [f"{group.name} by ×{group.throttle:.3g}" for group in rest.groups if group.throttle > _FULL]
            where = f"at {rest.speed:.0%} of its full speed: {listed(slow)} slower" if slow else "at its full speed"
            yield f"At these costs the fleet settles {where} under {audit.label}."


def _labels(audits: Sequence[StrategyAudit]) -> str:
    return listed([audit.label for audit in audits])
