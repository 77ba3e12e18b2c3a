"""How a real fleet is spoken to: how often it is looked at, how long failures keep a node away, and the like."""

from dataclasses import dataclass
from math import inf

from fairlag.errors import InputError

_WHOLE = ("at_least", "queued", "threads", "max_clients")
_FACTORS = {"max_norm": 1.0, "max_growth": 1.0, "max_loss": 0.0, "steps_within": 1.0}
"""What must be a number of at least so much."""
_OPTIONAL = ("max_norm", "max_growth")
"""Which of them may be None."""


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
    max_norm: float | None = 10.0
    """An update that is longer than this many times the usual one is refused; None: none is."""
    max_growth: float | None = 10.0
    """An aggregation that makes the model more than this many times as large, or not finite, is refused as a whole.
    None: only a model that is not finite is not published, and it ends the run."""
    max_examples: int | None = None
    """A client counts for at most this many training examples; None: as many as the experiment's largest has."""
    max_loss: float = 100.0
    """A loss that a client reports counts for at most this."""
    steps_within: float = 2.0
    """By which factor the steps that a client reports may differ from those that it was asked for, and still count."""
    max_clients: int = 10_000
    """How many clients there may ever be, under whatever names."""

    def __post_init__(self) -> None:
        for name in _WHOLE + (() if self.max_examples is None else ("max_examples",)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name} is {value!r}, it must be a whole number of at least 1")
        if not isinstance(self.by_key, bool):
            raise InputError(f"by_key is {self.by_key!r}, it must be True or False")
        for name in ("poll", "look", "backoff", "longest_backoff"):
            _check_seconds(name, getattr(self, name))
        if self.ttl is not None:
            _check_seconds("ttl", self.ttl)
        for name, least in _FACTORS.items():
            value = getattr(self, name)
            if not (value is None and name in _OPTIONAL) and not _is_number(value, least):
                none = ", or None for no bound" if name in _OPTIONAL else ""
                raise InputError(f"{name} is {value!r}, it must be a number of at least {least:g}{none}")

    def wait(self, failures: int) -> float:
        """How long a node is given nothing after so many failures in a row.

        >>> [Options(backoff=2, longest_backoff=10).wait(failures) for failures in (1, 2, 3, 4, 5000)]
        [2.0, 4.0, 8.0, 10.0, 10.0]
        """
        return float(min(self.backoff * 2.0 ** min(failures - 1, 60), self.longest_backoff))


def _is_number(value: object, least: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value < inf


def _check_seconds(name: str, value: object) -> None:
    if not (_is_number(value, 0.0) and value):
        raise InputError(f"{name} is {value!r}, it must be a positive number of seconds")
