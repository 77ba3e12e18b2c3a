"""How clients time their work: truthfully, as fast as they can, or slower by a plan."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, Protocol, runtime_checkable

from fairlag.errors import InputError
from fairlag.text.calls import Call, Written, build, number, read, write

_EXAMPLE = "throttle(8)"


class Pieces(NamedTuple):
    """A factor that changes with the part of the run that is over, or with time: one up to each end, and one after."""

    ends: tuple[float, ...]
    factors: tuple[float, ...]
    by_part: bool = True
    """Are the ends parts of the run, from 0 to 1? Otherwise they are seconds."""
    period: float = inf
    """The length after which the pieces repeat."""

    def factor(self, time: float, part: float) -> float:
        """The factor on the duration of a task that begins now."""
        now = part if self.by_part else time
        return self.factors[bisect_right(self.ends, now if self.period == inf else now % self.period)]


@runtime_checkable
class Timing(Protocol):
    """The plan of one client; ``str`` gives the text that :func:`parse` reads."""

    @property
    def pieces(self) -> Pieces | None:
        """By which factor it slows down, and when; None for never."""

    @property
    def leaves(self) -> tuple[float, float] | None:
        """After how many seconds it leaves each time, and for how long; None for never."""


@dataclass(frozen=True, slots=True)
class _Plan(Written):
    """Base of plans: never slows down and never leaves."""

    @property
    def pieces(self) -> Pieces | None:
        return None

    @property
    def leaves(self) -> tuple[float, float] | None:
        return None


@dataclass(frozen=True, slots=True)
class Truthful(_Plan):
    """``truthful``: always as fast as it can."""


@dataclass(frozen=True, slots=True)
class Throttle(_Plan):
    """``throttle(factor)``: every task takes factor times as long.

    >>> Throttle(8).pieces.factor(time=0.0, part=0.5)
    8.0
    """

    factor: float

    def __post_init__(self) -> None:
        """Refuses a factor that is not positive."""
        _settle(self, "factor")

    @property
    def pieces(self) -> Pieces:
        """One factor throughout."""
        return Pieces((), (self.factor,))


@dataclass(frozen=True, slots=True)
class Late(_Plan):
    """``late(factor, until)``: slower at first, truthful afterwards; until is a part of the run (below 1) or a time.

    >>> plan = Late(50, until=0.1).pieces
    >>> plan.factor(time=900.0, part=0.05), plan.factor(time=900.0, part=0.1)
    (50.0, 1.0)
    """

    factor: float
    until: float

    def __post_init__(self) -> None:
        """Refuses numbers that are not positive."""
        _settle(self, "factor", "until")

    @property
    def pieces(self) -> Pieces:
        """One factor, then 1."""
        return Pieces((self.until,), (self.factor, 1.0), by_part=self.until < 1)


@dataclass(frozen=True, slots=True)
class Alternate(_Plan):
    """``alternate(factor, slow, fast)``: slower for slow seconds, then truthful for fast seconds, and so on.

    >>> plan = Alternate(20, 200, 100).pieces
    >>> [plan.factor(time=time, part=0.0) for time in (0.0, 199.0, 200.0, 300.0)]
    [20.0, 20.0, 1.0, 20.0]
    """

    factor: float
    slow: float
    fast: float

    def __post_init__(self) -> None:
        """Refuses numbers that are not positive."""
        _settle(self, "factor", "slow", "fast")

    @property
    def pieces(self) -> Pieces:
        """Two alternating factors."""
        return Pieces((self.slow,), (self.factor, 1.0), by_part=False, period=self.slow + self.fast)


@dataclass(frozen=True, slots=True)
class Schedule(_Plan):
    """``schedule(factor, factor, …)``: one factor per part of the run, all parts of equal length.

    >>> plan = Schedule((50, 1, 4, 1)).pieces
    >>> [plan.factor(time=0.0, part=part) for part in (0.0, 0.25, 0.6, 1.0)]
    [50.0, 1.0, 4.0, 1.0]
    """

    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuses an empty schedule, and a factor that is not positive."""
        if not self.factors:
            raise InputError("a schedule needs at least one factor; write for example schedule(50, 1, 4, 1)")
        checked = tuple(number(factor, "a factor of schedule", positive=True) for factor in self.factors)
        object.__setattr__(self, "factors", checked)

    def __str__(self) -> str:
        return f"schedule({', '.join(map(write, self.factors))})"

    @property
    def pieces(self) -> Pieces:
        """Equal parts."""
        count = len(self.factors)
        return Pieces(tuple(place / count for place in range(1, count)), self.factors)


@dataclass(frozen=True, slots=True)
class Rejoin(_Plan):
    """``rejoin(every, away)``: leaves after every seconds, comes back after away seconds, and so on.

    >>> Rejoin(every=100, away=20).leaves
    (100.0, 20.0)
    """

    every: float
    away: float

    def __post_init__(self) -> None:
        """Refuses numbers that are not positive."""
        _settle(self, "every", "away")

    @property
    def leaves(self) -> tuple[float, float]:
        """When it leaves, and for how long."""
        return self.every, self.away


def _settle(plan: Any, *names: str) -> None:
    for name in names:
        what = f"{name} of {type(plan).__name__.lower()}"
        object.__setattr__(plan, name, number(getattr(plan, name), what, positive=True))


def parse(text: str | Timing) -> Timing:
    """The plan that a text describes.

    >>> str(parse("late(50, until=0.1)"))
    'late(50, 0.1)'
    >>> parse("throttle(0)")
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: factor of throttle is 0, but must be a finite number above 0
    """
    if isinstance(text, Timing):
        return text
    value = read(text, "timing", _EXAMPLE) if isinstance(text, str) else text
    if not isinstance(value, Call):
        raise InputError(f"the timing {text!r} cannot be read; write for example {_EXAMPLE}")
    return build(value, TIMINGS, "timing", nested=_nothing_nested)


def _schedule(*factors: float) -> Schedule:
    """``schedule(factor, factor, …)``: one factor per part of the run, all parts of equal length."""
    return Schedule(factors)


def _nothing_nested(inner: Call) -> object:
    raise InputError(f"{inner.text} in a timing must be a number; write for example {_EXAMPLE}")


TIMINGS: Mapping[str, Callable[..., Timing]] = {
    "truthful": Truthful,
    "throttle": Throttle,
    "late": Late,
    "alternate": Alternate,
    "schedule": _schedule,
    "rejoin": Rejoin,
}
