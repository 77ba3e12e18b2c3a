"""One client group as it was seen: its parts, their delays, losses and absences, and the tables that stand for it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fairlag.analyse.fit.alike import CHANCE, FEW, Part, apart, spread
from fairlag.analyse.fit.durations import BEST, EMPIRICAL, Fitted, fit
from fairlag.analyse.fit.families import Sample
from fairlag.analyse.fit.observed import Observed, Tasks
from fairlag.core.types import Floats, Integers
from fairlag.fleet.delay import Delay

PARTS = (0.1, 0.5, 0.9)
"""The quantiles that are told."""

_GRID = (np.arange(10_000) + 0.5) / 10_000
_PRESENCE = ("vanish", "away", "join", "leave")
_REPLACED = ("count", "delay", "delay_per", "upload", "download", *_PRESENCE)
_LATE, _GONE, _QUIET = 0.01, 0.1, 3.0
"""A group joined late where its first task was handed out after the first part of the run. It left where none of its
tasks ended in the last part of that length, and in so many times the longest pause before."""


class Ways(NamedTuple):
    """How a fleet is to be fitted."""

    how: str = BEST
    split: bool = True
    deployed: bool = False
    """Was it a real fleet? Then clients that were never heard of were not there."""
    queues: bool = False
    """Do idle clients wait to be picked?"""
    steps: int | None = 1
    """How many local steps a task has if nobody says otherwise; None where epochs are counted."""


class Summary(NamedTuple):
    """Durations in four numbers."""

    mean: float
    quantiles: tuple[float, ...]
    """At `PARTS`."""

    @classmethod
    def seen(cls, sample: Sample) -> "Summary":
        """Of durations that were seen."""
        return cls(sample.mean(), tuple(sample.quantile(part) for part in PARTS))

    @classmethod
    def fitted(cls, delay: Delay) -> "Summary":
        """Of a delay."""
        return cls(delay.mean, tuple(np.quantile(delay.quantile(_GRID), PARTS).tolist()))

    @property
    def words(self) -> str:
        """In a line."""
        spread = ", ".join(f"{100 * part:g} %: {value:.4g}" for part, value in zip(PARTS, self.quantiles, strict=True))
        return f"mean {self.mean:.4g} ({spread})"


@dataclass(frozen=True, slots=True)
class GroupFit:
    """Clients that share a table of the fitted fleet."""

    group: str
    """The group of the run that they are of."""
    table: dict[str, Any]
    """What stands for them in the file."""
    tasks: int
    """How many of their tasks ended."""
    updates: int
    """How many updates came in, used or refused."""
    counted: int
    """How many of these the delay is fitted to: without warm-up, and without those handed out too late."""
    lost: int
    cancelled: int
    seen: Summary | None = None
    """How long tasks took; None where that was not seen, so that the delay is the run's own."""
    fitted: Summary | None = None
    family: str = ""
    distance: float = 0.0
    """Of Kolmogorov and Smirnov, between what was seen and what was fitted."""
    remarks: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        """In the file."""
        return str(self.table["group"])

    @property
    def clients(self) -> int:
        """How many they are."""
        return int(self.table["count"])

    @property
    def words(self) -> list[str]:
        """What the file says above the table."""
        each = " a step" if self.table.get("delay_per") else ""
        lines = list(self.remarks)
        if self.seen is not None and self.fitted is not None:
            of = f"{self.counted:,} of " if self.counted < self.updates else ""
            lines.append(f"Seen: {of}{self.updates:,} updates, {self.seen.words} s{each}.")
            lines.append(f"Fitted: {self.fitted.words} s{each}; Kolmogorov–Smirnov distance {self.distance:.3f}.")
        return lines

    def as_json(self) -> dict[str, Any]:
        """All of it."""

        def told(summary: Summary | None) -> dict[str, Any] | None:
            if summary is None:
                return None
            values = zip(PARTS, summary.quantiles, strict=True)
            return {"mean": summary.mean, "quantiles": {f"{part:g}": value for part, value in values}}

        return {
            "group": self.name,
            "of": self.group,
            "clients": self.clients,
            "tasks": self.tasks,
            "updates": self.updates,
            "counted": self.counted,
            "lost": self.lost,
            "cancelled": self.cancelled,
            "seen": told(self.seen),
            "fitted": told(self.fitted),
            "family": self.family or None,
            "distance": self.distance if self.seen else None,
            "table": self.table,
            "remarks": list(self.remarks),
        }


