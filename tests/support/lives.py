"""What the lives of a run have in common: a clock, the watcher's books of each saved moment, a check of its rows."""

from pathlib import Path
from random import Random
from typing import Any, Protocol

from fairlag.core.state import State, take
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Ended, Stop
from fairlag.lab import folder as room
from fairlag.lab.timeline import Timeline
from tests.support.disk import Disk
from tests.support.network import Network
from tests.support.shelf import Shelf
from tests.support.watched import Watched

_CALM, _LOOK = 3000, 25
"""After how many events of a calm fleet everything must be as it should be, and after how many it is looked at."""


class Clock:
    """Seconds that pass as they like between two looks, but never backwards."""

    def __init__(self, chance: Random) -> None:
        self._chance, self._now = chance, 0.0

    def __call__(self) -> float:
        self._now += self._chance.choice([0.0, 0.001, 0.06, 10.0])
        return self._now


class World(Protocol):
    """What a timeline needs to know about its world."""

    driver: str
    strategy: Strategy
    moments: "list[Moment]"
    saved: int | None
    network: Network
    queued: int
    hostile_for: int


Moment = tuple[dict[str, Any], dict[int, str]]
"""The watcher's books at a state that was taken, and the names of the clients' nodes."""


class Remembering:
    """A timeline whose watcher remembers its books whenever the state is taken, and recalls those of a restored one."""

    def __init__(self, world: World, server: Watched, timeline: Timeline, folder: Path | None) -> None:
        self._world, self._server, self._timeline, self._folder = world, server, timeline, folder
        self._left = world.hostile_for
        self._calm = 0
        self._before = 0

    def proceed(self, events: int) -> Stop | None:
        if self._world.driver != "link":
            return self._timeline.proceed(events)
        if self._left:
            self._left -= 1
            return self._timeline.proceed(events)
        return self._calmly(events)

    def _calmly(self, events: int) -> Stop | None:
        """The fleet is no longer hostile: everyone takes part, and versions are made."""
        network, server = self._world.network, self._server
        if not network.calm:
            network.becomes_calm()
            self._before = server.newest
        if (stop := self._timeline.proceed(events)) is not None:
            return stop
        self._calm += 1
        if self._calm % _LOOK:
            return None
        wrong = network.wrong(server.there | server.over, self._world.queued)
        if not wrong and server.newest == self._before and server.there and not server.barred:
            wrong = f"no version is made: {server.waits_for}"
        assert not wrong or self._calm < _CALM, f"nothing disturbs the fleet, but {wrong}"
        return None if wrong else Stop("enough was tried")

    def state(self) -> State:
        world = self._world
        world.moments.append((self._server.remembered(), dict(world.network.clients)))
        return {"timeline": self._timeline.state(), "moment": len(world.moments) - 1}

    def restore(self, state: State) -> None:
        world, moment = self._world, take(state, "moment", int)
        assert world.saved is None or moment >= world.saved, "what was saved is lost"
        del world.moments[moment + 1 :]
        world.saved = moment
        books, world.network.clients = world.moments[moment][0], dict(world.moments[moment][1])
        if self._folder is not None:
            check_rows(self._folder, books)
        if world.driver == "link":  # versions that only lost tasks need are not saved
            first = books["newest"] - world.strategy.select.lag
            books = {**books, "bytes": {version: each for version, each in books["bytes"].items() if version >= first}}
        self._server.recall(books)
        self._timeline.restore(take(state, "timeline", dict))
        self._server.agrees()


def check_rows(folder: Path, books: dict[str, Any]) -> None:
    """Every row of a run is one that the watcher saw, and none is missing."""
    tasks: list[tuple[object, ...]] = []
    versions: list[tuple[object, ...]] = []
    for record in books["log"]:
        if isinstance(record, Aggregation):
            versions.append((record.version, record.time, len(record.tasks), record.refused))
            late, weights = record.staleness.tolist(), record.weights.tolist()
            for task, staleness, weight in zip(record.tasks, late, weights, strict=True):
                tasks.append((*task[:4], "aggregated", record.version, staleness, weight))
        elif isinstance(record, Ended):
            tasks.append((*record.task[:4], record.outcome.value, None, None, None))
    columns = "task, client, version, ordinal, outcome, aggregation, staleness, weight"
    with room.reading(folder, check=False) as database:
        assert database.execute(f"SELECT {columns} FROM tasks").fetchall() == sorted(tasks)
        assert database.execute("SELECT version, time, updates, refused FROM aggregations").fetchall() == versions


def check_sentence(sentence: str, disk: Disk | Shelf) -> None:
    """The disk was full, or a sync failed: the sentence says so."""
    assert sentence.startswith("cannot write ") and str(disk.folder) in sentence and "\n" not in sentence, sentence
    if disk.ran_full and not disk.dead:
        assert "the disk is full; make room" in sentence or "unable to open database file" in sentence, sentence
