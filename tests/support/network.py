"""A hostile fleet for a `Link`, in one thread: nodes, a SuperLink between them and the server, and a clock that jumps.

It takes the places of the link's queue and clock, and of the threads of its courier and of its watcher of nodes, which
are otherwise the real ones. The SuperLink fails, or takes a message and fails to say so. Replies come late, in any
order, twice, broken, or never; nodes go, come back, restart, or give the name of another; people exclude and release
nodes. At last all is `calm`: then everyone who may take part must do so.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from queue import Empty
from random import Random
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.proto.node_pb2 import NodeInfo

from fairlag.core.types import Arrived, Dispatch
from fairlag.core.vector import Layout, Vector
from fairlag.runtime.flower import courier, link, nodes
from fairlag.runtime.flower.nodes import fingerprint
from fairlag.runtime.flower.wire import NAME, PARTITION, unpacked
from tests.support.answers import BROKEN, FORGED
from tests.support.carrier import Carrier, Reply
from tests.support.flower_grid import failing, replied
from tests.support.governing import Governing

MOST_EXAMPLES = 50
"""The most examples that a client is believed to have."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A node that is online: which client it is, when it was started, and its key."""

    client: int
    started: str
    key: bytes


class Network:
    """The nodes of a fleet of so many clients. `saved` is the newest version that is on disk."""

    def __init__(
        self,
        clients: int,
        chance: Random,
        faults: Counter[str],
        saved: Callable[[], int],
        *,
        keyed: bool,
        layout: Layout,
        version: Callable[[int], Vector],
    ) -> None:
        """With `keyed`, nodes are identified by their keys, and one of them may not be allowed to take part.

        `version` has the parameters of a version that the server keeps.
        """
        self._chance, self._faults, self._saved = chance, faults, saved
        self._layout, self._version = layout, version
        self.governing = Governing(chance, faults)
        self.clock = 0.0
        self.calm = False
        self.trace: deque[object] = deque(maxlen=25)
        self._waiting: deque[Any] = deque()
        self._held: dict[str, tuple[Message, str]] = {}
        """The messages that the SuperLink has: by name, with the start of the node that they were sent to."""
        self._sent: dict[int, tuple[str, int]] = {}
        """The tasks that this server has sent: to whom, and how many local steps they ask for."""
        self._trained: dict[int, Vector | None] = {}
        """Per task that was answered: its update; None if the answer was none."""
        self._answered: list[tuple[Hashable, Reply]] = []
        self._number, self._starts = 100 + clients, 0
        self.keyed, self._clients = keyed, clients
        made = {100 + each: _Node(each, "0", self._key(each)) for each in range(clients)}
        self._all, self._online = dict(made), dict(made)
        self.allowed: dict[str, str] | None = None
        if keyed and chance.random() < 0.7:
            listed = range(clients - (clients > 1 and chance.random() < 0.5))
            self.allowed = {fingerprint(self._key(each)): f"client {each}" for each in listed}
        self._told: dict[int, dict[str, Any]] = {}
        """What each node says about itself, by its number."""
        self._tasks: dict[int, tuple[Dispatch, Message]] = {}
        """By the identity of a message: its task."""
        self.clients: dict[int, str] = {}
        """What the node of each client is called; it never changes."""
        self._courier: Carrier | None = None
        self._watcher: nodes.NodeWatcher | None = None

    def _key(self, client: int) -> bytes:
        return f"the key of {client}".encode() if self.keyed else b""

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Inside, a link that is made meets this network."""
        with ExitStack() as held:
            for module, name, made in (
                (link, "Courier", self._new_courier),
                (link, "NodeWatcher", self._new_watcher),
                (link, "SimpleQueue", lambda: self),
                (link, "monotonic", lambda: self.clock),
                (courier, "monotonic", lambda: self.clock),
                (courier, "Thread", MagicMock()),
                (nodes, "Thread", MagicMock()),
            ):
                held.enter_context(patch.object(module, name, made))
            yield

    def restarted(self) -> None:
        """The server is another process now: what was under way to it is lost."""
        if self._courier is not None:
            self._faults["reply lost with the server"] += self._courier.under_way()
        self._courier = self._watcher = None
        self._waiting.clear()
        self._sent.clear()
        self._trained.clear()
        self._answered.clear()

    def becomes_calm(self) -> None:
        """From now on there are no more faults: every node of its own key is online."""
        self.calm = True
        kept = {node.client: number for number, node in self._all.items()}
        self._online = {number: self._all[number] for number in kept.values()}

    def _new_courier(self, grid: object, deliver: Callable[[Hashable, Reply], None], **options: Any) -> Carrier:
        def delivered(name: Hashable, reply: Reply) -> None:
            self._answered = [*self._answered[-9:], (name, reply)]
            deliver(name, reply)

        self._courier = Carrier(self, grid, delivered, **options)
        return self._courier

    def _new_watcher(self, grid: Any, tell: Any, **options: Any) -> nodes.NodeWatcher:
        self._watcher = nodes.NodeWatcher(grid, tell, **options)
        return self._watcher

    def races(self) -> bool:
        """Does a thread of the courier finish what it is doing before it is told to forget it?"""
        return self._chance.random() < 0.3

    # What must be so

    def check_sent(self, name: Hashable, message: Message) -> None:
        """The link sends a task, or asks a node for its name."""
        number = message.metadata.dst_node_id
        node = self._all[number]
        assert self.allowed is None or fingerprint(node.key) in self.allowed, "a node that is not listed was asked"
        if not isinstance(name, Dispatch):
            return
        assert name.version <= self._saved(), f"version {name.version} was sent before it was on disk"
        assert name.task not in self._sent, f"task {name.task} was sent twice"
        told = message.content.config_records["config"]
        assert (told["version"], told["ordinal"]) == (name.version, name.ordinal)
        self._tasks[id(message)] = name, message
        called = self.clients.setdefault(int(str(told["client"])), self._called(number))
        assert called == self._called(number), f"a task for {called} was sent to {self._called(number)}"
        self._sent[name.task] = called, int(str(told["local-steps"]))
        self.governing.check_sent(called)
        arrays = {name: unpacked(each) for name, each in message.content.array_records["arrays"].items()}
        assert self._layout.flatten(arrays).tobytes() == self._version(name.version)[: self._layout.size].tobytes()

    def check_arrived(self, event: Arrived) -> None:
        """The link hands over an update: it is the one that was trained, and its report is within bounds."""
        expected, report = self._trained.get(event.task), event.update.report
        assert expected is not None, f"task {event.task} was not trained"
        found = event.update.delta[: self._layout.size]
        assert found.tobytes() == expected.tobytes(), f"{found} is not the update of task {event.task}, {expected}"
        assert report.examples <= MOST_EXAMPLES and report.loss <= 100, f"{report} is believed"
        called, steps = self._sent[event.task]
        assert steps / 2 <= report.steps <= 2 * steps, f"{report} is believed"
        self.governing.check_heard(called)

    def wrong(self, present: set[int], queued: int) -> str:
        """What is not as it must be in the end: all who may take part do, and all that people decided has happened."""
        for number, node in self._online.items():
            if self.allowed is not None and fingerprint(node.key) not in self.allowed:
                continue
            if number not in self._told:
                return f"node {number} was not asked for its name"
            called = self._called(number)
            places = [client for client, name in self.clients.items() if name == called]
            if places and called not in self.governing.barred and places[0] * queued not in present:
                return f"{called} is not present"
        return self.governing.wrong()

    # As the SuperLink

    def get_node_ids(self) -> list[int]:
        return list(self._online)

    def get_nodes(self) -> Iterable[NodeInfo]:
        self._may_fail()
        return [
            NodeInfo(node_id=number, last_activated_at=node.started, public_key=node.key)
            for number, node in self._online.items()
        ]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        (message,) = messages
        self._may_fail()
        node = self._online.get(message.metadata.dst_node_id)
        name = f"message {len(self._held)}"
        message.metadata.__dict__["_message_id"] = name  # as Flower's grids do
        self._held[name] = message, "" if node is None else node.started
        if not self.calm and self._chance.random() < 0.02:
            self._faults["message taken, but not confirmed"] += 1
            raise ConnectionError("silent")
        return [name]

    def pull_messages(self, names: Iterable[str]) -> list[Message]:
        self._may_fail()
        return [reply for name in names if (reply := self._reply(*self._held[name])) is not None]

    def _reply(self, message: Message, started: str) -> Message | None:
        """The reply to a message that was sent to a node when it had been started at that time, if it has come."""
        node = self._online.get(message.metadata.dst_node_id)
        if node is None or node.started != started:  # the node that had it is gone
            return failing(message, 5) if self._chance.random() < 0.1 else None
        if not self.calm and self._chance.random() < 0.3:
            return None
        if message.metadata.message_type != MessageType.TRAIN:
            return self._introduced(message)
        return self._answer(message)

    def _may_fail(self) -> None:
        if not self.calm and self._chance.random() < 0.04:
            self._faults["SuperLink silent"] += 1
            raise ConnectionError("silent")

    # As the queue

    def put(self, item: object) -> None:
        self._waiting.append(item)

    def get(self, timeout: float) -> Any:
        chance, act = self._chance, self._chance.random()
        self.clock += chance.choice([0.0, 0.01, 0.3, 2.0])
        if not self.calm and chance.random() < 0.01:
            self.clock += 1e6
            self._faults["clock jumped forwards"] += 1
        if not self._waiting and self._courier is not None:
            if act < 0.1 and not self.calm:
                self._change()
            elif act < 0.18 and self._watcher is not None:
                self._watcher._look()
            elif self._courier.is_due and (act < 0.9 or self.calm):
                self._courier.carry()
            elif self._answered and act < 0.93 and not self.calm:
                self._faults["reply delivered again"] += 1
                self._courier._deliver(*chance.choice(self._answered))
            else:
                self.clock += timeout + 0.01
        if not self._waiting:
            raise Empty
        if not self.calm and len(self._waiting) > 1 and chance.random() < 0.2:
            self._faults["reply out of order"] += 1
            self._waiting.rotate(-1)
        return self._waiting.popleft()

    def _change(self) -> None:
        """Nodes come, go or restart, or people decide about them; the server has to find out."""
        chance = self._chance
        away = sorted(self._all.keys() - self._online.keys())
        kinds = ["goes", "comes", "comes", "restarts", "new number", "name of another", "a person decides"]
        kind = chance.choice(kinds)
        self._starts += 1
        started, online = str(self._starts), sorted(self._online)
        if kind == "goes" and online:
            del self._online[chance.choice(online)]
            self._faults["node went offline"] += 1
        elif kind == "comes" and away:
            number = chance.choice(away)
            self._start(number, number, started)
        elif kind == "restarts" and online:
            number = chance.choice(online)
            self._start(number, number, started)
            self._faults["node restarted"] += 1
        elif kind in ("new number", "name of another") and online:
            old = chance.choice(online)
            self._number += 1
            self._start(self._number, old, started)
            if kind == "new number":
                del self._online[old]
            self._faults["node came back under a new number" if kind == "new number" else "two nodes of one name"] += 1
        elif kind == "a person decides" and self.clients and chance.random() < 0.3:
            self.governing.decides(sorted({*self.clients.values()}))
        self.trace.append(f"{kind}: {sorted(self._online)}")

    def _start(self, number: int, like: int, started: str) -> None:
        client = self._all[like].client
        self._all[number] = self._online[number] = _Node(client, started, self._key(client))

    def _introduced(self, message: Message) -> Message:
        number = message.metadata.dst_node_id
        if not self.calm and self._chance.random() < 0.1:
            self._faults["node does not say who it is"] += 1
            return failing(message, 8)
        if number not in self._told:
            self._told[number] = self._says(self._all[number].client)
        self.trace.append((number, "is", self._called(number)))
        return Message(RecordDict({"config": ConfigRecord(self._told[number])}), reply_to=message)

    def _says(self, client: int) -> dict[str, Any]:
        """What a node says about itself, as long as it has its number."""
        chance = self._chance
        if self.calm or chance.random() < 0.9:
            return {PARTITION: client}
        if self.keyed:
            self._faults["name of another, with a key of its own"] += 1
            return {PARTITION: chance.randrange(self._clients)}
        self._faults["name forged"] += 1
        return chance.choice(FORGED)

    def _called(self, number: int) -> str:
        """The name of a node that has introduced itself."""
        told = self._told[number]
        if self.keyed:
            return f"key {fingerprint(self._all[number].key)}"
        if told.get(NAME, "") != "x" * 999 and NAME in told:
            return f"name {told[NAME]}"
        return f"partition {told[PARTITION]}" if PARTITION in told else f"node {number}"

    def _answer(self, message: Message) -> Message:
        """What a node sends back for a task."""
        chance, task = self._chance, self._tasks[id(message)][0]
        arrays = {name: unpacked(each) for name, each in message.content.array_records["arrays"].items()}
        if self.calm or chance.random() < 0.7:
            after = {name: each + np.float32(chance.uniform(-1, 1)) for name, each in arrays.items()}
            after = {name: abs(each) if "var" in name else each for name, each in after.items()}
            self._note(task, arrays, after)
            return replied(message, after, chance.randint(1, 60))
        name, make = chance.choice(BROKEN)
        self._faults[name] += 1
        self._trained[task.task] = None
        if name == "report exaggerated":
            self._note(task, arrays, arrays)
        self.trace.append((task.task, name))
        return make(message, arrays, chance)

    def _note(self, task: Dispatch, before: dict[str, Any], after: dict[str, Any]) -> None:
        """The node trained: changes of parameters, and values of statistics."""
        update = self._layout.flatten(after).copy()
        split = self._layout.parameters.size
        update[:split] -= self._layout.flatten(before)[:split]
        self._trained[task.task] = update
