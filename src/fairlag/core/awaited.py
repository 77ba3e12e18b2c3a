"""The clients that a version still waits for: those that are present without an update in the buffer."""

from collections.abc import Iterable


class Awaited:
    """Counts the present clients without an update in the buffer.

    >>> awaited = Awaited()
    >>> awaited.join(0), awaited.join(1), awaited.admit(1)
    (None, None, None)
    >>> awaited.count
    1
    >>> awaited.merge([1])
    >>> awaited.count
    2
    """

    def __init__(self) -> None:
        self.count = 0
        self._present: set[int] = set()
        self._buffered: dict[int, int] = {}
        """Per client with updates in the buffer: how many."""

    def join(self, client: int) -> None:
        """A client joins."""
        self._present.add(client)
        self.count += client not in self._buffered

    def leave(self, client: int) -> None:
        """A client leaves; its updates stay in the buffer."""
        self._present.discard(client)
        self.count -= client not in self._buffered

    def admit(self, client: int) -> None:
        """An update enters the buffer."""
        before = self._buffered.get(client, 0)
        self._buffered[client] = before + 1
        self.count -= not before and client in self._present

    def merge(self, clients: Iterable[int]) -> None:
        """For each of these clients, an update leaves the buffer."""
        for client in clients:
            left = self._buffered.pop(client) - 1
            if left:
                self._buffered[client] = left
            else:
                self.count += client in self._present
