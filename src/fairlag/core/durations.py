"""The mean duration of clients' tasks, and the longest among those that are running."""

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush

from fairlag.core.types import Dispatch

INSTANT = 1e-9
"""The shortest mean duration of a task, in seconds, that counts in a rate: no rate is infinite."""


def mean_duration(busy: float, updates: int) -> float:
    """The mean duration of a client's tasks: 0 without tasks, otherwise at least `INSTANT`.

    >>> mean_duration(6.0, 3), mean_duration(0.0, 0)
    (2.0, 0.0)
    """
    return max(busy / updates, INSTANT) if updates else 0.0


class SlowestTask:
    """A heap of running tasks, ordered by the expected duration of their clients' tasks, longest first.

    >>> running = {0: Dispatch(0, 7, 0, 0, 0.0), 1: Dispatch(1, 8, 0, 0, 0.0)}
    >>> slowest = SlowestTask(running, {7: 2.0, 8: 6.0}.__getitem__)
    >>> for task in running.values():
    ...     slowest.enter(task.client, task.task)
    >>> slowest.duration()
    6.0
    >>> del running[1]
    >>> slowest.duration()
    2.0
    """

    def __init__(self, running: Mapping[int, Dispatch], expected: Callable[[int], float]) -> None:
        """`running` maps task numbers to tasks and changes over time; `expected` is a client's expected duration."""
        self._running = running
        self._expected = expected
        self.heap: list[tuple[float, int]] = []
        """(−duration, task). An entry is stale once its task ends or its client's expected duration changes."""

    def enter(self, client: int, number: int) -> None:
        """Enters a running task with its client's expected duration as of now."""
        heap = self.heap
        heappush(heap, (-self._expected(client), number))
        if len(heap) > 2 * len(self._running) + 16:  # entries of fast clients might never reach the top
            heap[:] = [entry for entry in heap if self._counts(*entry)]
            heapify(heap)

    def duration(self) -> float:
        """The longest expected duration of a running task; 0 if no task runs."""
        heap = self.heap
        while heap and not self._counts(*heap[0]):
            heappop(heap)
        return -heap[0][0] if heap else 0.0

    def _counts(self, duration: float, number: int) -> bool:
        task = self._running.get(number)
        return task is not None and -duration == self._expected(task.client)
