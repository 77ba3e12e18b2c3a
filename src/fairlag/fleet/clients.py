"""The fleet: groups of clients, how long each task takes, and when each client is present."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf, isfinite
from typing import Literal, cast

import numpy as np

from fairlag.core import seeds
from fairlag.core.types import Floats, Integers
from fairlag.errors import InputError
from fairlag.fleet.availability import Always, Availability, Returning, between
from fairlag.fleet.capacity import Capacity
from fairlag.fleet.delay import Delay
from fairlag.fleet.recorded import Recorded
from fairlag.fleet.timing import Pieces, Timing, Truthful
from fairlag.text.calls import check_mean

_EARLY = 8
_BLOCK = 1024
_FEW = 64
_AHEAD = 256
_ROOM = 1 << 22
"""How durations are drawn. The first `_EARLY` durations of a client are drawn for a block of `_BLOCK` clients at once,
because many clients of a large fleet have no more tasks than that. From the second duration on, a block is drawn only
after `_FEW` of its durations were drawn one by one: that takes less time than drawing the block, and second tasks are
rare for a long time in a large fleet. Later durations are drawn `_AHEAD` at a time per client, or one by one if those
of the whole fleet would exceed `_ROOM` numbers."""

_MAX_STEPS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Group:
    """Clients of one kind."""

    name: str
    count: int
    delay: Delay
    availability: Availability = Always()  # noqa: RUF009 (frozen)
    join: float = 0.0
    leave: float = inf
    vanish: float = 0.0
    """The probability that a client vanishes in the middle of a task."""
    away: Delay | None = None
    """How long it then stays away; None until the task would have ended."""
    download: Delay | None = None
    upload: Delay | None = None
    """The bandwidth of a client in megabits per second, drawn once per client; None if transfers take no time."""
    overhead: Delay | None = None
    """The seconds that the deployment adds to each task, such as polls and the start of a process, drawn per task."""
    steps: int | None = None
    """The number of local steps of its clients' tasks; None for the number of the fleet."""
    per: Literal["task", "step"] = "task"
    """Is `delay` the duration of a whole task, or of each of its local steps?"""
    timing: Timing = Truthful()  # noqa: RUF009 (frozen)
    """How its clients time their work: as fast as they can, or slower by a plan."""
    capacity: Capacity | None = None
    """How fast each of its clients is. The duration of a step is then `delay` times the client's seconds per step."""
    per_device: int = 1
    """How many clients in a row are one device, which does their tasks one after the other."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"group {self.name!r} has {self.count} clients, it must have at least 1")
        if not 0 <= self.vanish < 1:
            raise InputError(f"group {self.name!r} vanishes with probability {self.vanish}, it must be in [0, 1)")
        if not (isfinite(self.join) and 0 <= self.join < self.leave):
            raise InputError(
                f"group {self.name!r} joins at {self.join} and leaves at {self.leave}: 0 ≤ join < leave must hold"
            )
        if self.steps is not None:
            _check_steps(f"group {self.name!r}", self.steps)
        if self.per not in ("task", "step"):
            raise InputError(f"group {self.name!r} has a delay per {self.per!r}, it must be per 'task' or 'step'")
        if self.capacity is not None and len(self.capacity.clients) != self.count:
            raise InputError(
                f"group {self.name!r} has {self.count} clients, but its capacity has {len(self.capacity.clients)}"
            )
        if self.per_device < 1:
            raise InputError(f"group {self.name!r} has {self.per_device} clients per device, it must be at least 1")
        if self.per_device > 1 and not isinstance(self.availability, Always):
            raise InputError(
                f"group {self.name!r} has {self.per_device} clients per device and the availability "
                f"{self.availability}: its clients would come and go apart, so the availability must be always"
            )
        self.presence(self.timing)

    def presence(self, timing: Timing) -> Availability:
        """When clients with this plan are present, apart from joining late, leaving early and vanishing."""
        if timing.leaves is None:
            return self.availability
        if not isinstance(self.availability, Always):
            raise InputError(
                f"group {self.name!r} has the timing {timing} and the availability {self.availability}: with a timing "
                "that leaves, the availability must be always"
            )
        return Returning(*timing.leaves)

    def like(self, places: Sequence[int], name: str | None = None) -> "Group":
        """A group of clients, each with the recorded presence and capacity of the client at a place of this one."""
        there, fast = self.availability, self.capacity
        return replace(
            self,
            name=name or self.name,
            count=len(places),
            availability=there.at(places) if isinstance(there, Recorded) else there,
            capacity=None if fast is None else fast.at(places),
        )

    @property
    def steady(self) -> bool:
        """Are its clients present from the beginning to the end?"""
        there = isinstance(self.presence(self.timing), Always)
        return there and self.join == 0 and self.leave == inf and not self.vanish


class Fleet:
    """All clients, numbered group by group.

    The address of a draw is (seed, group name, place in the group, ordinal): adding a group, enlarging a group or
    changing the strategy changes no other draw.

    >>> from fairlag.fleet.delay import parse
    >>> fleet = Fleet([Group("fast", 10, parse("uniform(1, 2)")), Group("slow", 5, parse("uniform(8, 12)"))], seed=0)
    >>> fleet.clients, fleet.mean_durations[[0, 14]].tolist()
    (15, [1.5, 10.0])
    >>> 8 < fleet.duration(14, 0) < 12
    True

    `steps` is the number of local steps of clients whose group does not set it. It matters for delays per step:

    >>> groups = [Group("a", 1, parse(2), per="step"), Group("b", 1, parse(2), per="step", steps=3)]
    >>> fleet = Fleet(groups, seed=0, steps=5)
    >>> fleet.steps.tolist(), fleet.duration(0, 0), fleet.duration(1, 0), fleet.duration(1, 1, steps=2)
    ([5, 3], 10.0, 6.0, 4.0)
    """

    def __init__(self, groups: Sequence[Group], *, seed: int, model_bytes: int = 0, steps: int = 1) -> None:
        if not groups:
            raise InputError("the fleet has no clients, give at least one group")
        names = [group.name for group in groups]
        if len(set(names)) < len(names):
            raise InputError(f"two groups have the same name: {names}")
        _check_steps("a task of the fleet", steps)
        counts = [group.count for group in groups]
        self.groups = tuple(groups)
        self._counts = counts
        self.clients = sum(counts)
        self.group_of: Integers = np.repeat(np.arange(len(groups)), counts)
        self.seed = seed
        self.model_bytes = model_bytes
        self.steady = all(group.steady for group in groups)
        self.vanishing = any(group.vanish for group in groups)
        self.per_step = any(group.per == "step" for group in groups)
        """Does the duration of any client's tasks depend on the number of local steps?"""
        self.sharing = any(group.per_device > 1 for group in groups)
        """Do any clients share a device?"""
        self._steps = steps
        self._own_steps = [group.steps or steps for group in groups]
        self.steps: Integers = np.repeat(np.array(self._own_steps, np.int64), counts)
        """Per client: the number of local steps of a task, unless the server asks for another number."""
        self._means = [_mean(group, own) for group, own in zip(groups, self._own_steps, strict=True)]
        self._paced = any(group.capacity is not None for group in groups)
        ones: Floats = np.broadcast_to(1.0, self.clients)  # takes no memory
        self.paces: Floats = np.concatenate([_paces(group) for group in groups]) if self._paced else ones
        """Per client: the factor on the duration of its work that its capacity gives, 1 without one."""
        self._pace_of: memoryview[float] = cast("memoryview[float]", self.paces.data)
        self._start = [0, *accumulate(counts)]
        self.transfers: Floats = np.concatenate([_transfer(group, seed, model_bytes) for group in groups])
        """Per client: the seconds per task for downloading and uploading the model."""
        self._transfer_of: memoryview[float] = cast("memoryview[float]", self.transfers.data)
        self._plans: dict[int, Timing] = {}
        self._pieces = [_changing(group.timing) for group in groups]
        self.timed = any(self._pieces)
        """Does any client's speed depend on when a task begins?"""
        self.factors: Floats = np.repeat([_constant(group.timing) for group in groups], counts)
        """Per client: the constant factor by which its timing slows down all its tasks."""
        self._factor_of: memoryview[float] = cast("memoryview[float]", self.factors.data)
        streams = [seeds.subkeys(seeds.key(seed, "delay", group.name), group.count) for group in groups]
        self.streams = np.concatenate(streams)
        """Per client: the stream of its durations; a task takes the draw of its ordinal."""
        self._overheads = {number: group.overhead for number, group in enumerate(groups) if group.overhead is not None}
        """By the number of a group: what the deployment adds to its tasks."""
        self._stream = self.streams.data
        self._group = self.group_of.data
        # With delays per step, durations cannot be drawn ahead: the number of steps is not known yet.
        room = 0 if self.per_step else _ROOM // self.clients
        self._early = min(_EARLY, room)
        self._blocks = -(-self.clients // _BLOCK)
        self._asked = bytearray([_FEW] * self._blocks + [0] * (self._early - 1) * self._blocks)
        """Per ordinal and block of clients: how many durations were drawn one by one; `_FEW` + 1 if all are drawn."""
        self._first_tasks: Floats = np.empty(self._early * self.clients)
        self._first_task_of = self._first_tasks.data
        self._ahead = min(_AHEAD, room) if room >= 2 * _EARLY else 0
        self._first: Integers = np.full(self.clients if self._ahead else 0, -1)
        self._drawn: Floats = np.empty(len(self._first) * self._ahead)
        self._first_of, self._drawn_at = self._first.data, self._drawn.data

    def planned(self, plans: Mapping[int, Timing]) -> "Fleet":
        """The same fleet with the same draws, in which each of these clients follows its own plan.

        >>> from fairlag.fleet.delay import parse
        >>> from fairlag.fleet.timing import Throttle
        >>> fleet = Fleet([Group("fast", 2, parse(1))], seed=0).planned({1: Throttle(8)})
        >>> fleet.duration(0, 0), fleet.duration(1, 0)
        (1.0, 8.0)
        """
        fleet = Fleet(self.groups, seed=self.seed, model_bytes=self.model_bytes, steps=self._steps)
        fleet._plans = self._plans | dict(plans)
        for client, timing in fleet._plans.items():
            if not 0 <= client < self.clients:
                raise InputError(f"client {client} cannot follow {timing}, the clients are 0 to {self.clients - 1}")
            fleet._factor_of[client] = _constant(timing)
        fleet.timed = any(map(fleet.pieces, fleet._plans)) or any(self._pieces)
        fleet.steady = self.steady and all(timing.leaves is None for timing in plans.values())
        return fleet

    @property
    def plans(self) -> dict[int, Timing]:
        """The clients whose plans are not those of their groups."""
        return dict(self._plans)

    def pieces(self, client: int) -> Pieces | None:
        """By which factor the client slows down, and when; None if it never changes its speed."""
        plan = self._plans.get(client)
        return self._pieces[self._group[client]] if plan is None else _changing(plan)

    def factor(self, client: int, time: float, part: float) -> float:
        """The factor on the duration of a task that begins at this time, when this part of the run is over."""
        pieces = self.pieces(client)
        return 1.0 if pieces is None else pieces.factor(time, part)

    def group_name(self, client: int) -> str:
        """The name of a client's group."""
        return self.groups[self._group[client]].name

    def members(self, group: int) -> range:
        """The clients of the group with this number."""
        return range(self._start[group], self._start[group + 1])

    @property
    def device_of(self) -> Integers:
        """Per client: the number of its device.

        >>> from fairlag.fleet.delay import parse
        >>> Fleet([Group("a", 4, parse(1), per_device=2), Group("b", 2, parse(1))], seed=0).device_of.tolist()
        [0, 0, 1, 1, 2, 3]
        """
        parts, first = [], 0
        for group in self.groups:
            parts.append(first + np.arange(group.count) // group.per_device)
            first = int(parts[-1][-1]) + 1
        return np.concatenate(parts)

    @property
    def mean_durations(self) -> Floats:
        """Per client: the expected duration of its tasks, each with the client's own number of steps.

        A plan that makes a client slow for only a part of the run is not included. Clients that share a device are
        assumed to be busy all the time, so that each task waits for one of every other client.
        """
        means = np.repeat(self._means, self._counts)
        means *= self.paces
        for group, overhead in self._overheads.items():
            means[self._start[group] : self._start[group + 1]] += overhead.mean
        means += self.transfers
        means *= self.factors
        if self.sharing:
            means *= np.repeat([min(group.per_device, group.count) for group in self.groups], self._counts)
        return means

    def duration(self, client: int, ordinal: int, steps: int = 0) -> float:
        """The duration of the client's task of this ordinal with `steps` steps (0 for its own), with all it includes.

        If its device is shared, this is how long the device works on it; the runtime adds how long the task waits.
        """
        if ordinal < self._early:
            place = ordinal * self._blocks + client // _BLOCK
            asked = self._asked[place]
            if asked <= _FEW:
                self._asked[place] = asked + 1
                if asked < _FEW:
                    return self._duration(client, ordinal, steps)
                self._draw_block(client // _BLOCK, ordinal)
            return self._first_task_of[ordinal * self.clients + client]
        ahead = self._ahead
        if not ahead:
            return self._duration(client, ordinal, steps)
        first = ordinal - ordinal % ahead
        if self._first_of[client] != first:
            self._draw_ahead(client, first)
        return self._drawn_at[client * ahead + ordinal - first]

    def durations(self, clients: Integers, ordinals: Integers) -> Floats:
        """The durations of tasks: one row of ordinals per client, each with the client's own steps."""
        groups, work = self.group_of[clients], np.empty(ordinals.shape)
        for number, (group, own) in enumerate(zip(self.groups, self._own_steps, strict=True)):
            mine = groups == number
            if mine.any():
                drawn = seeds.uniforms_at(self.streams[clients[mine], None], ordinals[mine])
                long = group.delay.quantile(drawn.ravel()).reshape(drawn.shape)
                work[mine] = long * own if group.per == "step" else long
        if self._paced:
            work *= self.paces[clients, None]
        for number in self._overheads:
            mine = groups == number
            if mine.any():
                work[mine] += self._added(number, clients[mine], ordinals[mine])
        whole: Floats = work + self.transfers[clients, None]
        return whole * self.factors[clients, None]

    def _duration(self, client: int, ordinal: int, steps: int) -> float:
        group = self._group[client]
        drawn = seeds.uniform(self._stream[client], ordinal)
        work = self.groups[group].delay.quantile(drawn)
        if self.per_step and self.groups[group].per == "step":
            work *= steps or self._own_steps[group]
        if self._paced:
            work *= self._pace_of[client]
        if group in self._overheads:
            stream = self._stream_for("overhead", client)
            work += self._overheads[group].quantile(seeds.uniform(stream, ordinal))
        return (work + self._transfer_of[client]) * self._factor_of[client]

    def _draw_block(self, block: int, ordinal: int) -> None:
        clients = np.arange(block * _BLOCK, min((block + 1) * _BLOCK, self.clients))
        first = ordinal * self.clients
        drawn = self.durations(clients, np.full((len(clients), 1), ordinal))
        self._first_tasks[first + clients[0] : first + clients[-1] + 1] = drawn[:, 0]

    def _draw_ahead(self, client: int, first: int) -> None:
        group = self._group[client]
        drawn = seeds.uniforms(self._stream[client], first, self._ahead)
        work = self.groups[group].delay.quantile(drawn) * self.paces[client]
        if group in self._overheads:
            work += self._added(group, np.array([client]), np.arange(first, first + self._ahead)[None])[0]
        start = client * self._ahead
        self._drawn[start : start + self._ahead] = (work + self.transfers[client]) * self._factor_of[client]
        self._first[client] = first

    def _added(self, number: int, clients: Integers, ordinals: Integers) -> Floats:
        """What the deployment adds to tasks of clients of one group: one row of ordinals per client."""
        parent = seeds.key(self.seed, "overhead", self.groups[number].name)
        streams = seeds.subkeys_at(np.full(len(clients), parent, np.uint64), clients - self._start[number])
        drawn = seeds.uniforms_at(streams[:, None], ordinals)
        return self._overheads[number].quantile(drawn.ravel()).reshape(drawn.shape)

    def periods(self, client: int) -> Iterator[tuple[float, float]]:
        """When the client is present, apart from vanishing: increasing (start, end)."""
        group = self.groups[self._group[client]]
        there = group.presence(self._plans.get(client, group.timing))
        key = seeds.key(self.seed, "availability", group.name)
        stream = there.stream(key, client - self._start[self._group[client]])
        return between(there.periods(stream), group.join, group.leave)

    def vanishes(self, client: int, ordinal: int) -> tuple[float, float | None] | None:
        """Whether the client vanishes during this task: after which part, and for how long (None for its rest)."""
        group = self.groups[self._group[client]]
        if not group.vanish:
            return None
        stream = self._stream_for("vanish", client)
        if seeds.uniform(stream, 3 * ordinal) >= group.vanish:
            return None
        away = None if group.away is None else float(group.away.quantile(seeds.uniform(stream, 3 * ordinal + 1)))
        return seeds.uniform(stream, 3 * ordinal + 2), away

    def _stream_for(self, purpose: str, client: int) -> int:
        number = self._group[client]
        return seeds.subkey(seeds.key(self.seed, purpose, self.groups[number].name), client - self._start[number])


def _constant(timing: Timing) -> float:
    """The factor by which this timing slows a client down throughout the run; 1 if it changes or there is none."""
    pieces = timing.pieces
    return 1.0 if pieces is None or pieces.ends else pieces.factors[0]


def _changing(timing: Timing) -> Pieces | None:
    """The plan of a client whose speed changes during the run."""
    pieces = timing.pieces
    return pieces if pieces is not None and pieces.ends else None


def _check_steps(whose: str, steps: int) -> None:
    # In Python a bool is an int, but True steps make no sense.
    if not isinstance(steps, int) or isinstance(steps, bool) or not 1 <= steps <= _MAX_STEPS:
        raise InputError(f"{whose} has {steps!r} local steps, it must be a whole number from 1 to {_MAX_STEPS:,}")


def _mean(group: Group, steps: int) -> float:
    """The mean duration of a task with this number of steps in this group, without transfers and overhead."""
    if group.per == "task":
        return group.delay.mean
    mean = group.delay.mean * steps
    check_mean(mean, f"the delay of group {group.name!r} for {steps} steps")
    return mean


def _paces(group: Group) -> Floats:
    """Per client of a group: the factor that its capacity gives."""
    return np.ones(group.count) if group.capacity is None else group.capacity.paces


def _transfer(group: Group, seed: int, model_bytes: int) -> Floats:
    """Per client of a group: the seconds per task for downloading and uploading the model."""
    seconds = np.zeros(group.count)
    for purpose, line in (("download", group.download), ("upload", group.upload)):
        if line is not None:
            megabits = line.quantile(seeds.first_uniforms(seeds.key(seed, purpose, group.name), group.count))
            seconds += model_bytes * 8e-6 / megabits
    if group.capacity is not None:
        seconds += model_bytes * group.capacity.seconds_per_byte()
    return seconds
