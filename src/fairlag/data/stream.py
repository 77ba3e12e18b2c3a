"""How a client's data set grows with time: the kinds of stream, how they are written, and the order of arrival.

The number of examples at a time depends only on that time and on the client's random address, so every process gets
the same number, in any order of questions.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from fairlag.core import seeds
from fairlag.core.types import Floats, Integers
from fairlag.data.shares import Shares
from fairlag.errors import InputError
from fairlag.text.calls import Call, Written, build, number, read

__all__ = ["Linear", "Poisson", "Recorded", "Stream", "in_order_of_arrival", "parse"]

_EXAMPLE = "linear(start=0.1, per_second=0.001)"
NO_TIMES: Floats = np.empty(0)
_NEARLY = 5e-10
"""Added before rounding down, because 100 × 0.29 < 29: as if rounded to 9 digits first."""


@runtime_checkable
class Stream(Protocol):
    """How a client's examples arrive; ``str`` gives the text that :func:`parse` reads."""

    def visible(self, total: int, time: float, key: int, times: Floats = NO_TIMES) -> int:
        """How many of a client's ``total`` examples have arrived by a time: from 1 to all, never fewer than before.

        ``key`` is the client's random address: ``seeds.subkey(seeds.key(seed, "stream"), client)``. ``times`` is when
        its examples were recorded, in order; empty unless the stream is recorded.
        """

    def at_start(self, sizes: Integers, times: Floats = NO_TIMES) -> Integers:
        """How many examples each client has at time 0, given how many it will have in the end.

        ``times`` is when the examples were recorded, client after client; empty unless the stream is recorded.
        """

    @property
    def words(self) -> str:
        """One sentence: what a client has at the start and how fast it gets the rest."""


@dataclass(frozen=True, slots=True)
class _Growing(Written, ABC):
    """Base of streams that begin with a share of a client's examples and add a share of them each second."""

    start: float
    per_second: float
    _manner: ClassVar[str]
    """How the examples arrive, in words that follow the pace."""

    def __post_init__(self) -> None:
        """Refuses a start that is not a share, and a growth that is negative or infinite."""
        self._settle("start", most=1)
        self._settle("per_second")

    @abstractmethod
    def visible(self, total: int, time: float, key: int, times: Floats = NO_TIMES) -> int:
        """How many of a client's examples have arrived by a time."""

    def at_start(self, sizes: Integers, times: Floats = NO_TIMES) -> Integers:
        """⌊sizes × start⌋, at least 1."""
        parts: Integers = np.clip(np.floor(sizes * self.start + _NEARLY).astype(np.int64), 1, sizes)
        return parts

    @property
    def words(self) -> str:
        """Shares as percentages."""
        grows = self.start < 1 and self.per_second
        pace = f"{_percent(self.per_second)} of them each second{self._manner}" if grows else "no more"
        begins = f"each client has {_percent(self.start)} of its examples at the start (at least one)"
        return f"The data stream: {begins}, and gets {pace}."


@dataclass(frozen=True, slots=True)
class Linear(_Growing):
    """``linear(start, per_second)``: ⌊n (start + per_second × time)⌋ of a client's n examples have arrived.

    >>> [Linear(start=0.1, per_second=0.01).visible(50, time, key=0) for time in (0, 1.9, 2, 90, 1000)]
    [5, 5, 6, 50, 50]
    """

    _manner: ClassVar[str] = ""

    def visible(self, total: int, time: float, key: int, times: Floats = NO_TIMES) -> int:
        """The same for every key."""
        return _part(total, self.start + self.per_second * time)


@dataclass(frozen=True, slots=True)
class Poisson(_Growing):
    """``poisson(start, per_second)``: a client has ⌊n start⌋ of its n examples at first; the others arrive one by one.
    The gaps between them are independent and exponential with mean 1 / (n per_second) seconds.

    >>> [Poisson(start=0.1, per_second=0.01).visible(50, time, seeds.key(0)) for time in (0, 1.9, 10, 20, 1000)]
    [5, 6, 9, 12, 50]
    """

    _manner: ClassVar[str] = " on average, one by one at random times"

    def visible(self, total: int, time: float, key: int, times: Floats = NO_TIMES) -> int:
        """The examples of the start, and those whose arrival time has passed."""
        first = _part(total, self.start)
        # From left to right: per_second × total alone may be infinite, and infinity × 0 is NaN.
        gaps = self.per_second * time * total
        return first + int(_arrivals(key, total - first).searchsorted(gaps, side="right"))


