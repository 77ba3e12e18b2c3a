"""The fleet's time while it really passes, and how late updates arrive by it."""

from dataclasses import asdict, dataclass
from math import isfinite
from threading import TIMEOUT_MAX
from time import monotonic

from fairlag.core.state import State, take
from fairlag.errors import InputError

_MOMENT = 0.001
"""How many seconds a sleeper waits at least while the clock stands."""


class Clock:
    """The fleet's time: `speed` times as fast as the monotonic clock while it runs, which it does in one `with`."""

    def __init__(self, speed: float) -> None:
        if not (speed > 0 and isfinite(speed)):
            raise InputError(f"the speed is {speed}, it must be a positive number (100 lets a second pass as 100)")
        self._speed = speed
        self._last: tuple[float, float | None] = 0.0, None
        """The time when it was last set, and when that was if it runs: one tuple, as many threads read it."""

    def __enter__(self) -> None:
        self._last = self.time, monotonic()

    def __exit__(self, *error: object) -> None:
        self.set(self.time)

    def set(self, time: float) -> None:
        """It stands at that time."""
        self._last = time, None

    @property
    def time(self) -> float:
        """Now."""
        time, began = self._last
        return time if began is None else time + (monotonic() - began) * self._speed

    def seconds_until(self, time: float) -> float:
        """How long to wait here, and then to ask again, until a time of the fleet: 0 if it has come.

        Not longer than the system can wait; and while the clock stands, a moment at least.
        """
        if (left := (time - self.time) / self._speed) <= 0:
            return 0.0
        return min(max(left, _MOMENT if self._last[1] is None else 0.0), TIMEOUT_MAX)


@dataclass(slots=True)
class Lateness:
    """How much later than due updates arrived, in seconds of the fleet: sleepers wake late, and computing takes time.

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
        """One more update arrived, of a task that was to take so long."""
        self.updates += 1
        self.total += late
        self.most = max(self.most, late)
        self.durations += duration

    def facts(self) -> dict[str, object]:
        """What the record of a run says: per update, at the most, and as a share of what tasks were to take."""
        mean = self.total / max(self.updates, 1)
        share = self.total / self.durations if self.durations else 0.0
        return {"lateness": {"mean": mean, "most": self.most, "share": share}}

    def state(self) -> State:
        """The sums so far."""
        return asdict(self)

    def restore(self, state: State) -> None:
        """Counts on from there."""
        for name in asdict(self):
            setattr(self, name, take(state, name, float))
