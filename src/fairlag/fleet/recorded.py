"""Recorded presence: who was there when, by client, read from a file and repeated if it has a period."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from fairlag.core.types import Floats, Integers
from fairlag.errors import InputError, nearest
from fairlag.fleet import fedscale
from fairlag.fleet.pattern import Pattern, Period, Periods, Streams
from fairlag.fleet.table import Source, rows
from fairlag.limits import shown
from fairlag.text.calls import number, write

_NOUN = "availability"
_COLUMNS = ("client", "start", "end")
_READ = 8
"""How many files are kept in memory: an experiment is checked again for each of its runs."""


@dataclass(frozen=True, slots=True, eq=False)
class Recorded(Pattern):
    """The recorded periods of the clients of a file, of which those of a group are chosen.

    The n-th period of a client with m periods in a cycle of T seconds begins at ⌊n / m⌋ T + its start of n mod m.

    >>> from itertools import islice
    >>> from pathlib import Path
    >>> there = recorded("x", Source("x.csv", Path(), ""), {"a": ([(0, 5), (8, 10)], 10)})
    >>> list(islice(there.periods(stream=0), 3))
    [(0.0, 5.0), (8.0, 15.0), (18.0, 25.0)]
    """

    text: str
    """How it was written."""
    source: Source
    names: tuple[str, ...]
    """The clients of the file, in the order in which they first appear."""
    first: Integers
    """Per client of the file: the place of its first period; then the number of all periods."""
    starts: Floats
    ends: Floats
    """Per period, in seconds. The last period of a client ends after its cycle if it continues in the next one."""
    cycles: Floats
    """Per client of the file: after how many seconds its periods repeat; infinity for never."""
    chosen: Integers | None = None
    """Per client of a group: which client of the file it is; None before a group has chosen."""

    def __str__(self) -> str:
        return self.text

    def of(self, group: str, count: int, names: Sequence[str] | None) -> "Recorded":
        """With the clients of a group: those with these names, or the first ones if they have no names."""
        if names is None:
            if count > len(self.names):
                raise InputError(
                    f"{self.source.written!r} has {len(self.names):,} clients, but group {group!r} has {count:,}: "
                    "give the group at most as many clients as the file has"
                )
            return replace(self, chosen=np.arange(count))
        places = {name: place for place, name in enumerate(self.names)}
        if missing := next((name for name in names if name not in places), None):
            raise InputError(
                f"client {shown(missing)} of group {group!r} is not in {self.source.written!r}: "
                f"{nearest(missing, self.names[:1000])}"
            )
        return replace(self, chosen=np.array([places[name] for name in names], np.int64))

    def at(self, places: Sequence[int]) -> "Recorded":
        """With the clients at these places of the group."""
        return replace(self, chosen=self._chosen[list(places)])

    def streams(self, key: int, count: int) -> Streams:
        """Not keys but the clients of the file: nothing is drawn."""
        return self._chosen[:count].astype(np.uint64)

    def stream(self, key: int, place: int) -> int:
        """The client of the file that the client at this place is."""
        return int(self._chosen[place])

    def following(self, streams: Streams, known: Integers, since: Floats) -> Periods:
        """``known`` is the number of the next period; the one before the first is still running if it wraps around."""
        who = streams.astype(np.int64)
        first, last, cycle = self.first[who], self.first[who + 1] - 1, self.cycles[who]
        number = known - (self.ends[last] > cycle)
        turn, place = np.divmod(number, np.maximum(last - first + 1, 1))
        with np.errstate(invalid="ignore"):  # 0 times infinity
            shift = np.where(turn == 0, 0.0, turn * cycle)
        shift[last < first] = math.inf
        at = np.minimum(first + place, len(self.starts) - 1)
        return np.maximum(shift + self.starts[at], since), shift + self.ends[at], known + 1

    @property
    def duty(self) -> float:
        """The mean over the chosen clients of the time present per cycle; without cycles 0, as all leave for good."""
        sums = np.concatenate([[0.0], np.cumsum(np.where(np.isinf(self.ends), 0.0, self.ends - self.starts))])
        parts = (sums[self.first[1:]] - sums[self.first[:-1]]) / self.cycles
        lasting = np.zeros(len(self.names), np.bool_)
        some = self.first[1:] > self.first[:-1]
        lasting[some] = np.isinf(self.ends[self.first[1:][some] - 1])
        return float(np.where(lasting, 1.0, parts)[self._chosen].mean())

    @property
    def _chosen(self) -> Integers:
        return np.arange(len(self.names)) if self.chosen is None else self.chosen


def file(source: Source, period: float = math.inf) -> Recorded:
    """``file("presence.csv", period)``: recorded periods of presence, one per line, in seconds from 0.
    The CSV file has the columns client, start and end. With a period, they repeat after that many seconds."""
    if period != math.inf:
        period = number(period, "period of file", positive=True)
    repeats = "" if period == math.inf else f", {write(period)}"
    return _from_csv(f"file({source.written!r}{repeats})", source, period)


def from_fedscale(source: Source) -> Recorded:
    """``fedscale("client_behave_trace")``: FedScale's recorded availability of phones.
    Each client's periods repeat after its own ``finish_time``."""
    return _from_fedscale(f"fedscale({source.written!r})", source)


