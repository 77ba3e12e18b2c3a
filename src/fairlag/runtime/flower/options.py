"""Options of a deployment: who may take part, how often nodes are checked, how long they wait, bounds, its keeper."""

from dataclasses import dataclass
from math import inf
from pathlib import Path

from fairlag.errors import InputError
from fairlag.runtime.flower.gate import Strikes

_WHOLE = ("at_least", "queued", "threads", "max_clients")
_FACTORS = {"max_norm": 1.0, "max_growth": 1.0, "max_loss": 0.0, "steps_within": 1.0}
"""The options that must be numbers, with their lower bounds."""
_OPTIONAL = ("max_norm", "max_growth")
"""Those that may be None."""


@dataclass(frozen=True, slots=True)
class KeeperAddress:
    """Where the mask keeper of a deployment listens, and the files with the keys that the server needs.

    >>> KeeperAddress("127.0.0.1:9800", key="keys/server.key", keeper="keys/keeper.pub").listen
    '127.0.0.1:9800'
    """

    listen: str
    """Its host and port."""
    key: str | Path
    """The server's own private key, server.key."""
    keeper: str | Path
    """The keeper's certificate, keeper.pub: no other keeper is accepted."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a deployment; all times are in seconds.

    >>> Options(poll=0)
    Traceback (most recent call last):
    fairlag.errors.InputError: poll is 0, it must be a positive number of seconds
    """

    at_least: int = 1
    """The number of nodes with which training starts; later nodes join it."""
    queued: int = 1
    """How many tasks each node has at once: with 2, the next one is already at the node when one is done."""
    by_key: bool = False
    """Are nodes identified by their keys? It also says that the SuperLink admits only keys that you registered."""
    allow: str | Path | None = None
    """A file with the public keys of the nodes that may take part, one line per node; they are identified by them."""
    insecure: bool = False
    """May anyone take part who can reach the SuperLink?"""
    strikes: Strikes | None = None
    """A rule that puts nodes into quarantine; with None, only people do."""
    poll: float = 0.5
    """Seconds between two requests for a reply."""
    look: float = 2.0
    """Seconds between two checks of the nodes."""
    ttl: float | None = None
    """How long a task may take before Flower gives it up; None for Flower's default lifetime of messages."""
    backoff: float = 1.0
    """How long a node gets no task after a failure; twice as long after each further failure in a row."""
    longest_backoff: float = 300.0
    threads: int = 8
    """How many messages are sent, or requests for replies made, at the same time."""
    max_norm: float | None = 10.0
    """An update longer than this many times the usual length is refused; None for no bound."""
    max_growth: float | None = 10.0
    """An aggregation that makes the model more than this many times as large, or not finite, is refused as a whole.
    With None, only a model that is not finite is not published, and it ends the run."""
    max_examples: int | None = None
    """A client counts with at most this many training examples; None for the largest client of the experiment."""
    max_loss: float = 100.0
    """A reported loss counts as at most this."""
    steps_within: float = 2.0
    """The largest factor by which a client's reported steps may differ from those that it was asked for."""
    max_clients: int = 10_000
    """The most clients that there may ever be, by name."""

    def __post_init__(self) -> None:
        for name in _WHOLE + (() if self.max_examples is None else ("max_examples",)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name} is {value!r}, it must be a whole number of at least 1")
        for name in ("by_key", "insecure"):
            if not isinstance(value := getattr(self, name), bool):
                raise InputError(f"{name} is {value!r}, it must be True or False")
        if self.allow is not None and not isinstance(self.allow, str | Path):
            raise InputError(f"allow is {self.allow!r}, it must be the name of a file with public keys")
        if self.insecure and self.identified:
            said = "by_key" if self.by_key else "allow"
            raise InputError(f"insecure is True, but {said} asks for nodes with keys: leave out one of them")
        if self.strikes is not None and not isinstance(self.strikes, Strikes):
            raise InputError(f"strikes is {self.strikes!r}, it must be a fairlag.flower.Strikes")
        for name in ("poll", "look", "backoff", "longest_backoff"):
            _check_seconds(name, getattr(self, name))
        if self.ttl is not None:
            _check_seconds("ttl", self.ttl)
        for name, least in _FACTORS.items():
            value = getattr(self, name)
            if not (value is None and name in _OPTIONAL) and not _is_number(value, least):
                none = ", or None for no bound" if name in _OPTIONAL else ""
                raise InputError(f"{name} is {value!r}, it must be a number of at least {least:g}{none}")

    @property
    def identified(self) -> bool:
        """Are nodes identified by their keys?"""
        return self.by_key or self.allow is not None

    def wait(self, failures: int) -> float:
        """How long a node gets no task after this many failures in a row.

        >>> [Options(backoff=2, longest_backoff=10).wait(failures) for failures in (1, 2, 3, 4, 5000)]
        [2.0, 4.0, 8.0, 10.0, 10.0]
        """
        return float(min(self.backoff * 2.0 ** min(failures - 1, 60), self.longest_backoff))


def _is_number(value: object, least: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value < inf


def _check_seconds(name: str, value: object) -> None:
    if not (_is_number(value, 0.0) and value):
        raise InputError(f"{name} is {value!r}, it must be a positive number of seconds")
