"""Messages to a fleet and their replies, each tracked separately: a slow node does not delay the others."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from threading import Condition, Thread
from time import monotonic

from flwr.app import Message
from flwr.serverapp import Grid

from fairlag.runtime.flower.nodes import LOG

_MAX_PER_SECOND = 20.0
"""The most requests for replies per second in total: each costs a SuperLink a few milliseconds of a core."""
_MAX_TRIES = 6
"""How often in a row the SuperLink may fail to answer before a message is given up."""


@dataclass(slots=True)
class _Pending:
    """A message that is to be sent, or whose reply is pending."""

    name: Hashable
    message: Message | None
    identity: str = ""
    failures: int = 0
    wanted: bool = True


class Courier:
    """Sends messages and asks for their replies, one message per call, in a few threads.

    Flower's pull of many messages blocks while any one of them is being uploaded; a pull of one message does not.
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
        self._changed = Condition()
        self._open = True
        self._threads = [
            Thread(target=self._run, name=f"fairlag courier {each}", daemon=True) for each in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, name: Hashable, message: Message) -> None:
        """Sends the message; its reply is delivered under this name."""
        pending = self._pending[name] = _Pending(name, message)
        self._schedule(pending, 0.0)

    def forget(self, name: Hashable) -> None:
        """Stops deliveries under this name."""
        pending = self._pending.pop(name, None)
        if pending is not None:
            pending.wanted = False

    def close(self) -> None:
        """Ends the threads, at the latest when their current request is answered."""
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def _schedule(self, pending: _Pending, seconds: float) -> None:
        with self._changed:
            heappush(self._due, (monotonic() + seconds, next(self._turn), pending))
            self._changed.notify()

    def _next(self) -> _Pending | None:
        """Waits for the next message that is due; None after `close`."""
        with self._changed:
            while self._open:
                wait = self._due[0][0] - monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    pending = heappop(self._due)[2]
                    if pending.wanted:
                        return pending
                else:
                    self._changed.wait(wait)
        return None

    def _run(self) -> None:
        while (pending := self._next()) is not None:
            self._attend(pending)

    def _attend(self, pending: _Pending) -> None:
        """Sends a message or asks for its reply; delivers the reply, or tries again later."""
        reply: Message | Exception | None
        try:
            reply = self._proceed(pending)
            pending.failures = 0
        except Exception as error:  # the connection to the SuperLink may raise anything
            pending.failures += 1
            LOG.warning("The SuperLink does not answer: %s: %s", type(error).__name__, error)
            reply = error if pending.failures >= _MAX_TRIES else None
        if reply is None:
            self._schedule(pending, max(self._poll, len(self._pending) / _MAX_PER_SECOND) * 2**pending.failures)
        elif pending.wanted:
            self._pending.pop(pending.name, None)
            self._deliver(pending.name, reply)

    def _proceed(self, pending: _Pending) -> Message | None:
        if pending.message is not None:
            (pending.identity,) = self._grid.push_messages([pending.message]) or ("",)
            if not pending.identity:
                raise ConnectionError("a message was not accepted")
            pending.message = None
            return None
        return next(iter(self._grid.pull_messages([pending.identity])), None)
