"""Nodes that are online: each is asked for its name until it answers, and then gets the place of that name."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from flwr.app import Message

from fairlag.runtime.flower.gate import Gate
from fairlag.runtime.flower.nodes import LOG, Node
from fairlag.runtime.flower.options import Options
from fairlag.runtime.flower.roster import Place, Roster
from fairlag.runtime.flower.wire import RAISED, SILENT, failure, introduction

NODE_RESTARTED, NODE_OFFLINE = "its node was restarted", "its node went offline"


@dataclass(slots=True)
class _OnlineNode:
    """A node that is online, and its place once it has answered."""

    node: Node
    place: Place | None = None
    failures: int = 0
    """How often it did not answer."""


class Lobby:
    """The nodes that are online, by number."""

    def __init__(
        self,
        roster: Roster,
        options: Options,
        gate: Gate,
        *,
        ask: Callable[[int], None],
        forget: Callable[[int], None],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        """`ask` sends a node the question, `forget` drops its answer, `later` calls something after some seconds."""
        self._roster = roster
        self._options = options
        self._gate = gate
        self._ask = ask
        self._forget = forget
        self._later = later
        self._online: dict[int, _OnlineNode] = {}

    def seen(self, nodes: dict[int, Node]) -> Iterator[tuple[Place, str]]:
        """Updates the nodes that are online; yields the places that were left, and why."""
        vacated: set[int] = set()
        for number, online in list(self._online.items()):
            now = nodes.get(number)
            if now != online.node:
                del self._online[number]
                self._forget(number)
                if online.place is not None and online.place.node == number:
                    vacated.add(online.place.number)
                    yield online.place, NODE_OFFLINE if now is None else NODE_RESTARTED
        for number in [
            each for each, online in self._online.items() if online.place and online.place.number in vacated
        ]:
            del self._online[number]  # it has the same name as the one that left: it is asked again
        for number, node in nodes.items():
            if number not in self._online:
                self._online[number] = _OnlineNode(node)
                if self._gate.admits(number, node.key):
                    self._ask(number)

    def introduced(self, number: int, reply: Message | Exception) -> Place | None:
        """The place of a node that has answered; if its app does not know the question, its number is its name."""
        online = self._online.get(number)
        if online is None or online.place is not None:
            return None
        if isinstance(reply, Exception) or (reply.has_error() and reply.error.code != RAISED):
            self._unanswered(number, online, SILENT if isinstance(reply, Exception) else failure(reply))
            return None
        config = introduction(reply)
        place = self._roster.place(number, online.node.key, config)
        if isinstance(place, str):
            LOG.warning("Node %s gets no tasks: %s", number, place)
            self._gate.refused(self._roster.name(number, online.node.key, config), place)
            return None
        online.place = place
        LOG.info("Node %s is client %s, %r", number, place.number, self._roster.group_of[place.number])
        self._gate.seated(place, online.node.key)
        return place

    def _unanswered(self, number: int, online: _OnlineNode, why: str) -> None:
        online.failures += 1
        wait = self._options.wait(online.failures)
        LOG.info("Node %s has not given its name, %s: it is asked again in %.0f s", number, why, wait)
        self._later(wait, partial(self._again, number, online))

    def _again(self, number: int, online: _OnlineNode) -> None:
        if self._online.get(number) is online:
            self._ask(number)