def fit_group(table: dict[str, Any], seen: Observed, ways: Ways) -> Iterator[GroupFit]:
    """The tables that stand for a group of the run's experiment, one for each of its parts."""
    members = np.flatnonzero(seen.group_of == seen.groups.index(table["group"]))
    tasks = seen.tasks.of(members)
    steps = _steps(tasks, table, ways)
    usual, warmed = _usual(tasks, table["group"], steps, ways)
    whole = _sample(usual, steps, tasks)
    if not whole.exact.any():
        if "delay" in table:  # otherwise nothing at all is known of it
            yield _unseen(table, tasks)
        return
    common, remarks = _presence(table, tasks, seen, ways)
    members, silent = _heard(members, tasks, table["group"], ways)
    parts, why = _parts(members, usual.settled(), table, ways if steps is None else ways._replace(split=False))
    overall = fit(whole, ways.how)
    remarks = [*warmed, *why, *silent, *remarks]
    for part in parts:
        mine = tasks.of(part.clients)
        own = _sample(usual.of(part.clients), steps, mine)
        known = bool(own.exact.any())
        found = fit(own, ways.how) if len(parts) > 1 and known else overall
        name = _named(table["group"], part.suffix, seen.groups)
        stands = {**common, "group": name, "count": len(part.clients), "delay": str(found.delay)}
        yield GroupFit(
            group=table["group"],
            table=stands | ({} if steps is None else {"delay_per": "step"}),
            **_counts(mine),
            counted=len(own.exact),
            seen=Summary.seen(own) if known else None,
            fitted=Summary.fitted(found.delay),
            family=found.family,
            distance=found.distance,
            remarks=(*remarks, *_doubts(name, found)),
        )
        remarks = []


def _usual(tasks: Tasks, group: str, steps: int | None, ways: Ways) -> tuple[Tasks, list[str]]:
    """The tasks of a group without warm-up, which only a real fleet has; and what is to be said of that."""
    warm = tasks.warm_up(_per(tasks, steps)) if ways.deployed else np.empty(0, np.int64)
    if not len(warm):
        return tasks, []
    rest = tasks.where(np.setdiff1d(np.arange(len(tasks)), warm))
    first = "The first task of 1 client" if len(warm) == 1 else f"The first tasks of {len(warm):,} clients"
    return rest, [
        f"{first} of {group} took at least {tasks.duration[warm].min():.4g} s, later ones at most "
        f"{rest.duration[rest.came].max():.4g} s: left out as warm-up."
    ]


def _doubts(name: str, found: Fitted) -> list[str]:
    if not found.doubt:
        return []
    if found.family == EMPIRICAL:
        return [f"The durations of {name} are listed as they are: {found.doubt}."]
    return [f"The family {found.family} was asked for, but does not fit {name}: {found.doubt}."]


def _heard(members: Integers, tasks: Tasks, group: str, ways: Ways) -> tuple[Integers, list[str]]:
    """Who is counted, and what is to be said of those who ended no task."""
    silent = np.setdiff1d(members, tasks.client)
    if not len(silent):
        return members, []
    if ways.deployed:
        return np.setdiff1d(members, silent), [f"{len(silent):,} clients of {group} were never heard of: left out."]
    return members, [f"{len(silent):,} clients of {group} ended no task: they are taken as the others."]


def _named(group: str, suffix: str, taken: Sequence[str]) -> str:
    """The name of a part, which no other group has."""
    while suffix and group + suffix in taken:
        suffix = f"-{suffix}"
    return group + suffix


def _unseen(table: dict[str, Any], tasks: Tasks) -> GroupFit:
    why = "took no time" if len(tasks.came) else "were not seen"
    remark = f"Updates of {table['group']} {why}: all of it is as the run's experiment has it."
    return GroupFit(group=table["group"], table=dict(table), **_counts(tasks), counted=0, remarks=(remark,))


def _counts(tasks: Tasks) -> dict[str, Any]:
    return {
        "tasks": len(tasks),
        "updates": len(tasks.came),
        "lost": len(tasks.lost),
        "cancelled": len(tasks.cancelled),
    }


