"""Who of a fleet is there when, and how long tasks take, before anything runs: from the fleet's own draws."""

from typing import Any, NamedTuple

import numpy as np

from fairlag.core import seeds
from fairlag.core.types import Floats, Integers
from fairlag.errors import InputError
from fairlag.fleet.clients import Fleet

CLIENTS = 500
"""Of a larger group, that many clients are looked at, evenly spread."""
_TASKS = 20
"""How many tasks of each of them are looked at."""
_PERIODS = 2_000_000
_MOMENTS = 240


class GroupPresence(NamedTuple):
    """What is seen of a group."""

    name: str
    clients: int
    seen: int
    """How many of them were looked at."""
    durations: Floats
    """The durations of their first tasks, in increasing order."""
    who: Integers
    starts: Floats
    ends: Floats
    """Per period of presence: which of those that were looked at, from when, and until when."""
    present: Floats
    """Per moment: how many of the group's clients are there."""

    def duty(self, until: float) -> float:
        """The part of the time in which a client is there."""
        return float((self.ends - self.starts).sum()) / (self.seen * until)

    def as_json(self, until: float) -> dict[str, Any]:
        """What `fairlag fleet show --json` prints of it."""
        median, late = np.quantile(self.durations, [0.5, 0.9])
        return {
            "group": self.name,
            "clients": self.clients,
            "mean_duration": float(self.durations.mean()),
            "median_duration": float(median),
            "p90_duration": float(late),
            "duty": self.duty(until),
            "present": self.present.tolist(),
        }


class FleetPresence(NamedTuple):
    """What is seen of a fleet up to a time."""

    until: float
    moments: Floats
    groups: tuple[GroupPresence, ...]

    def as_json(self) -> dict[str, Any]:
        """What `fairlag fleet show --json` prints."""
        return {
            "until": self.until,
            "moments": self.moments.tolist(),
            "groups": [group.as_json(self.until) for group in self.groups],
        }


def presence(fleet: Fleet, until: float) -> FleetPresence:
    """Who is there when up to a time, apart from clients that vanish during a task, and how long tasks take.

    >>> from fairlag.lab.experiment import load
    >>> found = presence(load("demo").fleet(), until=100.0)
    >>> [(group.name, group.clients, group.duty(100.0)) for group in found.groups]
    [('fast', 10, 1.0), ('slow', 5, 1.0)]
    """
    moments = (np.arange(_MOMENTS) + 0.5) * until / _MOMENTS
    return FleetPresence(
        until, moments, tuple(_group(fleet, each, moments, until) for each in range(len(fleet.groups)))
    )


def _group(fleet: Fleet, number: int, moments: Floats, until: float) -> GroupPresence:
    group, first = fleet.groups[number], fleet.members(number)[0]
    places = np.unique(np.linspace(0, group.count - 1, min(group.count, CLIENTS)).astype(np.int64))
    ordinals = np.tile(np.arange(_TASKS), (len(places), 1))
    who, starts, ends = _periods(fleet, number, places, until)
    here = np.searchsorted(np.sort(starts), moments, "right") - np.searchsorted(np.sort(ends), moments, "right")
    return GroupPresence(
        name=group.name,
        clients=group.count,
        seen=len(places),
        durations=np.sort(fleet.durations(first + places, ordinals).ravel()),
        who=who,
        starts=starts,
        ends=ends,
        present=np.asarray(here * (group.count / len(places)), np.float64),
    )


def _periods(fleet: Fleet, number: int, places: Integers, until: float) -> tuple[Integers, Floats, Floats]:
    """The periods of some clients of a group that begin before a time, cut there."""
    group = fleet.groups[number]
    pattern = group.presence(group.timing)
    streams = pattern.streams(seeds.key(fleet.seed, "availability", group.name), group.count)[places]
    known, since, who = np.zeros(len(places), np.int64), np.zeros(len(places)), np.arange(len(places))
    found: list[tuple[Integers, Floats, Floats]] = []
    last, count = min(until, group.leave), 0
    while len(who):
        start, end, known = pattern.following(streams[who], known, since)
        going = start < last
        who, start, end, known = who[going], start[going], end[going], known[going]
        begin, stop, since = np.maximum(start, group.join), np.minimum(end, last), end
        some = begin < stop
        found.append((who[some], begin[some], stop[some]))
        count += len(who)
        if count > _PERIODS:
            raise InputError(f"group {group.name!r} comes and goes too often up to {until:g} s: look at less (--until)")
    whose, starts, ends = (np.concatenate(each) for each in zip(*found, strict=True))
    return whose, starts, ends
