"""A run of the compiled loop: its arrays, the durations drawn for it, and what it merged, page by page."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fairlag.core import seeds
from fairlag.core.columns import lines
from fairlag.core.types import Floats, Integers, aggregations_made, time_reached
from fairlag.fleet.clients import Fleet
from fairlag.fleet.timing import Pieces
from fairlag.jit import make_ready
from fairlag.runtime.agenda import events_without_progress
from fairlag.runtime.compiled import kernel, layout
from fairlag.runtime.compiled.books import Books
from fairlag.runtime.compiled.parts import StandingParts
from fairlag.runtime.compiled.spec import LoopSpec, straight
from fairlag.runtime.compiled.weights import Fallback, Scale

_PAGE = 8192
"""About how many updates are merged before they are weighed: few enough to stay in the processor's cache."""

_FEW = 4096
"""Up to this many tasks at once need no buckets: their heap fits into the cache."""

_BUCKET = 512
"""How many tasks of a large fleet end, on average, within the time of one bucket."""

_ROOM = 1 << 22
_AHEAD = 256
"""The most durations that are drawn ahead: for the whole fleet, and for one client."""


_EACH, _QUIET = 10, 10_000
"""The most updates of a version that waits for everyone: per client, and in addition; beyond that, the reference."""


class Merges(NamedTuple):
    """Consecutive versions, one row per version, one column per update; valid until the next page."""

    first: int
    """The number of the first of these versions."""
    times: Floats
    tasks: Integers
    clients: Integers
    ordinals: Integers
    given_at: Floats
    arrivals: Floats
    staleness: Integers
    weights: Floats

    @property
    def trained(self) -> Integers:
        """The version from which each update was trained."""
        return np.arange(self.first - 1, self.first - 1 + len(self.times))[:, None] - self.staleness


