"""One client group as observed: its parts, their delays, losses and absences, and the tables that describe it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fairlag.analyse.fit.alike import CHANCE, FEW, Part, apart, spread
from fairlag.analyse.fit.durations import BEST, EMPIRICAL, Fitted, fit
from fairlag.analyse.fit.families import Sample
from fairlag.analyse.fit.observed import Observed, Tasks
from fairlag.core.types import Floats, Integers
from fairlag.errors import InputError
from fairlag.fleet.availability import FILES
from fairlag.fleet.delay import Delay

PARTS = (0.1, 0.5, 0.9)
"""The quantiles that are reported."""

_GRID = (np.arange(10_000) + 0.5) / 10_000
_PRESENCE = ("vanish", "away", "join", "leave")
_REPLACED = ("count", "delay", "delay_per", "upload", "download", "overhead", "per_device", *_PRESENCE)
_LATE, _GONE, _QUIET = 0.01, 0.1, 3.0
"""A group joined late if its first task was dispatched after the part `_LATE` of the run. It left if none of its tasks
ended in the last part `_GONE` of the run, nor for `_QUIET` times its longest pause before."""


class Ways(NamedTuple):
    """How a fleet is fitted."""

    how: str = BEST
    split: bool = True
    deployed: bool = False
    """Was it a real fleet? Then clients that ended no task were not present."""
    queues: bool = False
    """Do idle clients wait to be picked?"""
    steps: int | None = 1
    """The default number of local steps of a task; None if local training is set in epochs."""


class Summary(NamedTuple):
    """Durations in a few numbers."""

    mean: float
    quantiles: tuple[float, ...]
    """At `PARTS`."""

    @classmethod
    def seen(cls, sample: Sample) -> "Summary":
        """The summary of observed durations."""
        return cls(sample.mean(), tuple(sample.quantile(part) for part in PARTS))

    @classmethod
    def fitted(cls, delay: Delay) -> "Summary":
        """The summary of a delay."""
        return cls(delay.mean, tuple(np.quantile(delay.quantile(_GRID), PARTS).tolist()))

    @property
    def words(self) -> str:
        """The summary in one line."""
        spread = ", ".join(f"{100 * part:g} %: {value:.4g}" for part, value in zip(PARTS, self.quantiles, strict=True))
        return f"mean {self.mean:.4g} ({spread})"


@dataclass(frozen=True, slots=True)
class GroupFit:
    """Clients that share a table of the fitted fleet."""

    group: str
    """Their group in the run."""
    table: dict[str, Any]
    """The table that describes them in the file."""
    tasks: int
    """The number of their tasks that ended."""
    updates: int
    """The number of their updates that arrived, merged or refused."""
    counted: int
    """The number of updates that the delay is fitted to: without warm-up, and without those dispatched too late."""
    lost: int
    cancelled: int
    seen: Summary | None = None
    """How long tasks took; None if that was not observed for these clients."""
    fitted: Summary | None = None
    family: str = ""
    distance: float = 0.0
    """The Kolmogorov–Smirnov distance between observed and fitted durations."""
    remarks: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        """The name of the group in the file."""
        return str(self.table["group"])

    @property
    def clients(self) -> int:
        """The number of these clients."""
        return int(self.table["count"])

    @property
    def words(self) -> list[str]:
        """The comment above the table in the file."""
        each = " per step" if self.table.get("delay_per") else ""
        lines = list(self.remarks)
        if self.seen is not None and self.fitted is not None:
            of = f"{self.counted:,} of " if self.counted < self.updates else ""
            lines.append(f"Seen: {of}{self.updates:,} updates, {self.seen.words} s{each}.")
            lines.append(f"Fitted: {self.fitted.words} s{each}; Kolmogorov–Smirnov distance {self.distance:.3f}.")
        return lines

    def as_json(self) -> dict[str, Any]:
        """All fields, as `fairlag fit-fleet --json` prints them."""

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
    """The tables that describe a group of the run's experiment, one per part of the group."""
    if "capacity" in table or table.get("availability", "").partition("(")[0].strip() in FILES:
        raise InputError(
            f"group {table['group']!r} has the recorded speed or presence of single clients, which no fit replaces: "
            "give it a delay and an availability without a file"
        )
    members = np.flatnonzero(seen.group_of == seen.groups.index(table["group"]))
    tasks = seen.tasks.of(members)
    steps = _steps(tasks, table, ways)
    usual, warmed = _usual(tasks, table["group"], steps, ways)
    whole = _sample(usual, steps, tasks)
    if not whole.exact.any():
        if "delay" in table:  # without a delay, nothing is known about the group
            yield _unseen(table, tasks)
        return
    common, remarks = _presence(table, tasks, seen, ways)
    together = seen.per_device[table["group"]]
    members, silent = _heard(members, tasks, table["group"], ways, together)
    parts, why = _parts(
        members, usual.settled(), table, ways if steps is None else ways._replace(split=False), together
    )
    overall = fit(whole, ways.how)
    if together > 1:
        common["per_device"] = together
        silent = [*silent, f"{together} clients in a row are one device: waiting for each other is not in their delay."]
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
    """The tasks of a group without warm-up, which only a real fleet has, and a remark about it."""
    warm = tasks.warm_up(_per(tasks, steps)) if ways.deployed else np.empty(0, np.int64)
    if not len(warm):
        return tasks, []
    rest = tasks.where(np.setdiff1d(np.arange(len(tasks)), warm))
    first = "The first task of 1 client" if len(warm) == 1 else f"The first tasks of {len(warm):,} clients"
    return rest, [
        f"{first} of {group} took {tasks.duration[warm].mean():.4g} s on average, later ones "
        f"{rest.duration[rest.came].mean():.4g} s: excluded as warm-up."
    ]


