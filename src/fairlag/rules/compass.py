"""Selection that plans local steps so that groups of clients finish together (FedCompass)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fairlag.core.durations import INSTANT
from fairlag.core.state import State, rows, table, take
from fairlag.core.types import Dispatch
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules import check
from fairlag.rules.select import Select, Selector, in_order

_ALONE, _LATE = -1, -2
"""Instead of a group's number: the first update of a client, and updates that arrived after their group's deadline."""


def compass(*, min_steps: int, max_steps: int, momentum: float = 0.9, slack: float = 1.5) -> Select:
    """All clients train; a client's number of local steps is planned so that it arrives together with its group.

    s_i, the seconds per step of client i, is (1 − `momentum`) of its last value plus `momentum` times that of its last
    task. A client joins the group for which it can make most steps Q = ⌊(T − now)/s_i⌋, from `min_steps` to
    `max_steps`, until the group's time T. If there is none, it founds a group: Q is the largest
    ⌊(L + `max_steps`·s − now)/s_i⌋ up to `max_steps` over all groups before their deadline L, s the seconds per step of
    a group's fastest member; at least `min_steps`, and `max_steps` if there is no such group. T = now + Q s_i,
    L = now + `slack`·Q s_i.

    A group is merged when all of it has arrived, or at L; then it is dissolved, and its clients wait for that. Updates
    that arrive later are merged with the next group, and their clients continue at once. The first update of a
    client, of `max_steps`, is merged on arrival.

    >>> compass(min_steps=20, max_steps=100).label
    'compass(20, 100, momentum=0.9, slack=1.5)'
    """
    check.whole("the smallest number of steps", min_steps, 1)
    check.whole("the largest number of steps", max_steps, 1)
    if min_steps > max_steps:
        raise StrategyError(f"the smallest number of steps is {min_steps}, it must be at most the largest, {max_steps}")
    check.share("the momentum of seconds per step", momentum)
    if not (slack >= 1 and math.isfinite(slack)):
        raise StrategyError(f"the slack of a group's deadline is {slack}, it must be a number of at least 1")
    return Select(
        f"compass({min_steps}, {max_steps}, momentum={momentum}, slack={slack})",
        lambda view, stream: _Compass(view, min_steps, max_steps, momentum, slack),
        plans=True,
        holds=True,
    )


@dataclass(slots=True)
class _Group:
    expected: float
    """T: when its clients should arrive."""
    latest: float
    """L: its deadline."""
    running: set[int] = field(default_factory=set)
    arrived: set[int] = field(default_factory=set)


class _Compass(Selector):
    def __init__(self, view: View, least: int, most: int, momentum: float, slack: float) -> None:
        super().__init__()
        self._view = view
        self._least, self._most, self._momentum, self._slack = least, most, momentum, slack
        self._idle: dict[int, None] = {}
        self._pace: dict[int, float] = {}
        """Per client that has sent an update: its seconds per step."""
        self._task: dict[int, tuple[int, int, float]] = {}
        """Per client: the group, the steps and the start of its last task."""
        self._groups: dict[int, _Group] = {}
        self._founded = 0
        self._tags: list[int] = []
        """Per update in the buffer: its group, or that it came first or late."""

    def free(self, client: int, current: bool, pending: bool) -> None:
        number = self._task[client][0] if client in self._task else _ALONE
        tag = self._arrived(client) if pending else _LATE
        if tag >= 0:
            self.waiting[client] = None
        else:
            self._idle[client] = None
        self._depart(client, number)
        self._aim()

    def _arrived(self, client: int) -> int:
        """Notes the pace of a client whose update has entered the buffer; returns the update's tag."""
        number, steps, start = self._task[client]
        pace = max(self._view.time - start, INSTANT) / steps
        self._pace[client] = (1 - self._momentum) * self._pace.get(client, pace) + self._momentum * pace
        group = self._groups.get(number)
        if group is not None and self._view.time <= group.latest:
            group.arrived.add(client)
        elif number != _ALONE:
            number = _LATE
        self._tags.append(number)
        return number

    def gone(self, client: int) -> None:
        self._idle.pop(client, None)
        self.waiting.pop(client, None)
        self._aim()

    def lost(self, client: int) -> None:
        self._depart(client, self._task[client][0])
        self._aim()

    def pick(self) -> Sequence[int]:
        picked = list(self._idle)
        self._idle.clear()
        for client in picked:
            number, steps = self._assigned(client) if client in self._pace else (_ALONE, self._most)
            self._task[client] = number, steps, self._view.time
        return picked

    def steps(self, client: int) -> int:
        return self._task[client][1]

    def draft(self, tasks: Sequence[Dispatch]) -> Sequence[bool]:
        due = self._due()
        if due:
            due.add(_LATE)
        if _ALONE in self._tags:
            due.add(_ALONE)
        counts = [tag in due for tag in self._tags]
        self._tags = [tag for tag in self._tags if tag not in due]
        for number in due:
            self._dissolve(number)
        return counts

    def _dissolve(self, number: int) -> None:
        group = self._groups.pop(number, None)
        for client in group.arrived if group is not None else ():
            # A client may have left and come back since, and wait for another group.
            if client in self.waiting and self._task[client][0] == number:
                del self.waiting[client]
                self._idle[client] = None

    def renew(self) -> Mapping[int, str]:
        # The fastest of a dissolved group choose first.
        self._idle = dict.fromkeys(sorted(self._idle, key=lambda client: (self._pace.get(client, 0.0), client)))
        self._aim()
        return {}

    def _assigned(self, client: int) -> tuple[int, int]:
        """The group that a client joins or founds, and the number of its steps."""
        now, pace = self._view.time, self._pace[client]
        fits = ((_whole((group.expected - now) / pace), number) for number, group in self._groups.items())
        steps, number = max((fit for fit in fits if self._least <= fit[0] <= self._most), default=(0, -1))
        if number < 0:
            steps, number = self._planned(now, pace), self._founded
            self._founded += 1
            self._groups[number] = _Group(now + steps * pace, now + self._slack * steps * pace)
        self._groups[number].running.add(client)
        return number, steps

    def _planned(self, now: float, pace: float) -> int:
        """The steps of a new group's first client: it should arrive when another group could be back once more."""
        found = -1
        for group in self._groups.values():
            if now < group.latest:
                fastest = min(self._pace[client] for client in (*group.running, *group.arrived))
                steps = _whole((group.latest + self._most * fastest - now) / pace)
                found = max(found, steps if steps <= self._most else -1)
        return self._most if found < 0 else max(found, self._least)

    def _depart(self, client: int, number: int) -> None:
        """A client of a group no longer runs; a group without clients is dissolved."""
        group = self._groups.get(number)
        if group is not None:
            group.running.discard(client)
            if not (group.running or group.arrived):
                del self._groups[number]

    def _due(self) -> set[int]:
        """The groups that can be merged now."""
        now, groups = self._view.time, self._groups.items()
        return {number for number, group in groups if group.arrived and (not group.running or now >= group.latest)}

    def _aim(self) -> None:
        """Publishes when the next group is due: at a deadline, or with the last of its updates."""
        groups = [group for group in self._groups.values() if group.arrived]
        self.until = min((group.latest for group in groups), default=math.inf)
        missing = 0 if _ALONE in self._tags else min((len(group.running) for group in groups), default=1)
        self.target = self._view.buffered + missing

    def state(self) -> State:
        groups = [(number, group.expected, group.latest) for number, group in self._groups.items()]
        members = [
            (number, client, client in group.arrived)
            for number, group in self._groups.items()
            for client in sorted(group.running | group.arrived)
        ]
        return {
            **super().state(),
            "idle": in_order(self._idle),
            "paces": table(self._pace.items(), client=int, pace=float),
            "tasks": table(
                [(client, *task) for client, task in self._task.items()], client=int, group=int, steps=int, start=float
            ),
            "groups": table(groups, number=int, expected=float, latest=float),
            "members": table(members, group=int, client=int, arrived=bool),
            "founded": self._founded,
            "tags": np.array(self._tags, np.int64),
            "target": self.target,
            "until": self.until,
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        self._idle = dict.fromkeys(take(state, "idle", np.ndarray).tolist())
        self._pace = dict(rows(take(state, "paces", dict), "client", "pace"))
        tasks = rows(take(state, "tasks", dict), "client", "group", "steps", "start")
        self._task = {client: (group, steps, start) for client, group, steps, start in tasks}
        groups = rows(take(state, "groups", dict), "number", "expected", "latest")
        self._groups = {number: _Group(expected, latest) for number, expected, latest in groups}
        for number, client, arrived in rows(take(state, "members", dict), "group", "client", "arrived"):
            (self._groups[number].arrived if arrived else self._groups[number].running).add(client)
        self._founded = take(state, "founded", int)
        self._tags = take(state, "tags", np.ndarray).tolist()
        self.target, self.until = take(state, "target", int), take(state, "until", float)


def _whole(steps: float) -> int:
    """Rounded down, but not because of the last bits of a quotient."""
    return math.floor(round(steps, 9))
