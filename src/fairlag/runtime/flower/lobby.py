"""Nodes that are online: each is asked who it is until it says so, and has the place of whoever it says it is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from flwr.app import Message

from fairlag.runtime.flower.nodes import LOG, Node
from fairlag.runtime.flower.options import Options
from fairlag.runtime.flower.roster import Place, Roster
from fairlag.runtime.flower.wire import RAISED, SILENT, failure, introduction

ANEW, OFF = "its node was started anew", "its node went offline"


@dataclass(slots=True)
class _Guest:
    """A node that is online, and the place that it has once it said who it is."""

    node: Node
    place: Place | None = None
    failures: int = 0
    """How often it could not be asked."""


class Lobby:
    """The nodes that are online, by their numbers."""

    def __init__(
        self,
        roster: Roster,
        options: Options,
        *,
        ask: Callable[[int], None],
        forget: Callable[[int], None],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        """`ask` sends a node the question, `forget` drops its answer, `later` does something after so many seconds."""
        self._roster = roster
        self._options = options
        self._ask = ask
        self._forget = forget
        self._later = later
        self._guests: dict[int, _Guest] = {}

    def seen(self, nodes: dict[int, Node]) -> Iterator[tuple[Place, str]]:
        """These are online now: yields the places that were left, and why."""
        vacated: set[int] = set()
        for number, guest in list(self._guests.items()):
            now = nodes.get(number)
            if now != guest.node:
                del self._guests[number]
                self._forget(number)
                if guest.place is not None and guest.place.node == number:
                    vacated.add(guest.place.number)
                    yield guest.place, OFF if now is None else ANEW
        for number in [each for each, guest in self._guests.items() if guest.place and guest.place.number in vacated]:
            del self._guests[number]  # it said the same name as the one that left: it is asked again
        for number, node in nodes.items():
            if number not in self._guests:
                self._guests[number] = _Guest(node)
                self._ask(number)

    def introduced(self, number: int, reply: Message | Exception) -> Place | None:
        """The place of a node that has said who it is; one whose app does not know the question has its number's."""
        guest = self._guests.get(number)
        if guest is None or guest.place is not None:
            return None
        if isinstance(reply, Exception) or (reply.has_error() and reply.error.code != RAISED):
            self._unanswered(number, guest, SILENT if isinstance(reply, Exception) else failure(reply))
            return None
        guest.place = place = self._roster.place(number, guest.node.key, introduction(reply))
        if place is None:
            LOG.warning(
                "Node %s is given nothing: there are %s clients already (max_clients)", number, self._roster.most
            )
            return None
        LOG.info("Node %s is client %s, %r", number, place.number, self._roster.group_of[place.number])
        return place

    def _unanswered(self, number: int, guest: _Guest, why: str) -> None:
        guest.failures += 1
        wait = self._options.wait(guest.failures)
        LOG.info("Node %s has not said who it is, %s: it is asked again in %.0f s", number, why, wait)
        self._later(wait, partial(self._again, number, guest))

    def _again(self, number: int, guest: _Guest) -> None:
        if self._guests.get(number) is guest:
            self._ask(number)
