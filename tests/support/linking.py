"""A server on a network, with everything that `deploy` puts between them: seats, a gate, and a log of its decisions."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any, Protocol
from unittest.mock import patch

import numpy as np

from fairlag.core.types import Record, Row
from fairlag.core.vector import Layout
from fairlag.fleet.clients import Group
from fairlag.lab import quarantine
from fairlag.lab.governed import Governed
from fairlag.lab.nodelog import NodeLog, lines_of
from fairlag.lab.orders import Orders
from fairlag.lab.run import Run
from fairlag.lab.timeline import Timeline
from fairlag.learn.local import Recipe, schedule
from fairlag.runtime.decisions import plain
from fairlag.runtime.flower.gate import Gate, Strikes
from fairlag.runtime.flower.link import Link, Work
from fairlag.runtime.flower.options import Options
from fairlag.runtime.flower.roster import Roster
from fairlag.runtime.flower.wire import Wire
from tests.support.disk import Disk
from tests.support.drawn import Drawn, Masks
from tests.support.governing import Governing
from tests.support.network import MOST_EXAMPLES, Network
from tests.support.shelf import Shelf
from tests.support.watched import Watched


class World(Protocol):
    """What a link needs to know about its world."""

    network: Network
    groups: list[Group]
    clients: int
    queued: int
    drawn: Drawn
    layout: Layout
    strikes: Strikes | None
    facts: Callable[[], dict[str, object]]
    events: Any

    def served(self, record: Record, masks: Masks | None) -> Watched: ...


@contextmanager
def written(governing: Governing) -> Iterator[None]:
    """Inside, what is written to the log of decisions is also shown to those who check it."""
    note = NodeLog.note

    def noted(log: NodeLog, kind: str, node: str, client: int | None, why: str) -> None:
        governing.noting(kind, plain(node))
        note(log, kind, node, client, why)
        governing.noted(kind, plain(node), client, why)

    with patch.object(NodeLog, "note", noted), patch.object(quarantine, "_user", lambda: "by a person"):
        yield


def linked(world: World, disk: Disk | Shelf, kept: Any, held: ExitStack) -> tuple[Watched, Timeline]:
    """A server, and its link."""
    network, governing, seats = world.network, world.network.governing, world.clients // world.queued
    options = Options(queued=world.queued, max_clients=seats, by_key=network.keyed, strikes=world.strikes)
    noisy = world.drawn.privacy is not None
    roster = Roster(
        [(each.name, each.count) for each in world.groups], options.by_key, options.max_clients, lasting=noisy
    )
    orders = Orders(Recipe(steps=2, lr=schedule(0.1)), 0, np.zeros(world.clients, np.int64), MOST_EXAMPLES, options)
    world.events = network
    network.restarted()
    if isinstance(disk, Disk):
        folder = disk.folder
        governing.ask = lambda node, release: _requested(disk, node, release)
        governed = Governed(folder, kept.meta, roster, options, network.allowed)
        held.enter_context(closing(governed))
        governing.reopened(lines_of(folder, kept.meta)[0])
        gate, work, record, world.facts = governed.gate, governed.work(orders), governed.recorded, governed.log.head
    else:
        gate = Gate(
            roster,
            queued=world.queued,
            allowed=network.allowed,
            quarantined=governing.barred,
            strikes=world.strikes,
            orders=governing.orders,
            note=governing.noted,
        )
        work, record = Work(orders.asked, orders.report), partial(_watching, gate)
    server = world.served(record(kept.record), None)
    server.expects = network.check_arrived
    link = Link(server, network, Wire(world.layout), work, roster, options, gate)  # type: ignore[arg-type]
    held.enter_context(closing(link))
    return server, link


def _requested(disk: Disk, node: str, release: bool) -> None:
    """A person uses `fairlag quarantine`, in another process."""
    quarantine.request(Run(disk.folder), node, "for a while", release=release)
    disk.hasten()


def _watching(gate: Gate, record: Record) -> Record:
    """Shows the gate what is recorded."""

    def both(row: Row) -> None:
        record(row)
        gate.watch(row)

    return both
