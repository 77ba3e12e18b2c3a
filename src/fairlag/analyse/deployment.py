"""What a strategy would mean for a deployed fleet: its speed, work and traffic, and when influence has settled."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlag.analyse.trial import Observation
from fairlag.core.types import Floats
from fairlag.fleet.clients import Fleet

MARKS = 100
"""The approximate number of times that influence is measured during a run, to see when it has settled."""

SETTLED = 0.02
"""Influence has settled once each group's share of all weight so far is within this distance of its final share."""

_HOUR, _DAY, _MEGABYTE = 3600.0, 86400.0, 1e6


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a device and the server would have to do, if a second of virtual time is a real second."""

    versions_per_hour: float
    updates_per_day: float
    """Per device."""
    megabytes_per_day: float | None
    """Per device, both ways; None without `model_bytes`."""
    lost: float
    """The share of finished tasks that are in no version, because they were lost, refused or cancelled."""
    waiting: float
    """The share of their time present that devices spend without training."""
    settled: float | None
    """The time from which each group's share of all weight stays within SETTLED of its final share. None if that is not
    in the first half of the run, because the final share is then not known."""


@dataclass(frozen=True, slots=True)
class GroupDeployment:
    """What a device of one group would have to do."""

    updates_per_day: float
    megabytes_per_day: float | None


def deployment(fleet: Fleet, observations: Sequence[Observation]) -> Deployment:
    """What a device and the server would have to do, averaged over seeds."""
    time = sum(each.virtual_time for each in observations)
    merged = sum(int(each.updates.sum()) for each in observations)
    unmerged = sum(int(each.unmerged.sum()) for each in observations)
    present = sum(float(each.presence.sum()) for each in observations)
    work = sum(each.busy + each.wasted + each.under_way for each in observations)
    device = _by_device(fleet, observations, np.ones(fleet.clients, np.bool_))
    return Deployment(
        versions_per_hour=_rate(sum(each.aggregations for each in observations), time, _HOUR),
        updates_per_day=device.updates_per_day,
        megabytes_per_day=device.megabytes_per_day,
        lost=unmerged / (merged + unmerged) if unmerged else 0.0,
        waiting=max(0.0, 1 - work / present) if present else 0.0,
        settled=settled([each.marks for each in observations]),
    )


def by_group(fleet: Fleet, observations: Sequence[Observation]) -> list[GroupDeployment]:
    """What a device of each group would have to do, averaged over devices and seeds."""
    return [_by_device(fleet, observations, fleet.group_of == number) for number in range(len(fleet.groups))]


def _by_device(fleet: Fleet, observations: Sequence[Observation], mine: Floats) -> GroupDeployment:
    time = sum(each.virtual_time for each in observations) * int(mine.sum())
    merged = sum(int(each.updates[mine].sum()) for each in observations)
    unmerged = sum(int(each.unmerged[mine].sum()) for each in observations)
    uploaded = sum(int(each.uploaded[mine].sum()) for each in observations)
    sent = fleet.model_bytes / _MEGABYTE * (merged + unmerged + merged + uploaded)
    return GroupDeployment(_rate(merged, time, _DAY), _rate(sent, time, _DAY) if fleet.model_bytes else None)


def _rate(count: float, time: float, unit: float) -> float:
    return count * unit / time if time else 0.0


def settled(marks: Sequence[Floats]) -> float | None:
    """The time from which each group's share of all weight so far stays within SETTLED of its final share.

    `marks` has one array per seed, with the rows of :class:`fairlag.analyse.tally.Tally`; the shares are averaged over
    seeds. In this example the first group has all of the weight until 2.0, and then half of it until 100.0. Its share
    ends at 0.51, and stays within 0.02 of that from 34.0 on.

    >>> times = np.arange(1.0, 101.0)
    >>> first = np.where(times <= 2, times, 2 + (times - 2) / 2)
    >>> settled([np.column_stack([times, first, first, first, times - first])])
    34.0
    """
    rows = min(map(len, marks))
    if rows < 2:
        return None
    weights = np.mean([each[:rows, 3:] / each[:rows, 3:].sum(axis=1, keepdims=True) for each in marks], axis=0)
    times = np.mean([each[:rows, 0] for each in marks], axis=0)
    apart = np.flatnonzero(np.abs(weights - weights[-1]).max(axis=1) > SETTLED)
    place = int(apart[-1]) + 1 if len(apart) else 0
    return float(times[place]) if times[place] <= times[-1] / 2 else None