class Timeline:
    """A simulation of a fleet under a strategy, without training: iterate over the merges, then read the totals.

    >>> from fairlag.fleet.clients import Group
    >>> from fairlag.fleet.delay import parse
    >>> from fairlag.runtime.compiled.spec import loop_spec
    >>> from fairlag.zoo import fedstaleweight
    >>> fleet = Fleet([Group("all", 10, parse("uniform(1, 2)"))], seed=0)
    >>> timeline = Timeline(loop_spec(fedstaleweight(buffer=5), fleet), fleet, seed=0, aggregations=100)
    >>> sum(merges.weights.size for merges in timeline), timeline.reason
    (500, '100 aggregations were made')
    """

    def __init__(
        self,
        spec: LoopSpec,
        fleet: Fleet,
        *,
        seed: int,
        aggregations: int | None = None,
        until_time: float | None = None,
        examples: Integers | None = None,
        page: int | None = None,
    ) -> None:
        """`examples` is how many examples each client has, one each by default; `page` is about how many updates."""
        self._fleet = fleet
        self._aggregations, self._until_time = aggregations, until_time
        page = page or _PAGE
        self.versions_per_page = max(1, min(page // spec.buffer, aggregations or page))
        examples = np.ones(fleet.clients, np.int64) if examples is None else examples
        room = {
            layout.COUNT: self.versions_per_page * spec.buffer,
            layout.EVERYONE_FIRST: max(self.versions_per_page * spec.buffer, fleet.clients),
            layout.EVERYONE: _EACH * fleet.clients + _QUIET,
        }[spec.trigger]
        self._scale = Scale(spec, fleet, versions=self.versions_per_page, room=room, examples=examples)
        laws = [straight(group, int(fleet.steps[fleet.members(each)[0]])) for each, group in enumerate(fleet.groups)]
        self._elsewhere = np.flatnonzero(np.array([law is None for law in laws])[fleet.group_of])
        """The clients whose durations are drawn outside the loop."""
        self.run = _run(spec, fleet, seed, aggregations, until_time)
        self.clients = _clients(fleet, self._elsewhere)
        if spec.trigger == layout.EVERYONE:
            self.run["patience"] = room
        self.lists = _lists(fleet.clients)
        self.recent: Integers = np.zeros((fleet.clients, spec.window + 1), np.int64)
        self._drawn = _room(self.run, len(self._elsewhere))
        self._arrays = (
            self.run,
            self.clients,
            self.lists,
            np.array([law or (0.0, 0.0, 0.0) for law in laws]),
            self._drawn,
            *_plans(fleet),
            *_queue(self.run, fleet),
            self.recent,
            self._scale.merged,
            self._scale.moments,
            self._scale.made,
        )
        make_ready(kernel.begin, *self._arrays[:3])
        make_ready(kernel.proceed, *self._arrays)
        self.over = False
        """Is the run over after the last merges?"""
        self._weights: Floats = np.zeros(fleet.clients)
        self._parts = None if spec.keeps is None else StandingParts(spec.keeps, fleet.clients)
        """Clients' parts of each version, if updates are kept."""

    def __iter__(self) -> Iterator[Merges]:
        """Simulates to the end; raises Fallback if only the reference can continue."""
        kernel.begin(*self._arrays[:3])
        status = kernel.FULL
        while status != kernel.OVER:
            if status == kernel.FULL:
                self._begin_page()
            status = kernel.proceed(*self._arrays)
            self.over = status == kernel.OVER
            if status == kernel.STUCK:
                raise Fallback("no task is running")
            if status == kernel.UNDRAWN:
                self._draw()
            elif versions := int(self.run["merged"][0]):
                yield self._weighed(versions)

    def _begin_page(self) -> None:
        """The page ends at a multiple of its length, or after one version if the next may differ in size."""
        trigger, page = self.run["trigger"][0], self.versions_per_page
        if trigger == layout.EVERYONE or (trigger == layout.EVERYONE_FIRST and not self.version):
            page = 1
        self.run["full"] = (self.version // page + 1) * page
        self.run["merged"] = 0

    def _weighed(self, versions: int) -> Merges:
        scale = self._scale
        weights = scale.weights(versions, int(self.run["size"][0]))
        whole, real = ([row[: weights.size].reshape(weights.shape) for row in each] for each in scale.pages)
        if self._parts is None:
            np.add.at(self._weights, whole[layout.SENDER].ravel(), weights.ravel())
        else:
            self._parts.merge(whole[layout.SENDER], weights)
        return Merges(
            self.version - versions + 1,
            scale.made[:versions, layout.TIME],
            whole[layout.TASK],
            whole[layout.SENDER],
            whole[layout.ORDINAL],
            real[layout.GIVEN_AT],
            real[layout.CAME],
            whole[layout.LATE],
            weights,
        )

    @property
    def weights(self) -> Floats:
        """Per client: the sum of its parts of all versions, like `View.weight_sums`."""
        return self._weights if self._parts is None else self._parts.weights

    def _draw(self) -> None:
        """Draws durations for all clients that have used half of theirs, so that the next call is not soon."""
        drawn = self._drawn
        ahead = drawn.shape[1] - 1
        until = drawn[:, ahead].astype(np.int64)
        rows = np.flatnonzero(until - self.clients["given"][self._elsewhere] <= ahead // 2)
        ordinals = until[rows, None] + np.arange(ahead // 2)
        durations = self._fleet.durations(self._elsewhere[rows], ordinals)
        if not (durations >= 0).all() or not np.isfinite(durations).all():
            raise Fallback("a duration is not a number of seconds")
        drawn[rows[:, None], ordinals % ahead] = durations
        drawn[rows, ahead] += ahead // 2

    @property
    def updates(self) -> Integers:
        """Per client: how many of its updates were merged."""
        return self._column("updates")

    @property
    def staleness(self) -> Integers:
        """Per client: the sum of their staleness."""
        return self._column("staleness")

    @property
    def tasks(self) -> Integers:
        """Per client: the number of its tasks."""
        return self._column("given")

    @property
    def time(self) -> float:
        """The time of the last event."""
        return float(self.run["now"][0])

    @property
    def version(self) -> int:
        """The newest version."""
        return int(self.run["version"][0])

    @property
    def refused(self) -> Integers:
        """Per client: how many of its updates were too stale."""
        return self.lists[layout.REFUSED, :-1].copy()

    @property
    def cancelled(self) -> Integers:
        """Per client: how many of its tasks were called off."""
        return self.lists[layout.CANCELLED, :-1].copy()

    @property
    def wasted(self) -> float:
        """Seconds of work in tasks that ended without being merged."""
        return float(self.run["wasted"][0])

    @property
    def complete(self) -> bool:
        """Were all requested versions made?"""
        return self.version == self._aggregations

    @property
    def reason(self) -> str:
        """Why the run ended, in the server's words."""
        if self.complete:
            return aggregations_made(self.version)
        return time_reached(self._until_time)

    @property
    def books(self) -> Books | None:
        """The accounts of all clients, if updates weigh by account."""
        return self._scale.books

    def _column(self, name: str) -> Integers:
        column: Integers = self.clients[name].copy()
        return column


def _run(spec: LoopSpec, fleet: Fleet, seed: int, aggregations: int | None, until_time: float | None) -> Any:
    run = np.zeros(1, layout.RUN)
    for name in ("trigger", "buffer", "fresh", "places", "rounds", "limit", "delay", "profiles", "window"):
        run[name] = getattr(spec, name)
    run["patience"] = events_without_progress(fleet.clients, spec.buffer)
    run["aggregations"] = -1 if aggregations is None else aggregations
    run["until"] = np.inf if until_time is None else until_time
    run["draws_from"] = np.uint64(seeds.key(seed, "select")).view(np.int64)
    run["bits"] = fleet.clients.bit_length()
    return run


def _clients(fleet: Fleet, elsewhere: Integers) -> Any:
    """The initial record of each client, aligned to cache lines."""
    clients = lines(fleet.clients, 2).reshape(-1).view(layout.CLIENT)
    clients["stream"] = fleet.streams.view(np.int64)
    clients["contributed"] = clients["task"] = -1
    clients["law"] = fleet.group_of
    clients["law"][elsewhere] = -1 - np.arange(len(elsewhere))
    clients["transfer"], clients["factor"] = fleet.transfers, fleet.factors
    return clients


def _lists(clients: int) -> Integers:
    lists = np.zeros((layout.LISTS, clients + 1), np.int64)
    lists[layout.SENT] = -1
    lists[[layout.EARLIER, layout.LATER], -1] = clients  # no task is running
    return lists


def _room(run: Any, rows: int) -> Floats:
    """Memory for the durations drawn outside the loop; the last column counts how many were drawn so far."""
    run["ahead"] = ahead = 2 * max(1, min(_AHEAD, _ROOM // max(rows, 1)) // 2)
    return np.zeros((rows, ahead + 1))


def _plans(fleet: Fleet) -> tuple[Integers, Floats]:
    """If any client slows down by a plan: per client the row of its plan, −1 for none; and the plans."""
    followed = [fleet.pieces(client) for client in range(fleet.clients if fleet.timed else 0)]
    places: dict[Pieces | None, int] = {each: place for place, each in enumerate(dict.fromkeys(filter(None, followed)))}
    longest = max((len(each.ends) + len(each.factors) for each in filter(None, places)), default=0)
    rows = np.zeros((len(places), layout.PLAN + longest))
    for row, each in zip(rows, filter(None, places), strict=True):
        whole = (each.by_part, each.period, len(each.ends), *each.ends, *each.factors)
        row[: len(whole)] = whole
    return np.array([places.get(each, -1) for each in followed], np.int64), rows


def _queue(run: Any, fleet: Fleet) -> tuple[Floats, Integers, Integers, Integers]:
    """Memory for all tasks that run at once, and for as many that were called off.

    Times and keys, the chains of blocks, and the buckets.
    """
    running = int(run["places"][0]) or fleet.clients
    rate = float((1 / fleet.mean_durations).sum()) * running / fleet.clients
    buckets, blocks = 1, 0
    run["spare"] = spare = running if run["delay"][0] else 0
    if running > _FEW and np.isfinite(rate):
        buckets, run["per_second"] = max(1, 4 * running // _BUCKET), rate / _BUCKET
        blocks = (running + spare) // layout.BLOCK + 2 * buckets + 8
    run["heap"], run["buckets"], run["free"] = running + spare, buckets, blocks
    size = running + spare + blocks * layout.BLOCK
    chains = np.stack([np.empty(blocks, np.int64), np.arange(blocks)])
    first = np.stack([np.full(buckets + 1, -1), np.zeros(buckets + 1, np.int64)])
    return np.empty(size), np.empty(size, np.int64), chains, first
