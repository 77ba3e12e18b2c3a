"""How a real fleet is spoken to: how often it is looked at, how long failures keep a node away, and the like."""

from dataclasses import dataclass
from math import inf

from fairlag.errors import InputError

_WHOLE = ("at_least", "queued", "threads")


@dataclass(frozen=True, slots=True)
class Options:
    """How a fleet is spoken to; all times are in seconds.

    >>> Options(poll=0)
    Traceback (most recent call last):
    fairlag.errors.InputError: poll is 0, it must be a positive number of seconds
    """

    at_least: int = 1
    """With how many nodes training begins; whoever comes later joins it."""
    queued: int = 1
    """How many tasks each node has at once: with 2, the next one waits at the node when one is done."""
    by_key: bool = False
    """Are nodes known by their keys, which a SuperLink with node authentication has checked?"""
    poll: float = 0.5
    """How often a reply is asked for."""
    look: float = 2.0
    """How often the nodes are looked at."""
    ttl: float | None = None
    """How long a task may take before Flower gives it up; None: as long as Flower's messages live by default."""
    backoff: float = 1.0
    """How long a node is given nothing after a failure; twice as long after each further one in a row."""
    longest_backoff: float = 300.0
    threads: int = 8
    """How many messages are sent or asked for at the same time."""

    def __post_init__(self) -> None:
        for name in _WHOLE:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name} is {value!r}, it must be a whole number of at least 1")
        if not isinstance(self.by_key, bool):
            raise InputError(f"by_key is {self.by_key!r}, it must be True or False")
        for name in ("poll", "look", "backoff", "longest_backoff"):
            _check_seconds(name, getattr(self, name))
        if self.ttl is not None:
            _check_seconds("ttl", self.ttl)

    def wait(self, failures: int) -> float:
        """How long a node is given nothing after so many failures in a row.

        >>> [Options(backoff=2, longest_backoff=10).wait(failures) for failures in (1, 2, 3, 4, 5000)]
        [2.0, 4.0, 8.0, 10.0, 10.0]
        """
        return float(min(self.backoff * 2.0 ** min(failures - 1, 60), self.longest_backoff))


def _check_seconds(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < inf:
        raise InputError(f"{name} is {value!r}, it must be a positive number of seconds")
