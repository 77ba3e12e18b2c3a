"""What an availability is: the periods of many clients at once, each as far as it is asked for."""

import math
from collections.abc import Iterator
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fairlag.core import seeds
from fairlag.core.types import Floats, Integers
from fairlag.text.calls import Written

Period: TypeAlias = tuple[float, float]
Periods: TypeAlias = tuple[Floats, Floats, Integers]
Streams: TypeAlias = NDArray[np.uint64]


@runtime_checkable
class Availability(Protocol):
    """A pattern of presence; ``str`` gives the text that :func:`parse` reads."""

    def following(self, streams: Streams, known: Integers, since: Floats) -> Periods:
        """The next period of each of many clients: start, end, and the next value of ``known``.

        ``streams`` has one key of seeds.py per client; its n-th draw is ``seeds.uniform(stream, n)``. ``known`` is 0
        before the first period, then the value returned with the last period; ``since`` is the end of that period, at
        first 0. A period [start, end) is not empty and begins at or after the end of the last one. The last period may
        end at infinity; all later ones begin there.
        """

    def periods(self, stream: int) -> Iterator[Period]:
        """The periods of one client, one after the other, computed on demand."""

    def streams(self, key: int, count: int) -> Streams:
        """Per client of a group: the number that determines its periods, by default a key of seeds.py."""

    def stream(self, key: int, place: int) -> int:
        """The same of the client at this place of the group."""

    @property
    def duty(self) -> float:
        """The long-run fraction of time in which the client is present."""


class Pattern(Written):
    """Base of patterns, which compute the periods of many clients at once."""

    __slots__ = ()

    def following(self, streams: Streams, known: Integers, since: Floats) -> Periods:
        """The next period of each of many clients."""
        raise NotImplementedError

    def periods(self, stream: int) -> Iterator[Period]:
        """The periods of one client, one after the other, computed on demand."""
        streams, known, until = np.array([stream], np.uint64), np.zeros(1, np.int64), np.zeros(1)
        while True:
            start, until, known = self.following(streams, known, until)
            if start[0] == math.inf:
                return
            yield float(start[0]), float(until[0])

    def streams(self, key: int, count: int) -> Streams:
        """One key per client of a group."""
        return seeds.subkeys(key, count)

    def stream(self, key: int, place: int) -> int:
        """The key of the client at this place of the group."""
        return seeds.subkey(key, place)