def _steps(tasks: Tasks, table: dict[str, Any], ways: Ways) -> int | None:
    """How many local steps a task has if the strategy does not say; None: all have as many, and each takes its time."""
    if ways.steps is None:
        return None
    own = int(table.get("steps") or ways.steps)
    return own if len(np.unique(np.where(tasks.steps > 0, tasks.steps, own))) > 1 else None


def _per(tasks: Tasks, steps: int | None) -> Integers | None:
    """How many steps each has, if that differs."""
    return None if steps is None else np.where(tasks.steps > 0, tasks.steps, steps)


def _sample(tasks: Tasks, steps: int | None, every: Tasks) -> Sample:
    """How long tasks take, by those handed out early enough; `every` task of these clients says how many may be hidden.

    A client has at most one task when a run ends. If many more would have to be hidden by that end, durations changed
    during the run, and then all of them are taken as they are. (Twice: what is hidden is only an estimate.)
    """
    early = tasks.settled()
    found = early.durations(_per(early, steps))
    if found.hidden() <= 2 * every.first.sum():
        return found
    return tasks.durations(_per(tasks, steps))._replace(window=np.empty(0))


def _parts(members: Integers, tasks: Tasks, table: dict[str, Any], ways: Ways) -> tuple[list[Part], list[str]]:
    """Clients that are alike, and why they are not all of the group."""
    known = tasks.came[tasks.duration[tasks.came] > 0]
    clients, durations = tasks.client[known], tasks.duration[known]
    if not ways.split or not (found := spread(clients, durations)).clear:
        return [Part(members, "")], []
    parts = apart(members, clients, durations)
    each = "each has its own table" if len(members) <= FEW else f"{len(parts)} tables hold clients that are alike"
    return parts, [
        f"Clients of {table['group']} clearly differ, by a factor of {found.factor:.2f} for one standard deviation "
        f"(p < {CHANCE:g}): {each}."
    ]


def _presence(table: dict[str, Any], tasks: Tasks, seen: Observed, ways: Ways) -> tuple[dict[str, Any], list[str]]:
    """What all parts of a group share: when it is there, and how often clients vanish, and for how long."""
    found = {key: value for key, value in table.items() if key not in _REPLACED}
    if table.get("availability", "always") != "always" and not ways.deployed:  # it is known who was there
        return found | {key: table[key] for key in _PRESENCE if key in table}, []
    first, ends = float(tasks.dispatched.min()), np.sort(tasks.dispatched + tasks.duration)
    if first > _LATE * max(seen.ends):
        found["join"] = _short(first)
    leave = _left(first, ends, seen.ends)
    if leave is not None or "leave" in table:
        found["leave"] = table["leave"] if leave is None else _short(leave)
    if leave is not None:  # whoever was at work lost it by leaving, not by vanishing
        tasks = tasks.where(np.flatnonzero(tasks.dispatched + tasks.duration < leave))
    return found, _vanishing(found, table["group"], tasks.settled(), max(seen.ends), ways)


def _vanishing(found: dict[str, Any], group: str, tasks: Tasks, longest: float, ways: Ways) -> list[str]:
    """Puts down how often clients vanish, and for how long; returns what must be known of it."""
    there = found.pop("availability", "always")
    remarks = [f"{group} is there as it was seen to be, not {there} as was assumed."] * (there != "always")
    if len(tasks.lost):
        found["vanish"] = _short(min(len(tasks.lost) / len(tasks), 1 - 1 / (len(tasks) + 1)))
        away = tasks.absences(queue=ways.queues)
        found["away"] = str(fit(away).delay) if len(away.exact) else _short(longest)
        if ways.queues:
            remarks.append(f"Clients of {group} that leave while they wait for a task are not seen to be away.")
    return remarks


def _left(first: float, ends: Floats, over: tuple[float, ...]) -> float | None:
    """When a group left for good, where one run shows that it did."""
    last, pauses = float(ends[-1]), np.diff(ends, prepend=first)
    quiet = max(over) - last
    return last if len(over) == 1 and quiet > max(_GONE * over[0], _QUIET * float(pauses.max())) else None


def _short(value: float) -> float:
    return float(f"{value:.6g}")