def _doubts(name: str, found: Fitted) -> list[str]:
    if not found.doubt:
        return []
    if found.family == EMPIRICAL:
        return [f"The durations of {name} are listed without a distribution: {found.doubt}."]
    return [f"The requested family {found.family} does not fit {name}: {found.doubt}."]


def _heard(members: Integers, tasks: Tasks, group: str, ways: Ways, together: int) -> tuple[Integers, list[str]]:
    """The clients that are included, and a remark about those whose devices ended no task."""
    first = members[0]
    silent = members[~np.isin((members - first) // together, (tasks.client - first) // together)]
    if not len(silent):
        return members, []
    if ways.deployed:
        return np.setdiff1d(members, silent), [f"{len(silent):,} clients of {group} ended no task: they are left out."]
    return members, [f"{len(silent):,} clients of {group} ended no task: they are assumed to be like the others."]


def _named(group: str, suffix: str, taken: Sequence[str]) -> str:
    """A name for a part that no other group has."""
    while suffix and group + suffix in taken:
        suffix = f"-{suffix}"
    return group + suffix


def _unseen(table: dict[str, Any], tasks: Tasks) -> GroupFit:
    why = "took no time" if len(tasks.came) else "were not observed"
    remark = f"Updates of {table['group']} {why}: its table is that of the run's experiment."
    return GroupFit(group=table["group"], table=dict(table), **_counts(tasks), counted=0, remarks=(remark,))


def _counts(tasks: Tasks) -> dict[str, Any]:
    return {
        "tasks": len(tasks),
        "updates": len(tasks.came),
        "lost": len(tasks.lost),
        "cancelled": len(tasks.cancelled),
    }


def _steps(tasks: Tasks, table: dict[str, Any], ways: Ways) -> int | None:
    """The local steps of a task if the strategy does not set them; None if all tasks have equally many steps."""
    if ways.steps is None:
        return None
    own = int(table.get("steps") or ways.steps)
    return own if len(np.unique(np.where(tasks.steps > 0, tasks.steps, own))) > 1 else None


def _per(tasks: Tasks, steps: int | None) -> Integers | None:
    """The number of steps of each task, if tasks differ in that."""
    return None if steps is None else np.where(tasks.steps > 0, tasks.steps, steps)


def _sample(tasks: Tasks, steps: int | None, every: Tasks) -> Sample:
    """How long tasks take, by those dispatched early enough; `every` holds all tasks of these clients.

    The end of a run hides at most one task per client and run. If the estimated number of hidden tasks is more than
    twice that (twice, because it is only an estimate), durations changed during the run: then all tasks are used.
    """
    early = tasks.settled()
    found = early.durations(_per(early, steps))
    if found.hidden() <= 2 * every.first.sum():
        return found
    return tasks.durations(_per(tasks, steps))._replace(window=np.empty(0))


def _parts(
    members: Integers, tasks: Tasks, table: dict[str, Any], ways: Ways, together: int
) -> tuple[list[Part], list[str]]:
    """The group in parts of clients that are alike, and a remark if there are several; clients of a device are."""
    known = tasks.came[tasks.duration[tasks.came] > 0]
    durations, start = tasks.duration[known], members[0]
    clients = start + (tasks.client[known] - start) // together * together
    if not ways.split or not (found := spread(clients, durations)).clear:
        return [Part(members, "")], []
    parts = [
        part._replace(clients=(part.clients[:, None] + np.arange(together)).ravel())
        for part in apart(members[(members - start) % together == 0], clients, durations)
    ]
    each = "each has its own table" if len(members) <= FEW else f"{len(parts)} tables group clients that are alike"
    return parts, [
        f"Clients of {table['group']} clearly differ, by a factor of {found.factor:.2f} for one standard deviation "
        f"(p < {CHANCE:g}): {each}."
    ]


def _presence(table: dict[str, Any], tasks: Tasks, seen: Observed, ways: Ways) -> tuple[dict[str, Any], list[str]]:
    """What all parts of a group share: when it is present, how often its clients vanish, and for how long."""
    found = {key: value for key, value in table.items() if key not in _REPLACED}
    if table.get("availability", "always") != "always" and not ways.deployed:  # presence is known
        return found | {key: table[key] for key in _PRESENCE if key in table}, []
    first, ends = float(tasks.dispatched.min()), np.sort(tasks.dispatched + tasks.duration)
    if first > _LATE * max(seen.ends):
        found["join"] = _short(first)
    leave = _left(first, ends, seen.ends)
    if leave is not None or "leave" in table:
        found["leave"] = table["leave"] if leave is None else _short(leave)
    if leave is not None:  # tasks that ended at that time were lost by leaving, not by vanishing
        tasks = tasks.where(np.flatnonzero(tasks.dispatched + tasks.duration < leave))
    return found, _vanishing(found, table["group"], tasks.settled(), max(seen.ends), ways)


def _vanishing(found: dict[str, Any], group: str, tasks: Tasks, longest: float, ways: Ways) -> list[str]:
    """Writes into `found` how often clients vanish, and for how long; returns remarks."""
    assumed = found.pop("availability", "always")
    remarks = [f"The presence of {group} is as observed, not {assumed} as the run assumed."] * (assumed != "always")
    if len(tasks.lost):
        found["vanish"] = _short(min(len(tasks.lost) / len(tasks), 1 - 1 / (len(tasks) + 1)))
        away = tasks.absences(queue=ways.queues)
        found["away"] = str(fit(away).delay) if len(away.exact) else _short(longest)
        if ways.queues:
            remarks.append(f"Clients of {group} that leave while they wait for a task are not observed to be away.")
    return remarks


def _left(first: float, ends: Floats, over: tuple[float, ...]) -> float | None:
    """When a group left for good, if there is one run and it shows that; otherwise None."""
    last, pauses = float(ends[-1]), np.diff(ends, prepend=first)
    quiet = max(over) - last
    return last if len(over) == 1 and quiet > max(_GONE * over[0], _QUIET * float(pauses.max())) else None


def _short(value: float) -> float:
    return float(f"{value:.6g}")
