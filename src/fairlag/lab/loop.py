"""The loop of one run, simulated or on a real fleet: drives it to its end and makes checkpoints."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from types import FrameType

from fairlag import execute
from fairlag.core.server import Server
from fairlag.core.state import State, parted, take, unpack
from fairlag.core.types import Stop
from fairlag.core.vector import Layout
from fairlag.errors import Interrupted
from fairlag.lab.evaluations import Evaluations
from fairlag.lab.events import Kept, Progress, Tell
from fairlag.lab.store import Store
from fairlag.lab.timeline import Timeline

CHECKPOINT = 5.0
"""Seconds between checkpoints, if they are cheap: a crash loses at most this much."""
_COSTLY = 100
"""The next checkpoint waits for this many times the seconds that the quicker of the last two took, so that they take
about 1 % of the time. With the last one alone, one stall of the disk would put the next one off for minutes. Rows do
not count: they must be written anyway, and there are more of them after a longer wait."""
_LOOK = 0.1
"""Approximate seconds between two checks of the clock, of Ctrl-C, and of finished evaluations."""
_MOST = 1000

News = Callable[[], Iterable[tuple[int, str, int]]]
"""The clients with new facts since the last call: their groups and numbers of examples."""
Facts = Callable[[], Mapping[str, object]]
"""Further facts about the run so far, to be noted in its record."""


class RunLoop:
    """Takes one run from its beginning, or from its last checkpoint, to its end."""

    def __init__(
        self,
        server: Server,
        timeline: Timeline,
        store: Store,
        evaluations: Evaluations,
        layout: Layout,
        tell: Tell,
        *,
        real: bool = False,
        news: News = tuple,
        facts: Facts = dict,
    ) -> None:
        """The timeline drives the server, which records into the store and the evaluations.

        The run is `real` if it cannot be computed again. Then every version is committed at once, with the news of its
        clients.
        """
        self._server = server
        self._timeline = timeline
        self._store = store
        self._evaluations = evaluations
        self._layout = layout
        self._tell = tell
        self._real = real
        self._news = news
        self._facts = facts
        self._saved, self._costs = monotonic(), (0.0, 0.0)
        """When the last checkpoint was made, and how many seconds the last two took."""
        self._kept = 0
        """The version of the last checkpoint."""
        saved = store.checkpoint()
        if saved is not None:
            self._restore(unpack(*saved))
        else:
            evaluations.offer(0, 0.0, server.versions.newest)

    def to_the_end(self) -> None:
        """Makes the rest of the run; at the first Ctrl-C, makes a checkpoint and raises Interrupted."""
        events = 1
        with _interrupts_noted() as interrupted:
            began = monotonic()
            while (stop := self._proceed(events)) is None:
                self._look(interrupted)
                now = monotonic()
                if not self._real:  # otherwise each event may make a version, which must be committed at once
                    events = min(2 * events, _MOST) if now - began < _LOOK / 2 else max(events // 2, 1)
                began = now
            view = self._server.view
            self._evaluations.last(view.version, view.time, self._server.versions.newest)
            while self._evaluations.pending:
                self._look(interrupted, patience=_LOOK)
        self._finish(stop)
        if interrupted.is_set():
            raise self._interruption()

    def _proceed(self, events: int) -> Stop | None:
        with suppress(Interrupted):  # while waiting for a result, so no event is half done
            return self._timeline.proceed(events)
        return None

    def _look(self, interrupted: threading.Event, patience: float = 0.0) -> None:
        for evaluated in self._evaluations.collect(patience):
            self._tell(evaluated)
        if interrupted.is_set():
            self._commit()
            raise self._interruption()
        if self._is_due():
            self._commit()
        try:
            self._report()
        except Interrupted:  # a listener has seen enough: what it saw is kept
            self._commit()
            raise

    def _is_due(self) -> bool:
        """Is it time for a checkpoint?"""
        if self._real:
            return self._server.view.version > self._kept
        return monotonic() - self._saved > max(CHECKPOINT, _COSTLY * min(self._costs))

    def _interruption(self) -> Interrupted:
        return Interrupted(f"interrupted at version {self._server.view.version}")

    def _report(self) -> None:
        view, updates = self._server.view, self._server.counts["aggregated"]
        self._tell(Progress(view.version, view.time, updates, self._evaluations.scores, self._evaluations.lead))

    def _commit(self) -> None:
        began = monotonic()
        state: State = {"simulation": self._timeline.state(), **self._evaluations.state()}
        self._kept = self._server.view.version
        refusals, meta = self._server.refusals, self._facts()
        self._store.commit(*parted(state), self._kept, refusals=refusals, meta=meta, clients=self._news())
        self._saved = monotonic()
        cost = self._saved - began - self._store.rows_took
        self._costs = (self._costs[-1], cost)
        self._tell(Kept(self._server.view.version))

    def _restore(self, state: State) -> None:
        self._timeline.restore(take(state, "simulation", dict))
        self._kept = self._server.view.version
        self._evaluations.restore(state, self._kept)
        if self._real:  # all clients are gone, which may have completed a version
            self._commit()

    def _finish(self, stop: Stop) -> None:
        if self._real:
            self._commit()
        view = self._server.view
        tensors = self._layout.split(self._server.versions.newest[: self._layout.size])
        meta = {"virtual_time": view.time, "counts": self._server.counts, **self._facts()}
        self._store.finish(tensors, stop.reason, refusals=self._server.refusals, meta=meta)
        self._report()


@contextmanager
def _interrupts_noted() -> Iterator[threading.Event]:
    """Inside, the first Ctrl-C is only noted, so that no event is left half done; the second interrupts as usual.

    A handler that ignores it, as after `nohup`, is left alone, and so is one that Python did not set and so could not
    restore.
    """
    noted = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        yield noted
        return

    def note(number: int, frame: FrameType | None) -> None:
        noted.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    asked = execute.interrupted.set(noted.is_set)
    try:
        yield noted
    finally:
        execute.interrupted.reset(asked)
        signal.signal(signal.SIGINT, before)
