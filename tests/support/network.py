"""A hostile fleet for a `Link`, in one thread: nodes, a SuperLink between them and the server, and a clock that jumps.

It takes the places of the link's courier, of its watcher of nodes, of its queue and of its clock. Replies come late, in
any order, twice, broken, or never; nodes go, come back, restart, or give the name of another.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf, nan
from queue import Empty
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict

from fairlag.core.types import Dispatch
from fairlag.runtime.flower import link
from fairlag.runtime.flower.nodes import Node
from fairlag.runtime.flower.wire import NAME, PARTITION, unpacked
from tests.support.flower_grid import failing, replied, trained

Reply = Message | Exception


class Network:
    """The nodes of a fleet of so many clients. `saved` is the newest version that is on disk."""

    def __init__(self, clients: int, chance: Random, faults: Counter[str], saved: Callable[[], int]) -> None:
        self._chance, self._faults, self._saved = chance, faults, saved
        self.clock = 0.0
        self.trace: deque[object] = deque(maxlen=25)
        self._waiting: deque[Any] = deque()
        self._under_way: list[tuple[Hashable, Message]] = []
        self._sent: set[int] = set()
        """The tasks that this server has sent."""
        self._answered: list[tuple[Hashable, Reply]] = []
        self._number, self._starts = 100 + clients, 0
        self._clients = {100 + each: each for each in range(clients)}
        """By the number of a node: which client it is."""
        self._online = {number: Node("0", f"key {number}") for number in self._clients}
        self._deliver: Callable[[Hashable, Reply], None] = lambda name, reply: None
        self._tell: Callable[[dict[int, Node]], None] = lambda nodes: None

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Inside, a link that is made meets this network."""
        with ExitStack() as held:
            for name, made in (
                ("Courier", self._courier),
                ("NodeWatcher", self._watcher),
                ("SimpleQueue", lambda: self),
                ("monotonic", lambda: self.clock),
            ):
                held.enter_context(patch.object(link, name, made))
            yield

    def restarted(self) -> None:
        """The server is another process now: what was under way to it is lost."""
        self._waiting.clear()
        self._sent.clear()
        self._faults["reply lost with the server"] += len(self._under_way)
        self._under_way.clear()
        self._answered.clear()

    def _courier(self, grid: object, deliver: Any, **_: Any) -> "Network":
        self._deliver = deliver
        return self

    def _watcher(self, grid: object, tell: Any, **_: Any) -> "Network":
        self._tell = tell
        tell(dict(self._online))
        return self

    def get_node_ids(self) -> list[int]:
        return list(self._online)

    # As the courier, and as the watcher of nodes

    def send(self, name: Hashable, message: Message) -> None:
        if isinstance(name, Dispatch):
            assert name.version <= self._saved(), f"version {name.version} was sent before it was on disk"
            assert name.task not in self._sent, f"task {name.task} was sent twice"
            self._sent.add(name.task)
        self._under_way.append((name, message))

    def forget(self, name: Hashable) -> None:
        if self._chance.random() < 0.7:  # otherwise it comes all the same: its reply was already under way
            self._under_way = [each for each in self._under_way if each[0] != name]

    def close(self) -> None: ...

    # As the queue

    def put(self, item: object) -> None:
        self._waiting.append(item)

    def get(self, timeout: float) -> Any:
        chance, act = self._chance, self._chance.random()
        self.clock += chance.choice([0.0, 0.01, 0.3, 2.0])
        if chance.random() < 0.01:
            self.clock += 1e6
            self._faults["clock jumped forwards"] += 1
        if not self._waiting:
            if act < 0.12:
                self._change()
            elif act < 0.85 and self._under_way:
                self._answer()
            elif act < 0.92 and self._answered:
                self._faults["reply delivered again"] += 1
                self._deliver(*chance.choice(self._answered))
            else:
                self.clock += timeout + 0.01
                raise Empty
        if not self._waiting:
            raise Empty
        return self._waiting.popleft()

    def _change(self) -> None:
        """Nodes come, go or restart, and the server is told."""
        chance = self._chance
        away = sorted(self._clients.keys() - self._online.keys())
        kind = chance.choice(["goes", "comes", "comes", "restarts", "new number", "name of another"])
        self._starts += 1
        if kind == "goes" and self._online:
            del self._online[chance.choice(sorted(self._online))]
            self._faults["node went offline"] += 1
        elif kind == "comes" and away:
            self._online[chance.choice(away)] = Node(str(self._starts), "")
        elif kind == "restarts" and self._online:
            self._online[chance.choice(sorted(self._online))] = Node(str(self._starts), "")
            self._faults["node restarted"] += 1
        elif kind in ("new number", "name of another") and self._online:
            old = chance.choice(sorted(self._online))
            self._number += 1
            self._clients[self._number] = self._clients[old]
            self._online[self._number] = Node(str(self._starts), "")
            if kind == "new number":
                del self._online[old]
            self._faults["node came back under a new number" if kind == "new number" else "two nodes of one name"] += 1
        self.trace.append(f"{kind}: {sorted(self._online)}")
        self._tell(dict(self._online))

    def _answer(self) -> None:
        """Any message that is under way is answered, in any order."""
        chance = self._chance
        place = chance.randrange(len(self._under_way))
        if place:
            self._faults["reply out of order"] += 1
        name, message = self._under_way.pop(place)
        reply = self._trained(message) if isinstance(name, Dispatch) else self._introduced(name, message)
        self.trace.append((name, "is answered", type(reply).__name__))
        self._answered = [*self._answered[-9:], (name, reply)]
        self._deliver(name, reply)

    def _introduced(self, name: Hashable, message: Message) -> Reply:
        chance = self._chance
        if chance.random() < 0.1:
            self._faults["node does not say who it is"] += 1
            silent: list[Reply] = [ConnectionError("silent"), failing(message, 8)]
            return chance.choice(silent)
        assert isinstance(name, int)
        told: dict[str, Any] = {PARTITION: self._clients[name]}
        if chance.random() < 0.1:
            self._faults["name forged"] += 1
            told = chance.choice([{NAME: "x" * 999}, {NAME: nan}, {PARTITION: -1}, {PARTITION: 1e300}, {}])
        return Message(RecordDict({"config": ConfigRecord(told)}), reply_to=message)

    def _trained(self, message: Message) -> Reply:
        chance = self._chance
        if chance.random() < 0.7:
            return trained(message, chance.uniform(-1, 1), chance.randint(1, 60))
        arrays = {name: unpacked(each) for name, each in message.content.array_records["arrays"].items()}
        bad = {name: each + np.float32(chance.choice([nan, inf])) for name, each in arrays.items()}
        kinds: list[tuple[str, Callable[[], Reply]]] = [
            ("update not finite", lambda: replied(message, bad)),
            ("update of the wrong shape", lambda: replied(message, {name: each[1:] for name, each in arrays.items()})),
            (
                "update of the wrong type",
                lambda: replied(message, {n: e.astype(np.float64) for n, e in arrays.items()}),
            ),
            ("update of the wrong names", lambda: replied(message, {f"x{n}": each for n, each in arrays.items()})),
            ("report not plausible", lambda: replied(message, arrays, None)),
            ("report not plausible", lambda: replied(message, arrays, chance.choice([0, -3, 0.5, nan]))),
            ("report exaggerated", lambda: replied(message, arrays, 10**12, **{"num-steps": 10**9, "loss": 1e300})),
            ("report not plausible", lambda: replied(message, arrays, 5, loss=nan)),
            ("client raised an error", lambda: failing(message, chance.randint(1, 9))),
            ("SuperLink silent", lambda: ConnectionError("silent")),
        ]
        name, make = chance.choice(kinds)
        self._faults[name] += 1
        return make()
