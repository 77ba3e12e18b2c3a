"""When a client is present: its periods of virtual time, in seconds from 0."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairlag.core import seeds
from fairlag.core.types import Floats, Integers
from fairlag.errors import InputError
from fairlag.fleet import delay, recorded
from fairlag.fleet.delay import Delay
from fairlag.fleet.pattern import Availability, Pattern, Period, Periods, Streams
from fairlag.fleet.table import opening
from fairlag.text.calls import Call, build, read

__all__ = [
    "AVAILABILITIES",
    "FILES",
    "Alternating",
    "Always",
    "Availability",
    "Daily",
    "Period",
    "Returning",
    "between",
    "parse",
]

_HOUR = 3600.0
_DAY = 24.0


@dataclass(frozen=True, slots=True)
class Always(Pattern):
    """``always``: present from the beginning, without end.

    >>> list(Always().periods(stream=0))
    [(0.0, inf)]
    """

    def following(self, streams: Streams, known: Integers, since: Floats) -> Periods:
        """One period."""
        return np.where(known == 0, 0.0, math.inf), np.full(len(known), math.inf), known + 1

    @property
    def duty(self) -> float:
        """1."""
        return 1.0


@dataclass(frozen=True, slots=True)
class Alternating(Pattern):
    """``alternating(on, off)``: present for a time drawn from on, then away for a time drawn from off, and so on.

    Both are delays, in seconds. A client is present at time 0 with probability mean of on / (mean of on + mean of off),
    and its first time on or off has its full length. So presence is stationary from the start if both are exponential,
    otherwise in the long run.

    >>> list(between(Alternating(60, 30).periods(stream=0), join=0, leave=200))
    [(0.0, 60.0), (90.0, 150.0), (180.0, 200)]
    """

    on: Delay
    off: Delay

    def __post_init__(self) -> None:
        """Accepts a number as a constant delay."""
        object.__setattr__(self, "on", delay.parse(self.on))
        object.__setattr__(self, "off", delay.parse(self.off))

    def following(self, streams: Streams, known: Integers, since: Floats) -> Periods:
        """Draw 0 of a stream decides whether the client begins on or off; draw n gives the n-th length."""
        begins_on = (known == 0) & (seeds.uniforms_at(streams, np.zeros_like(known)) < self.duty)
        away = self.off.quantile(seeds.uniforms_at(streams, known + 1))
        start = since + np.where(begins_on, 0.0, away)
        known = known + np.where(begins_on, 1, 2)
        until = start + self.on.quantile(seeds.uniforms_at(streams, known))
        empty = np.flatnonzero(until <= start)
        if len(empty):
            start[empty], until[empty], known[empty] = self.following(streams[empty], known[empty], until[empty])
        return start, until, known

    @property
    def duty(self) -> float:
        """Mean of on / (mean of on + mean of off)."""
        return self.on.mean / (self.on.mean + self.off.mean)


@dataclass(frozen=True, slots=True)
class Returning(Pattern):
    """Present from the beginning for a time, then away for a time, and so on: the presence of the timing ``rejoin``.

    >>> list(between(Returning(100, 20).periods(stream=0), join=0, leave=250))
    [(0.0, 100.0), (120.0, 220.0), (240.0, 250)]
    """

    stay: float
    away: float

    def following(self, streams: Streams, known: Integers, since: Floats) -> Periods:
        """``known`` is the number of the period."""
        start: Floats = known.astype(np.float64) * (self.stay + self.away)
        return start, start + self.stay, known + 1

    @property
    def duty(self) -> float:
        """Stay / (stay + away)."""
        return self.stay / (self.stay + self.away)


@dataclass(frozen=True, slots=True)
class Daily(Pattern):
    """``daily(start, end, jitter)``: present between two hours of every day of 24 hours; time 0 is midnight.

    An end before the start is on the next day. Each client's hours are shifted by its own jitter (2u − 1) hours, that
    is, uniformly within ± jitter; without jitter, all clients join and leave together.

    >>> list(between(Daily(22, 6).periods(stream=0), join=0, leave=86_400))
    [(0.0, 21600.0), (79200.0, 86400)]
    """

    start: float
    end: float
    jitter: float = 0.0

    def __post_init__(self) -> None:
        """Refuses hours outside the day, and equal hours."""
        self._settle("start", "end", most=_DAY)
        self._settle("jitter", most=_DAY / 2)
        if self._length() == 0:
            raise InputError(f"{self} starts and ends at the same hour; write always, or two different hours")

    def following(self, streams: Streams, known: Integers, since: Floats) -> Periods:
        """Draw 0 of a stream is the u of the client's shift; ``known`` is the day of the next period, from −1 on."""
        length = self._length()
        if length == _DAY:
            return Always().following(streams, known, since)
        shift = self.jitter * (2 * seeds.uniforms_at(streams, np.zeros_like(known)) - 1)
        start = (self.start + shift) % _DAY
        known = known + ((known == 0) & (start - _DAY + length <= 0))
        midnight = (known - 1) * _DAY
        return np.maximum(0.0, midnight + start) * _HOUR, (midnight + start + length) * _HOUR, known + 1

    @property
    def duty(self) -> float:
        """Hours from start to end / 24."""
        return self._length() / _DAY

    def _length(self) -> float:
        return _DAY if (self.start, self.end) == (0, _DAY) else (self.end - self.start) % _DAY


def between(periods: Iterable[Period], join: float, leave: float) -> Iterator[Period]:
    """The part of the periods within [join, leave), for a client that joins late or leaves early.

    >>> list(between([(0, 10), (20, 30), (40, 50)], join=5, leave=25))
    [(5, 10), (20, 25)]
    """
    for start, end in periods:
        if start >= leave:
            return
        if max(start, join) < min(end, leave):
            yield max(start, join), min(end, leave)


def parse(text: str | Availability, folder: Path | None = None) -> Availability:
    """The availability that a text describes; the paths of files in it are relative to ``folder``.

    >>> str(parse("alternating(exponential(600), off=exponential(300))"))
    'alternating(exponential(600), exponential(300))'
    >>> parse("daily(8, 25)")
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: end of daily is 25, but must be a number from 0 to 24
    """
    if isinstance(text, Availability):
        return text
    value = read(text, "availability", "daily(8, 20)") if isinstance(text, str) else text
    if not isinstance(value, Call):
        raise InputError(f"the availability {text!r} cannot be read; write for example daily(8, 20)")
    makers = AVAILABILITIES | {name: opening(maker, folder, "availability") for name, maker in FILES.items()}
    return build(value, makers, "availability", nested=lambda inner: delay.from_call(inner, folder))


FILES: Mapping[str, Callable[..., Availability]] = {"file": recorded.file, "fedscale": recorded.from_fedscale}
AVAILABILITIES: dict[str, Callable[..., Availability]] = {
    "always": Always,
    "alternating": Alternating,
    "daily": Daily,
    **FILES,
}
