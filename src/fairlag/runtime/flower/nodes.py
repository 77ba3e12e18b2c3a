"""Looking at the nodes of a fleet: which are online, since when, and with which key."""

import hashlib
import logging
from collections.abc import Callable
from threading import Event, Thread
from typing import NamedTuple

from flwr.serverapp import Grid

LOG = logging.getLogger("flwr.fairlag")
"""Below Flower's own logger, so that its lines are where a user looks for those of an app."""


class Node(NamedTuple):
    """What Flower says of a node that is online."""

    activated: str
    """When it was last started: a node that is known by its key keeps its number when it is started again."""
    key: str
    """The fingerprint of its public key."""


class Lookout:
    """A thread that looks at the nodes every now and then, and tells which are online."""

    def __init__(self, grid: Grid, tell: Callable[[dict[int, Node]], None], *, every: float) -> None:
        self._grid = grid
        self._tell = tell
        self._every = every
        self._closed = Event()
        Thread(target=self._live, name="fairlag lookout", daemon=True).start()

    def close(self) -> None:
        """It ends, at the latest when its last look is over."""
        self._closed.set()

    def _live(self) -> None:
        while not self._closed.is_set():
            try:
                found = {
                    each.node_id: Node(each.last_activated_at, _fingerprint(each.public_key))
                    for each in self._grid.get_nodes()
                }
            except Exception as error:  # of the connection to the SuperLink, whatever it raises
                LOG.warning("The nodes cannot be seen: %s: %s", type(error).__name__, error)
            else:
                self._tell(found)
            self._closed.wait(self._every)


def _fingerprint(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:32] if key else ""
