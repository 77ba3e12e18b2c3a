"""What every runtime on one machine needs: the heap of due entries, and when to give up. See also presence.py."""

from heapq import heappush
from itertools import count
from math import inf

from fairlag.core.server import Server
from fairlag.core.state import State, rows, table, take
from fairlag.errors import DivergedError, StalledError
from fairlag.fleet.clients import Fleet
from fairlag.rules.admit import NOT_FINITE


class Due:
    """The kinds of entries, in the order of entries at the same time; plain numbers, because they are compared.

    An update that arrives at the same time as its client leaves, or as a deadline passes, still counts.
    """

    ARRIVAL = 0
    VANISH = 1
    OFF = 2
    RETURN = 3
    ON = 4
    WAKE = 5


NOBODY = -1
"""The subject of a Wake and of an entry of the schedule, which knows its own clients."""

_ENTRY = {"time": float, "due": int, "sequence": int, "whom": int}


class Agenda:
    """A heap of (time, kind, sequence, subject): the sequence is unique, so ties are exact.

    The subject is the number of a client or of a task.

    >>> agenda = Agenda()
    >>> agenda.add(2.0, Due.WAKE, NOBODY), agenda.add(1.0, Due.ON, 7)
    (None, None)
    >>> agenda.heap[0]
    (1.0, 4, 1, 7)
    """

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, int, int]] = []
        self.sequence = count()

    def add(self, time: float, due: int, whom: int) -> None:
        """Adds an entry; one at infinity is left out."""
        if time < inf:
            heappush(self.heap, (time, due, next(self.sequence), whom))

    def state(self) -> State:
        """The entries in the order of the heap, and the next number of the sequence."""
        sequence = next(self.sequence)
        self.sequence = count(sequence)  # reading a count's number advances it
        return {"entries": table(self.heap, **_ENTRY), "sequence": sequence}

    def restore(self, state: State) -> None:
        """Replaces the entries with the saved ones, in the same heap."""
        self.heap[:] = rows(take(state, "entries", dict), *_ENTRY)
        self.sequence = count(take(state, "sequence", int))


def events_without_progress(clients: int, needs: int) -> int:
    """The most events in a row without progress, for this number of clients and of updates that a version needs."""
    return 10_000 + 20 * (clients + needs)


class Watchdog:
    """Ends a run if too many events in a row bring no version and no update that its trigger waits for.

    A Woke while tasks are running does not count: however many pass during a task, the task will end. Events do not
    count either while updates arrive and the trigger waits for the same time: that time will come.
    """

    def __init__(self, server: Server, fleet: Fleet) -> None:
        self.limit = events_without_progress(fleet.clients, server.strategy.trigger.needs)
        self.patience = max(100, 4 * max(fleet.clients, server.strategy.trigger.needs))
        """If this many updates in a row are not finite, without an admitted one in between, training has diverged."""
        self._server = server
        self._reached = (0, 0)
        self._quiet = 0
        self._admitted = (0, 0)
        self._awaited = -inf
        self._before = 0
        """How many updates were not finite up to the last admitted one."""

    def count(self, events: int) -> None:
        """Counts events; raises StalledError if there were too many without progress, or DivergedError."""
        view, needs = self._server.view, self._server.strategy.trigger.needs
        reached = (view.version, min(view.buffered, needs))
        if reached > self._reached:
            self._quiet = 0
        elif self._awaited != self._server.awaits:
            # A trigger that asks to be woken, and then asks again, may do so for ever.
            self._quiet += max(events, view.buffered >= needs)
        elif self._awaited == -inf or self._admitted == (view.version, view.buffered):
            self._quiet += events
        self._reached, self._awaited = reached, self._server.awaits
        self._check_finite()
        if self._quiet > self.limit:
            raise StalledError(self._why())

    def _check_finite(self) -> None:
        view, found = self._server.view, self._server.refusals[NOT_FINITE]
        admitted = (view.version, view.buffered)
        if admitted != self._admitted:
            self._admitted, self._before = admitted, found
        elif found - self._before >= self.patience:
            raise DivergedError(
                f"training diverged after version {view.version}: the last {found - self._before} updates, up to time "
                f"{view.time:.6g}, were refused because they are not finite; smaller steps (local.lr) may help"
            )

    def state(self) -> State:
        """The number of events without progress, and the progress before them."""
        return {
            "reached": list(self._reached),
            "quiet": self._quiet,
            "admitted": list(self._admitted),
            "awaited": self._awaited,
            "before": self._before,
        }

    def restore(self, state: State) -> None:
        """Continues from the saved counts."""
        version, buffered = take(state, "reached", list)
        self._reached = version, buffered
        self._quiet = take(state, "quiet", int)
        version, buffered = take(state, "admitted", list)
        self._admitted = version, buffered
        self._awaited = take(state, "awaited", float)
        self._before = take(state, "before", int)

    def _why(self) -> str:
        counts = self._server.counts
        common = self._server.refusals.most_common(1) if counts["refused"] else []
        refused = f"{counts['refused']} refused" + "".join(f" (most of them: {reason})" for reason, _ in common)
        lost = f"{counts['lost']} were lost" + (
            f" (the last because {self._server.tasks.last_loss})" * bool(counts["lost"])
        )
        return (
            f"no progress in {self._quiet} events, up to time {self._server.view.time:.6g}: "
            f"{self._server.waits_for}; of all tasks so far {lost} and {refused}"
        )