@lru_cache(_READ)
def _from_csv(text: str, source: Source, period: float) -> Recorded:
    found: dict[str, list[tuple[float, float, str]]] = {}
    for row in rows(source, _NOUN, _COLUMNS):
        start, end, name = row.number("start"), row.number("end"), row.cells["client"]
        if not name:
            raise InputError(f"client in {row.where} is empty, it must be a name")
        if end <= start:
            raise InputError(f"{row.where} is from {write(start)} to {write(end)}, it must end after it starts")
        if end > period:
            raise InputError(f"{row.where} ends at {write(end)}, it must end within the period of {write(period)}")
        found.setdefault(name, []).append((start, end, row.where))
    if not found:
        raise InputError(f"the availability {source.written!r} has no rows; write client,start,end, then one per line")
    for name, mine in found.items():
        mine.sort()
        for (start, end, where), (later, until, there) in pairwise(mine):
            if later < end:
                raise InputError(
                    f"{there} has client {shown(name)} from {write(later)} to {write(until)}, "
                    f"which overlaps {write(start)} to {write(end)} in {where}"
                )
    periods = {name: ([(start, end) for start, end, _ in mine], period) for name, mine in found.items()}
    return recorded(text, source, periods)


@lru_cache(_READ)
def _from_fedscale(text: str, source: Source) -> Recorded:
    return recorded(text, source, fedscale.behaviour(source))


def recorded(text: str, source: Source, periods: Mapping[str, tuple[Sequence[Period], float]]) -> Recorded:
    """From each client's periods and the length of its cycle, within which they lie."""
    cyclic = [cycle(*each) for each in periods.values()]
    edges = np.array([edge for mine, _ in cyclic for edge in mine], np.float64).reshape(-1, 2)
    if not len(edges):
        raise InputError(f"no client of the availability {source.written!r} is ever present")
    return Recorded(
        text=text,
        source=source,
        names=tuple(periods),
        first=np.cumsum([0, *(len(mine) for mine, _ in cyclic)]),
        starts=edges[:, 0].copy(),
        ends=edges[:, 1].copy(),
        cycles=np.array([length for _, length in cyclic]),
    )


def cycle(periods: Iterable[Period], length: float) -> tuple[list[Period], float]:
    """A client's periods in order and joined where they touch, also around the end of its cycle, and the cycle.

    >>> cycle([(6, 10), (0, 2), (4, 6)], 10), cycle([(0, 10)], 10), cycle([(0, 10)], math.inf)
    (([(4, 12)], 10), ([(0, inf)], inf), ([(0, 10)], inf))
    """
    joined: list[Period] = []
    for start, end in sorted(periods):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    if joined == [(0, length)]:
        return [(0, math.inf)], math.inf
    if joined and joined[0][0] == 0 and joined[-1][1] == length:
        (_, end), *rest = joined
        joined = [*rest[:-1], (rest[-1][0], length + end)]
    return joined, length
