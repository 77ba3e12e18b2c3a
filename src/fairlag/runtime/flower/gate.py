"""Who gets tasks: nodes whose key is on the allow-list and that are not in quarantine. It reads and writes no files."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from fairlag.core.types import Aggregation, Ended, Outcome, Row
from fairlag.errors import InputError
from fairlag.limits import shown
from fairlag.runtime.decisions import ADMITTED, BOUNDED, QUARANTINED, REFUSED, RELEASED, Order, plain
from fairlag.runtime.flower.nodes import LOG
from fairlag.runtime.flower.roster import Place, Roster

UNLISTED = "its key is not on the allow-list"
IN_QUARANTINE = "its node is in quarantine"

MALFORMED = (
    "it does not hold exactly one record of arrays",
    "its arrays are not named as those that were sent",
    "an array has a different shape than the one that was sent",
    "an array is not ",
    "an array cannot be read",
    "its metrics have no whole number ",
    "its num-steps is not a whole number",
    "it is not masked",
    "the shape is not ",
    "the number of examples is not ",
    "the number of steps is not ",
)
"""How the reasons begin for refusing a reply that no working ClientApp sends, whatever it was trained on."""


@dataclass(frozen=True, slots=True)
class Strikes:
    """A rule that puts a node into quarantine: `refusals` of its last `among` updates were refused for such a reason.

    A reason counts if it begins with one of `reasons`; `Run(…).refusals` shows what reasons there are.

    >>> Strikes(refusals=0)
    Traceback (most recent call last):
    fairlag.errors.InputError: refusals of Strikes is 0, it must be a whole number of at least 1
    """

    refusals: int = 3
    among: int = 20
    reasons: tuple[str, ...] = MALFORMED

    def __post_init__(self) -> None:
        for name in ("refusals", "among"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InputError(f"{name} of Strikes is {value!r}, it must be a whole number of at least 1")
        if self.among < self.refusals:
            raise InputError(
                f"among of Strikes is {self.among}, it must be at least refusals, which is {self.refusals}"
            )
        wrong = not isinstance(self.reasons, tuple | list) or not all(isinstance(each, str) for each in self.reasons)
        if wrong or not self.reasons or not all(self.reasons):
            raise InputError(
                f"reasons of Strikes is {shown(self.reasons)}, it must be a tuple of beginnings of reasons"
            )


Note = Callable[[str, str, int | None, str], None]
"""Is told each decision: its kind, the node's name, its client if it has one, and why."""


def _unheard(kind: str, node: str, client: int | None, why: str) -> None: ...


class Gate:
    """Decides which nodes get tasks, and tells `note` each decision.

    `allowed` has the fingerprints of the keys that may take part, each with a comment; None lets any key in.
    `quarantined` has the names of the nodes in quarantine, each on one line, with the reasons. `orders` yields what
    people decided since the last call; an order may be forgotten when the next one is asked for.
    """

    def __init__(
        self,
        roster: Roster,
        *,
        queued: int = 1,
        allowed: Mapping[str, str] | None = None,
        quarantined: Mapping[str, str] | None = None,
        strikes: Strikes | None = None,
        orders: Callable[[], Iterable[Order]] = tuple,
        note: Note = _unheard,
    ) -> None:
        self._roster = roster
        self._queued = queued
        self._allowed = allowed
        self._strikes = strikes
        self._orders = orders
        self._note = note
        self._quarantined = dict(quarantined or {})
        self._last: dict[str, deque[bool]] = {}
        """The last updates of a node: was each refused for a reason that counts?"""
        self._struck: list[Order] = []
        """What the rule has decided and nobody has carried out."""

    def bars(self, place: Place) -> bool:
        """Is the node of this place in quarantine?"""
        return plain(place.name) in self._quarantined

    def admits(self, number: int, key: str) -> bool:
        """May a node with this key take part?"""
        if self._allowed is None or key in self._allowed:
            return True
        LOG.warning("Node %s gets no tasks: %s", number, UNLISTED)
        self._note(REFUSED, f"key {key}", None, UNLISTED)
        return False

    def _client(self, place: Place) -> int:
        """The number of a node's client, or of the first of them, as reports show it."""
        return place.number * self._queued

    def refused(self, name: str, why: str) -> None:
        """A node got no place in the roster."""
        self._note(REFUSED, name, None, why)

    def seated(self, place: Place, key: str) -> None:
        """A node was recognised."""
        if self.bars(place):
            LOG.warning("Client %s gets no tasks: %s", self._client(place), IN_QUARANTINE)
            self._note(REFUSED, place.name, self._client(place), IN_QUARANTINE)
            return
        label = (self._allowed or {}).get(key)
        listed = f"its key is on the allow-list{f', as {shown(label)}' if label else ''}"
        self._note(
            ADMITTED, place.name, self._client(place), "any node is admitted" if self._allowed is None else listed
        )

    def bounded(self, client: int, what: str) -> None:
        """A client's own statement about its update was cut to a bound."""
        place = self._roster.holder(client // self._queued)
        self._note(BOUNDED, place.name, self._client(place), what)

    def watch(self, row: Row) -> None:
        """Takes what the server records: refused updates count as strikes, merged ones as good."""
        if type(row) is Aggregation:
            for task in row.tasks:
                self._count(self._roster.holder(task.client // self._queued), None)
        elif type(row) is Ended and row.outcome == Outcome.REFUSED and row.reason != IN_QUARANTINE:
            place = self._roster.holder(row.task.client // self._queued)
            self._note(REFUSED, place.name, self._client(place), row.reason)
            self._count(place, row.reason)

    def _count(self, place: Place, reason: str | None) -> None:
        """Takes the end of an update of a node: refused for a reason, or merged."""
        rule = self._strikes
        if rule is None or self.bars(place):
            return
        last = self._last.setdefault(place.name, deque(maxlen=rule.among))
        last.append(reason is not None and reason.startswith(tuple(rule.reasons)))
        if sum(last) >= rule.refusals:
            del self._last[place.name]
            words = f"{rule.refusals} of its last {rule.among} updates were refused, the last one because: {reason}"
            self._struck.append(Order(plain(place.name), words))

    @property
    def struck(self) -> bool:
        """Has the rule decided anything that was not carried out?"""
        return bool(self._struck)

    def decided(self) -> list[tuple[Order, list[Place]]]:
        """Notes what people and the rule have decided, and returns what must be carried out, with the places."""
        fresh = []
        struck, self._struck = self._struck, []
        for order in chain(struck, self._orders()):  # one by one: asking for the next one forgets the last
            if order.release != (order.node in self._quarantined):
                LOG.warning("%r is in the state that was asked for: nothing changes", order.node)
                continue
            if order.release:
                del self._quarantined[order.node]
            else:
                self._quarantined[order.node] = order.why
            places = [each for name, each in self._roster.places.items() if plain(name) == order.node]
            kind, client = RELEASED if order.release else QUARANTINED, self._client(places[0]) if places else None
            LOG.warning("%r is %s: %s", order.node, kind, order.why)
            self._note(kind, order.node, client, order.why)
            fresh.append((order, places))
        return fresh
