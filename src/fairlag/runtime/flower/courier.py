"""Messages to a fleet and their replies: one request asks for several, but a slow node does not delay the others."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import ceil
from threading import Condition, Thread
from time import monotonic

from flwr.app import Message
from flwr.serverapp import Grid

from fairlag.runtime.flower.nodes import LOG

_MAX_PER_SECOND = 10.0
"""The most requests for several replies per second, and the most for one: each costs a SuperLink some milliseconds."""
_SLOW = 2.0
"""A request for replies is slow if it takes longer than this many seconds."""
_MAX_TRIES = 6
"""How often in a row the SuperLink may fail to answer before a message is given up."""


@dataclass(slots=True)
class _Pending:
    """A message that is to be sent, or whose reply is pending."""

    name: Hashable
    message: Message | None
    node: int
    identity: str = ""
    failures: int = 0
    wanted: bool = True


class Courier:
    """Sends messages and asks for their replies, in a few threads.

    A request asks for as many replies as it must, so that each is asked for every `poll` seconds. Flower answers it
    when all replies that it found are uploaded, and loses all of them if one is broken. So after a request that was
    slow or failed, its nodes are asked one by one, each until one of its replies comes quickly and whole.
    """

    def __init__(
        self, grid: Grid, deliver: Callable[[Hashable, Message | Exception], None], *, threads: int, poll: float
    ) -> None:
        """`deliver` is called in one of the threads with a message's name and its reply or error."""
        self._grid = grid
        self._deliver = deliver
        self._poll = poll
        self._turn = count()
        self._due: list[tuple[float, int, _Pending]] = []
        self._pending: dict[Hashable, _Pending] = {}
        self._apart: set[int] = set()
        """The nodes that are asked one by one."""
        self._changed = Condition()
        self._open = True
        self._threads = [
            Thread(target=self._run, name=f"fairlag courier {each}", daemon=True) for each in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, name: Hashable, message: Message) -> None:
        """Sends the message; its reply is delivered under this name."""
        pending = self._pending[name] = _Pending(name, message, message.metadata.dst_node_id)
        self._schedule(pending, 0.0)

    def forget(self, name: Hashable) -> None:
        """Stops deliveries under this name."""
        pending = self._pending.pop(name, None)
        if pending is not None:
            pending.wanted = False
            self._apart.discard(pending.node)

    def close(self) -> None:
        """Ends the threads, at the latest when their current request is answered."""
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def _schedule(self, pending: _Pending, seconds: float) -> None:
        with self._changed:
            heappush(self._due, (monotonic() + seconds, next(self._turn), pending))
            self._changed.notify()

    def _next(self) -> Sequence[_Pending]:
        """Waits for a message to send, or for replies to ask for in one request; empty after `close`."""
        with self._changed:
            while self._open:
                wait = self._due[0][0] - monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    pending = heappop(self._due)[2]
                    if pending.wanted:
                        return self._joined(pending) if self._joins(pending) else [pending]
                else:
                    self._changed.wait(wait)
        return []

    def _joins(self, pending: _Pending) -> bool:
        return pending.message is None and pending.node not in self._apart

    def _joined(self, first: _Pending) -> list[_Pending]:
        """This reply and others that are due before it would be asked for again."""
        request, passed = [first], []
        most = ceil(len(self._pending) / (_MAX_PER_SECOND * self._poll))
        until = monotonic() + self._poll
        while len(request) < most and self._due and self._due[0][0] <= until:
            each = heappop(self._due)
            if not self._joins(each[2]):
                passed.append(each)
            elif each[2].wanted:
                request.append(each[2])
        for each in passed:
            heappush(self._due, each)
        return request

    def _run(self) -> None:
        while request := self._next():
            self._attend(request)

    def _attend(self, request: Sequence[_Pending]) -> None:
        """Sends a message or asks for replies; delivers those that have come, and asks again later for the others."""
        began, asking, failure = monotonic(), request[0].message is None, None
        replies: dict[str, Message] = {}
        try:
            replies = self._proceed(request)
        except Exception as error:  # the connection to the SuperLink may raise anything
            LOG.warning("The SuperLink does not answer: %s: %s", type(error).__name__, error)
            failure = error
        if asking and (failure is not None or monotonic() - began > _SLOW):
            self._apart.update(each.node for each in request)
        elif len(request) == 1 and not all(each.has_error() for each in replies.values()):
            self._apart.discard(request[0].node)
        for pending in request:
            self._note(pending, replies.get(pending.identity), failure)

    def _note(self, pending: _Pending, reply: Message | None, failure: Exception | None) -> None:
        """Delivers a reply or an error, or asks again later."""
        pending.failures = 0 if failure is None else pending.failures + 1
        answer = failure if pending.failures >= _MAX_TRIES else reply
        if answer is None:
            alone = len(self._apart) / _MAX_PER_SECOND if pending.node in self._apart else 0.0
            self._schedule(pending, max(self._poll, alone) * 2**pending.failures)
        elif pending.wanted:
            self._pending.pop(pending.name, None)
            self._deliver(pending.name, answer)

    def _proceed(self, request: Sequence[_Pending]) -> dict[str, Message]:
        """Sends a message, or asks for replies: those that have come, by the identity of their message."""
        first = request[0]
        if first.message is not None:
            (first.identity,) = self._grid.push_messages([first.message]) or ("",)
            if not first.identity:
                raise ConnectionError("a message was not accepted")
            first.message = None
            return {}
        replies = self._grid.pull_messages([each.identity for each in request])
        return {each.metadata.reply_to_message_id: each for each in replies}
