"""A run of the compiled loop: its arrays, the durations that are drawn for it, and what it merged, page by page."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fairlag import seeds
from fairlag.fleet.clients import Fleet
from fairlag.runtime.compiled import kernel
from fairlag.runtime.compiled.plan import Plan, straight
from fairlag.runtime.compiled.weights import Doubt, Scale
from fairlag.server import aggregations_made, time_reached
from fairlag.types import Floats, Integers

_PAGE = 8192
"""About how many updates are merged before they are weighed: few enough to stay in the processor's cache."""

_FEW = 4096
"""So many tasks at once need no buckets: their heap stays in the cache."""

_BUCKET = 512
"""How many tasks of a large fleet end, on average, within the time of one bucket."""

_ROOM = 1 << 22
_AHEAD = 256
"""How many durations of a client are drawn ahead, or fewer where those of the whole fleet would not fit in the room."""


class Merges(NamedTuple):
    """Versions in a row, one row each, one column an update; good until the next are asked for."""

    first: int
    """The number of the first of these versions."""
    times: Floats
    clients: Integers
    given_at: Floats
    arrivals: Floats
    staleness: Integers
    weights: Floats


class Timeline:
    """The life of a fleet under a strategy, without learning: iterate over what was merged, then read the account."""

    def __init__(
        self, plan: Plan, fleet: Fleet, *, seed: int, aggregations: int | None, until_time: float | None
    ) -> None:
        self._fleet = fleet
        self._aggregations, self._until_time = aggregations, until_time
        self._scale = Scale(
            plan.weigh, versions=max(1, _PAGE // plan.buffer), buffer=plan.buffer, clients=fleet.clients
        )
        self._whole = whole = _settings(plan, fleet)
        whole[kernel.AGGREGATIONS] = -1 if aggregations is None else aggregations
        whole[kernel.DRAWS_FROM] = np.uint64(seeds.key(seed, "select")).astype(np.int64)
        self._real = np.zeros(kernel.REAL)
        self._real[kernel.UNTIL] = np.inf if until_time is None else until_time
        laws = [straight(group, int(fleet.steps[fleet.members(each)[0]])) for each, group in enumerate(fleet.groups)]
        self._elsewhere = np.flatnonzero(np.array([law is None for law in laws])[fleet.group_of])
        """The clients whose durations are drawn outside of the loop."""
        self._counts, times = _rows(fleet, self._elsewhere)
        self._lists = np.empty((kernel.LISTS, fleet.clients), np.int64)
        self._drawn = _room(whole, len(self._elsewhere))
        self._arrays = (
            whole,
            self._real,
            self._counts,
            times,
            self._lists,
            np.array([law or (0.0, 0.0, 0.0) for law in laws]),
            self._drawn,
            *_queue(whole, self._real, fleet),
            self._scale.merged,
            self._scale.moments,
            self._scale.made,
        )
        self.weights: Floats = np.zeros(fleet.clients)
        """Per client: the sum of the weights that its updates got."""

    def __iter__(self) -> Iterator[Merges]:
        """Lives on to the end; raises Doubt where the reference has to be asked."""
        kernel.begin(self._whole, self._lists)
        status = kernel.UNDRAWN
        while status != kernel.OVER:
            status = kernel.proceed(*self._arrays)
            if status == kernel.STUCK:
                raise Doubt("nobody is running")
            if status == kernel.UNDRAWN:
                self._draw()
            elif versions := int(self._whole[kernel.MERGED]):
                yield self._weighed(versions)
                self._whole[kernel.MERGED] = 0

    def _weighed(self, versions: int) -> Merges:
        weights = self._scale.weights(versions)
        whole, real = ([row[: weights.size].reshape(weights.shape) for row in each] for each in (self._scale.merged, self._scale.moments))
        np.add.at(self.weights, whole[kernel.CLIENT].ravel(), weights.ravel())
        return Merges(
            self.version - versions + 1,
            self._scale.made[:versions, kernel.TIME],
            whole[kernel.CLIENT],
            real[kernel.FROM],
            real[kernel.CAME],
            whole[kernel.LATE],
            weights,
        )

    def _draw(self) -> None:
        """Draws for all who used up half of what is drawn for them, so that it is not soon somebody's turn again."""
        half, drawn = int(self._whole[kernel.AHEAD]) // 2, self._drawn
        until = drawn[:, -1].astype(np.int64)
        rows = np.flatnonzero(until - self._counts[self._elsewhere, kernel.GIVEN] <= half)
        ordinals = until[rows, None] + np.arange(half)
        durations = self._fleet.durations(self._elsewhere[rows], ordinals)
        if not (durations >= 0).all() or not np.isfinite(durations).all():
            raise Doubt("a duration is not a number of seconds")
        drawn[rows[:, None], ordinals % (2 * half)] = durations
        drawn[rows, -1] += half

    @property
    def updates(self) -> Integers:
        """Per client: how many of its updates were merged."""
        return self._counts[:, kernel.UPDATES]

    @property
    def staleness(self) -> Integers:
        """Per client: the sum of their staleness."""
        return self._counts[:, kernel.STALENESS]

    @property
    def tasks(self) -> Integers:
        """Per client: how many tasks it was given."""
        return self._counts[:, kernel.GIVEN]

    @property
    def time(self) -> float:
        """When the last event was."""
        return float(self._real[kernel.NOW])

    @property
    def version(self) -> int:
        """The newest version."""
        return int(self._whole[kernel.VERSION])

    @property
    def reason(self) -> str:
        """Why the run ended, in the server's words."""
        if self.version == self._aggregations:
            return aggregations_made(self.version)
        return time_reached(self._until_time)

    @property
    def refused(self) -> int:
        """How many updates were too stale."""
        return int(self._whole[kernel.REFUSED])


def _settings(plan: Plan, fleet: Fleet) -> Integers:
    whole = np.zeros(kernel.WHOLE, np.int64)
    whole[kernel.BUFFER], whole[kernel.FRESH], whole[kernel.LIMIT] = plan.buffer, plan.fresh, plan.limit
    whole[kernel.PLACES], whole[kernel.ROUNDS] = plan.places, plan.rounds
    whole[kernel.PROFILES] = plan.profiles
    whole[kernel.BITS] = fleet.clients.bit_length()
    return whole


def _rows(fleet: Fleet, elsewhere: Integers) -> tuple[Integers, Floats]:
    """What is known of each client at the beginning."""
    counts, times = _lines(fleet.clients).view(np.int64), _lines(fleet.clients)
    counts[:, kernel.STREAM] = fleet.streams.view(np.int64)
    counts[:, kernel.CONTRIBUTED] = -1
    counts[:, kernel.LAW] = fleet.group_of
    counts[elsewhere, kernel.LAW] = -1 - np.arange(len(elsewhere))
    times[:, kernel.TRANSFER], times[:, kernel.FACTOR] = fleet.transfers, fleet.factors
    return counts, times


def _lines(clients: int) -> Floats:
    """Eight numbers a client, that begin where a line of the processor's cache does."""
    room = np.zeros(8 * clients + 8)
    start = -room.ctypes.data % 64 // 8
    return room[start : start + 8 * clients].reshape(clients, 8)


def _room(whole: Integers, rows: int) -> Floats:
    """For the durations that are drawn outside of the loop, and in the last column how many were drawn so far."""
    whole[kernel.AHEAD] = ahead = 2 * max(1, min(_AHEAD, _ROOM // max(rows, 1)) // 2)
    return np.zeros((rows, ahead + 1))


def _queue(whole: Integers, real: Floats, fleet: Fleet) -> tuple[Floats, Integers, Integers, Integers]:
    """Room for as many tasks as run at once: when and what, the chains of blocks, and the buckets."""
    running = int(whole[kernel.PLACES]) or fleet.clients
    rate = float((1 / fleet.mean_durations).sum()) * running / fleet.clients
    buckets, blocks = 1, 0
    if running > _FEW and np.isfinite(rate):
        buckets, real[kernel.PER_SECOND] = 4 * running // _BUCKET, rate / _BUCKET
        blocks = running // kernel.BLOCK + 2 * buckets + 8
    whole[kernel.HEAP], whole[kernel.BUCKETS], whole[kernel.FREE] = running, buckets, blocks
    size = running + blocks * kernel.BLOCK
    chains = np.stack([np.empty(blocks, np.int64), np.arange(blocks)])
    return np.empty(size), np.empty(size, np.int64), chains, np.stack([np.full(buckets + 1, -1), np.zeros(buckets + 1, np.int64)])
