"""How long the tasks of clients take on average, and which of those that are running takes longest."""

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush

from fairlag.core.types import Dispatch

INSTANT = 1e-9
"""The shortest mean duration of a task, in seconds, that a rate is made of."""


def mean_duration(busy: float, updates: int) -> float:
    """Of the tasks of a client, never quite 0 unless there was none.

    >>> mean_duration(6.0, 3), mean_duration(0.0, 0)
    (2.0, 0.0)
    """
    return max(busy / updates, INSTANT) if updates else 0.0


class SlowestTask:
    """The running tasks by how long one of their client is expected to take, the longest first.

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
        """`running` are the tasks by number, as they change; `expected` says how long one of a client takes."""
        self._running = running
        self._expected = expected
        self.heap: list[tuple[float, int]] = []
        """Minus the duration, and the task; an entry counts while its task runs and the duration is still expected."""

    def enter(self, client: int, number: int) -> None:
        """A running task is entered with what is expected of its client now."""
        heap = self.heap
        heappush(heap, (-self._expected(client), number))
        if len(heap) > 2 * len(self._running) + 16:  # the entries of fast clients might never come to the top
            heap[:] = [entry for entry in heap if self._counts(*entry)]
            heapify(heap)

    def duration(self) -> float:
        """The longest that is expected of a running task; 0 if nothing runs."""
        heap = self.heap
        while heap and not self._counts(*heap[0]):
            heappop(heap)
        return -heap[0][0] if heap else 0.0

    def _counts(self, duration: float, number: int) -> bool:
        task = self._running.get(number)
        return task is not None and -duration == self._expected(task.client)
