"""A Flower grid in memory; tests decide how its nodes answer."""

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fairlag.runtime.flower.wire import GREETING, unpacked

# Flower sets this in the process of a ServerApp. Without it, no message can be made.
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

Answer = Callable[[Message], "Message | None"]
"""From a message to its reply; None if there is never a reply."""


def trained(message: Message, change: float = 0.5, examples: int = 7) -> Message:
    """The reply of a client that adds a number to all parameters that it was sent."""
    arrays = message.content.array_records["arrays"]
    after = {name: unpacked(each) for name, each in arrays.items()}
    after = {name: each + np.float32(change) if each.dtype == np.float32 else each for name, each in after.items()}
    return replied(message, after, examples)


def replied(message: Message, arrays: dict[str, Any], examples: Any = 7, **metrics: Any) -> Message:
    record = ArrayRecord({name: Array(np.asarray(each)) for name, each in arrays.items()})
    told = MetricRecord({**({} if examples is None else {"num-examples": examples}), **metrics})
    return Message(RecordDict({"arrays": record, "metrics": told}), reply_to=message)


def failing(message: Message, code: int = 2) -> Message:
    return Message(Error(code, "words of its own"), reply_to=message)


def _lost(reply: Message) -> Message:
    """What a grid replies if it has lost a reply."""
    lost = Message(Error(4, "lost"), reply_to=reply)
    lost.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
    return lost


@dataclass(slots=True)
class FakeNode:
    """A node: what it says about itself, how it answers, and after how many seconds."""

    told: dict[str, Any]
    answer: Answer = trained
    seconds: float = 0.0
    activated: str = "first"
    key: bytes = b""
    introduces: Answer | None = None
    """How it answers the question who it is, if it does not simply say so."""
    sent: list[tuple[float, Message]] = field(default_factory=list)
    """When each of its tasks arrived."""

    def introduce(self, message: Message) -> Message:
        return Message(RecordDict({"config": ConfigRecord(self.told)}), reply_to=message)


class FakeGrid(Grid):
    """Sends messages to nodes that are online. Each is answered after the delay of its node."""

    def __init__(self, nodes: dict[int, FakeNode]) -> None:
        self.nodes = nodes
        self.greeted: list[int] = []
        self.down = False
        """Is the SuperLink down?"""
        self.stuck: set[int] = set()
        """Nodes whose replies block the caller that asks for them."""
        self.broken: set[int] = set()
        """Nodes whose replies are lost with all others in the same request."""
        self.requests: list[list[int]] = []
        """Per request for replies: the nodes that were asked."""
        self._numbers = itertools.count()
        self._waiting: dict[str, tuple[int, float, Message | None]] = {}
        self._lock = threading.Lock()

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        raise AssertionError("deprecated")

    def send_and_receive(self, *arguments: Any, **named: Any) -> Iterable[Message]:
        raise AssertionError("waits for all nodes")

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        self._check()
        return [
            NodeInfo(node_id=number, last_activated_at=node.activated, public_key=node.key)
            for number, node in list(self.nodes.items())
        ]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        self._check()
        (message,) = messages
        number = message.metadata.dst_node_id
        node = self.nodes.get(number)
        with self._lock:
            name = f"message {next(self._numbers)}"
            message.metadata.__dict__["_message_id"] = name  # as Flower's grids do
            waits: tuple[float, Message | None]
            if node is None:
                waits = 0.0, failing(message, 5)
            elif message.metadata.message_type == GREETING:
                self.greeted.append(number)
                waits = 0.0, (node.introduces or node.introduce)(message)
            else:
                node.sent.append((time.monotonic(), message))
                waits = time.monotonic() + node.seconds, node.answer(message)
            self._waiting[name] = number, *waits
        return [name]

    @property
    def waiting(self) -> int:
        """The number of messages sent whose reply was never fetched."""
        return len(self._waiting)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self._check()
        now = time.monotonic()
        with self._lock:
            asked = {name: self._waiting[name] for name in message_ids}
            self.requests.append([number for number, _, _ in asked.values()])
        while self.stuck.intersection(number for number, _, _ in asked.values()):
            time.sleep(0.01)
        replies = {name: reply for name, (_, due, reply) in asked.items() if reply is not None and due <= now}
        broken = any(asked[name][0] in self.broken and not reply.has_error() for name, reply in replies.items())
        with self._lock:
            for name, reply in replies.items():
                number = self._waiting.pop(name)[0]
                if broken:
                    self._waiting[name] = number, 0.0, _lost(reply)
        if broken:
            raise ValueError("a reply cannot be read")
        return list(replies.values())

    def _check(self) -> None:
        if self.down:
            raise ConnectionError("nobody answers")
