"""Messages to a fleet and their replies, each followed by itself: who is stuck holds up nobody else."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from threading import Condition, Thread
from time import monotonic

from flwr.app import Message
from flwr.serverapp import Grid

from fairlag.runtime.flower.nodes import LOG

_MOST_A_SECOND = 20.0
"""How often in all replies are asked for: each question costs a SuperLink some milliseconds of a core."""
_MOST_TRIES = 6
"""How often in a row the SuperLink may fail to answer about a message before the errand is given up."""


@dataclass(slots=True)
class _Errand:
    """A message that is to be sent, or whose reply is awaited."""

    name: Hashable
    message: Message | None
    identity: str = ""
    failures: int = 0
    wanted: bool = True


class Courier:
    """Sends messages and asks for their replies, one message a call, in a few threads.

    Flower's pull of many messages waits for all of them while one is being uploaded; its pull of one does not.
    """

    def __init__(
        self, grid: Grid, deliver: Callable[[Hashable, Message | Exception], None], *, threads: int, poll: float
    ) -> None:
        """`deliver` is called, in one of the threads, with the name of each errand and what came of it."""
        self._grid = grid
        self._deliver = deliver
        self._poll = poll
        self._turn = count()
        self._due: list[tuple[float, int, _Errand]] = []
        self._errands: dict[Hashable, _Errand] = {}
        self._changed = Condition()
        self._open = True
        self._threads = [
            Thread(target=self._live, name=f"fairlag courier {each}", daemon=True) for each in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, name: Hashable, message: Message) -> None:
        """The message is sent, and its reply delivered, under that name."""
        errand = self._errands[name] = _Errand(name, message)
        self._schedule(errand, 0.0)

    def forget(self, name: Hashable) -> None:
        """Nothing is delivered under that name any more."""
        errand = self._errands.pop(name, None)
        if errand is not None:
            errand.wanted = False

    def close(self) -> None:
        """The threads end, at the latest when what they are asking for is answered."""
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def _schedule(self, errand: _Errand, seconds: float) -> None:
        with self._changed:
            heappush(self._due, (monotonic() + seconds, next(self._turn), errand))
            self._changed.notify()

    def _next(self) -> _Errand | None:
        """The errand that is due, once it is; None when there is nothing to do any more."""
        with self._changed:
            while self._open:
                wait = self._due[0][0] - monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    errand = heappop(self._due)[2]
                    if errand.wanted:
                        return errand
                else:
                    self._changed.wait(wait)
        return None

    def _live(self) -> None:
        while (errand := self._next()) is not None:
            reply: Message | Exception | None
            try:
                reply = self._proceed(errand)
                errand.failures = 0
            except Exception as error:  # of the connection to the SuperLink, whatever it raises
                errand.failures += 1
                LOG.warning("The SuperLink does not answer: %s: %s", type(error).__name__, error)
                reply = error if errand.failures >= _MOST_TRIES else None
            if reply is None:
                self._schedule(errand, max(self._poll, len(self._errands) / _MOST_A_SECOND) * 2**errand.failures)
            elif errand.wanted:
                self._errands.pop(errand.name, None)
                self._deliver(errand.name, reply)

    def _proceed(self, errand: _Errand) -> Message | None:
        if errand.message is not None:
            (errand.identity,) = self._grid.push_messages([errand.message]) or ("",)
            if not errand.identity:
                raise ConnectionError("a message was not taken")
            errand.message = None
            return None
        return next(iter(self._grid.pull_messages([errand.identity])), None)
