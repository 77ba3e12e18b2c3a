"""Which node is which client: identified by a stable name across restarts, with its recent failures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlag.core.state import State, take
from fairlag.runtime.flower.wire import GROUP, NAME, PARTITION


@dataclass(slots=True)
class Place:
    """A client of the fleet: its current node, and its recent failures."""

    number: int
    name: str
    node: int | None = None
    failures: int = 0
    """How many of its tasks in a row have failed."""
    away: float = 0.0
    """Until when it gets no task."""


@dataclass(slots=True)
class Roster:
    """The clients of a fleet, by the names of their nodes.

    `groups` are the names of the client groups and the expected number of clients of each; clients are numbered group
    by group. Clients beyond them get the next numbers.
    """

    groups: Sequence[tuple[str, int]]
    by_key: bool = False
    """Are nodes identified by their verified key, whatever name they give?"""
    most: int = 10_000
    """The most clients."""
    lasting: bool = False
    """Are nodes refused that could not be recognised after a restart? Each restart would begin a new privacy budget."""
    places: dict[str, Place] = field(default_factory=dict)
    """By name."""
    group_of: dict[int, str] = field(default_factory=dict)
    """The groups of the numbers in use."""
    _by_number: dict[int, Place] = field(default_factory=dict)

    def place(self, node: int, key: str, config: Mapping[str, Any]) -> Place | str:
        """The client of a node: the one with its name, or a new one; or why it gets no tasks."""
        if self.lasting and not self.by_key and config.keys().isdisjoint((NAME, PARTITION)):
            return "with noise in [privacy] it needs a name or partition-id, to be the same client after a restart"
        name = self.name(node, key, config)
        place = self.places.get(name)
        if place is None:
            if len(self.places) >= self.most:
                return f"there are already {self.most} clients (max_clients)"
            number = self._number(config)
            place = self.places[name] = self._by_number[number] = Place(number, name)
            self.group_of[number] = self._group(number, config)
        return place

    def holder(self, number: int) -> Place:
        """The client with this number."""
        return self._by_number[number]

    def name(self, node: int, key: str, config: Mapping[str, Any]) -> str:
        """The name of a node, by which it is recognised after a restart."""
        if self.by_key:
            return f"key {key}"
        if NAME in config:
            return f"name {config[NAME]}"
        if PARTITION in config:
            return f"partition {config[PARTITION]}"
        return f"node {node}"

    def _number(self, config: Mapping[str, Any]) -> int:
        """The partition if it is given and free, else the first free number of its group, else the next number."""
        taken, size = self.group_of, sum(count for _, count in self.groups)
        partition = config.get(PARTITION)
        if isinstance(partition, int) and 0 <= partition < size and partition not in taken:
            return partition
        for name, numbers in self._expected():
            if config.get(GROUP, name) == name:
                free = next((number for number in numbers if number not in taken), None)
                if free is not None:
                    return free
        return max([size - 1, *taken]) + 1

    def _group(self, number: int, config: Mapping[str, Any]) -> str:
        for name, numbers in self._expected():
            if number in numbers:
                return name
        names = [name for name, _ in self.groups]
        return str(config[GROUP]) if config.get(GROUP) in names else names[-1]

    def _expected(self) -> Iterator[tuple[str, range]]:
        """The numbers of each group's expected clients."""
        start = 0
        for name, count in self.groups:
            yield name, range(start, start + count)
            start += count

    def state(self) -> State:
        """Which name has which number; presence is not included."""
        return {
            "names": list(self.places),
            "numbers": [place.number for place in self.places.values()],
            "groups": [self.group_of[place.number] for place in self.places.values()],
        }

    def restore(self, state: State) -> None:
        """Restores the numbers of these names."""
        names, numbers = take(state, "names", list), take(state, "numbers", list)
        self.places = {name: Place(number, name) for name, number in zip(names, numbers, strict=True)}
        self._by_number = {place.number: place for place in self.places.values()}
        self.group_of = dict(zip(numbers, take(state, "groups", list), strict=True))