@dataclass(frozen=True, slots=True)
class Recorded(Written):
    """``recorded(speed)``: examples arrive when the `time` column of the data says, ``speed`` times as fast (default
    1). Time 0 is the earliest time in the data. A client has at least one example from the start.

    >>> [Recorded(speed=2).visible(3, time, 0, np.array([0.0, 4.0, 5.0])) for time in (0, 1.9, 2, 90)]
    [1, 1, 2, 3]
    """

    speed: float = 1.0

    def __post_init__(self) -> None:
        """Refuses a speed that is not positive."""
        object.__setattr__(self, "speed", number(self.speed, "speed of recorded", positive=True))

    def visible(self, total: int, time: float, key: int, times: Floats = NO_TIMES) -> int:
        """The examples whose time has passed."""
        return max(int(times.searchsorted(time * self.speed, side="right")), 1)

    def at_start(self, sizes: Integers, times: Floats = NO_TIMES) -> Integers:
        """The examples with the earliest time, at least 1."""
        owners = np.repeat(np.arange(len(sizes)), sizes)
        return np.maximum(np.bincount(owners[times <= 0], minlength=len(sizes)), 1)

    @property
    def words(self) -> str:
        """With the speed, unless it is 1."""
        pace = "" if self.speed == 1 else f", {self.speed:g} times as fast"
        return f"The data stream: each client has at least one example at the start, and gets others as recorded{pace}."


STREAMS: Mapping[str, Callable[..., Stream]] = {"linear": Linear, "poisson": Poisson, "recorded": Recorded}


def parse(text: str | Stream) -> Stream:
    """The stream that a text describes; a stream is returned as it is.

    >>> parse("linear(start=0.1, per_second=0.001)"), str(parse("poisson(0, per_second=2)"))
    (Linear(start=0.1, per_second=0.001), 'poisson(0, 2)')
    >>> parse("linear(0.1)")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: linear(0.1) does not fit (missing ... 'per_second'); write linear(start, per_second)
    """
    if isinstance(text, Stream):
        return text
    call = read(text, "stream", _EXAMPLE)
    if not isinstance(call, Call):
        raise InputError(f"the stream {text!r} cannot be read; write for example {_EXAMPLE}")
    return build(call, STREAMS, "stream", nested=lambda inner: inner.text)


def in_order_of_arrival(shares: Shares, seed: int, times: Floats | None = None) -> Shares:
    """The same shares, with each client's examples in order of arrival: by time if it is recorded, otherwise all orders
    are equally likely.

    >>> shares = Shares.from_owners(np.array([0, 1, 1, 1, 1, 0]), 2)
    >>> in_order_of_arrival(shares, seed=1).of(1).tolist(), shares.of(1).tolist()
    ([3, 4, 2, 1], [1, 2, 3, 4])
    >>> in_order_of_arrival(shares, seed=1, times=np.array([0.0, 8.0, 7.0, 8.0, 9.0, 3.0])).of(1).tolist()
    [2, 1, 3, 4]
    """
    owners = np.repeat(np.arange(shares.clients), shares.sizes)
    # An example's number depends only on the seed and the example, not on the owners of the others.
    numbers = times
    if numbers is None:
        numbers = seeds.uniforms(seeds.key(seed, "order of arrival"), 0, int(shares.order.max()) + 1)
    order = shares.order[np.lexsort((numbers[shares.order], owners))]
    order.flags.writeable = False
    return Shares(order, shares.bounds)


def _part(total: int, share: float) -> int:
    """⌊total × share⌋, at least 1 and at most the total."""
    return int(min(max(math.floor(total * min(share, 1.0) + _NEARLY), 1), total))


@lru_cache(maxsize=1024)
def _arrivals(key: int, count: int) -> Floats:
    """When ``count`` examples arrive, in mean gaps from the start."""
    times: Floats = np.cumsum(-np.log(seeds.uniforms(key, 0, count)))
    times.flags.writeable = False
    return times


def _percent(share: float) -> str:
    return f"{100 * share:g}%"
