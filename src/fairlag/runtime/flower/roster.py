"""Which nodes are which clients: known again by a stable name however often a node restarts, and how they fare."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlag.core.state import State, take
from fairlag.runtime.flower.wire import GROUP, NAME, PARTITION


@dataclass(slots=True)
class Place:
    """A client of the fleet: the node that it is at the moment, and how it fares."""

    number: int
    node: int | None = None
    failures: int = 0
    """How many of its tasks in a row came to nothing."""
    away: float = 0.0
    """Until when it is given nothing."""


@dataclass(slots=True)
class Roster:
    """The clients of a fleet, by the names of their nodes.

    `groups` are the names of the client groups and how many clients each was expected to have: their clients are
    numbered through. Whoever is beyond them gets the next number.
    """

    groups: Sequence[tuple[str, int]]
    by_key: bool = False
    """Are nodes known by the key that they proved to have, whatever they say of themselves?"""
    most: int = 10_000
    """How many clients there may be."""
    places: dict[str, Place] = field(default_factory=dict)
    """By name."""
    group_of: dict[int, str] = field(default_factory=dict)
    """The groups of the numbers that were given."""
    _by_number: dict[int, Place] = field(default_factory=dict)

    def place(self, node: int, key: str, told: Mapping[str, Any]) -> Place | None:
        """The client that a node is: the one of its name, or a new one; None if that is one too many."""
        name = self._name(node, key, told)
        place = self.places.get(name)
        if place is None:
            if len(self.places) >= self.most:
                return None
            number = self._number(told)
            place = self.places[name] = self._by_number[number] = Place(number)
            self.group_of[number] = self._group(number, told)
        return place

    def holder(self, number: int) -> Place:
        """Whoever has that number."""
        return self._by_number[number]

    def _name(self, node: int, key: str, told: Mapping[str, Any]) -> str:
        if self.by_key:
            return f"key {key}"
        if NAME in told:
            return f"name {told[NAME]}"
        if PARTITION in told:
            return f"partition {told[PARTITION]}"
        return f"node {node}"

    def _number(self, told: Mapping[str, Any]) -> int:
        """The partition where there is one that nobody has, else the first free one of its group, else the next."""
        taken, size = self.group_of, sum(count for _, count in self.groups)
        partition = told.get(PARTITION)
        if isinstance(partition, int) and 0 <= partition < size and partition not in taken:
            return partition
        for name, numbers in self._expected():
            if told.get(GROUP, name) == name:
                free = next((number for number in numbers if number not in taken), None)
                if free is not None:
                    return free
        return max([size - 1, *taken]) + 1

    def _group(self, number: int, told: Mapping[str, Any]) -> str:
        for name, numbers in self._expected():
            if number in numbers:
                return name
        names = [name for name, _ in self.groups]
        return str(told[GROUP]) if told.get(GROUP) in names else names[-1]

    def _expected(self) -> Iterator[tuple[str, range]]:
        """The numbers of each group's clients, as far as they were expected."""
        start = 0
        for name, count in self.groups:
            yield name, range(start, start + count)
            start += count

    def state(self) -> State:
        """Who has which number; who is there is not part of it."""
        return {
            "names": list(self.places),
            "numbers": [place.number for place in self.places.values()],
            "groups": [self.group_of[place.number] for place in self.places.values()],
        }

    def restore(self, state: State) -> None:
        """Nodes of these names are these clients again."""
        names, numbers = take(state, "names", list), take(state, "numbers", list)
        self.places = {name: Place(number) for name, number in zip(names, numbers, strict=True)}
        self._by_number = {place.number: place for place in self.places.values()}
        self.group_of = dict(zip(numbers, take(state, "groups", list), strict=True))
