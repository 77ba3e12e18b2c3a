"""The fleet's time while it really passes, and how late updates arrive by it."""

from dataclasses import asdict, dataclass
from math import isfinite
from threading import TIMEOUT_MAX
from time import monotonic

from fairlag.core.state import State, take
from fairlag.errors import InputError

_MOMENT = 0.001
"""The shortest wait in seconds while the clock stands still."""


class Clock:
    """The fleet's time. Inside a `with` it runs, `speed` times as fast as the monotonic clock; outside it stands still.

    >>> clock = Clock(speed=100)
    >>> clock.set(7.0)
    >>> clock.time, clock.seconds_until(5.0), clock.seconds_until(107.0)
    (7.0, 0.0, 1.0)
    """

    def __init__(self, speed: float) -> None:
        if not (speed > 0 and isfinite(speed)):
            raise InputError(f"the speed is {speed}, it must be a positive number (100 lets a second pass as 100)")
        self._speed = speed
        self._last: tuple[float, float | None] = 0.0, None
        """The time when it was last set, and, while it runs, when that was. One tuple, because many threads read it."""

    def __enter__(self) -> None:
        self._last = self.time, monotonic()

    def __exit__(self, *error: object) -> None:
        self.set(self.time)

    def set(self, time: float) -> None:
        """It is this time, and stands still."""
        self._last = time, None

    @property
    def time(self) -> float:
        """Now."""
        time, began = self._last
        return time if began is None else time + (monotonic() - began) * self._speed

    def seconds_until(self, time: float) -> float:
        """How long to wait until a time of the fleet, before asking again; 0 once it has come."""
        if (left := (time - self.time) / self._speed) <= 0:
            return 0.0
        return min(max(left, _MOMENT if self._last[1] is None else 0.0), TIMEOUT_MAX)


@dataclass(slots=True)
class Lateness:
    """How late updates arrived, in seconds of the fleet: threads wake late, and computing takes time.

    >>> lateness = Lateness()
    >>> lateness.note(0.5, duration=4.0), lateness.note(0.0, duration=6.0)
    (None, None)
    >>> lateness.facts()
    {'lateness': {'mean': 0.25, 'most': 0.5, 'share': 0.05}}
    """

    updates: int = 0
    total: float = 0.0
    most: float = 0.0
    durations: float = 0.0

    def note(self, late: float, *, duration: float) -> None:
        """Notes an update of a task that was to take `duration`."""
        self.updates += 1
        self.total += late
        self.most = max(self.most, late)
        self.durations += duration

    def facts(self) -> dict[str, object]:
        """What a run records: the mean, the largest, and the sum as a share of the durations of the tasks."""
        mean = self.total / max(self.updates, 1)
        share = self.total / self.durations if self.durations else 0.0
        return {"lateness": {"mean": mean, "most": self.most, "share": share}}

    def state(self) -> State:
        """The sums so far."""
        return asdict(self)

    def restore(self, state: State) -> None:
        """Continues from these sums."""
        for name in asdict(self):
            setattr(self, name, take(state, name, float))
