"""Watching the nodes of a fleet: which are online, since when, and with which key."""

import hashlib
import logging
from collections.abc import Callable
from threading import Event, Thread
from typing import NamedTuple

from flwr.serverapp import Grid
from flwr.superlink.grid import InMemoryGrid

LOG = logging.getLogger("flwr.fairlag")
"""A child of Flower's own logger, so that its lines appear where users look for those of an app."""


class Node(NamedTuple):
    """What Flower knows about a node that is online."""

    activated: str
    """When it was last started: a node that is identified by its key keeps its number after a restart."""
    key: str
    """The fingerprint of its public key."""


def is_simulated(grid: Grid | None) -> bool:
    """Is it the grid of Flower's simulation, whose nodes are made by this process?"""
    return isinstance(grid, InMemoryGrid)


class NodeWatcher:
    """A thread that checks regularly which nodes are online, and reports them."""

    def __init__(self, grid: Grid, tell: Callable[[dict[int, Node]], None], *, every: float) -> None:
        self._grid = grid
        self._tell = tell
        self._every = every
        self._closed = Event()
        Thread(target=self._run, name="fairlag nodes", daemon=True).start()

    def close(self) -> None:
        """Ends the thread, at the latest after its current check."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._look()
            self._closed.wait(self._every)

    def _look(self) -> None:
        """Reports the nodes that are online now."""
        try:
            found = {
                each.node_id: Node(each.last_activated_at, fingerprint(each.public_key))
                for each in self._grid.get_nodes()
            }
        except Exception as error:  # the connection to the SuperLink may raise anything
            LOG.warning("The nodes cannot be listed: %s: %s", type(error).__name__, error)
        else:
            self._tell(found)


def fingerprint(key: bytes) -> str:
    """The short form of a public key by which a node is known; empty without a key."""
    return hashlib.sha256(key).hexdigest()[:32] if key else ""
