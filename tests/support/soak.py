"""One seed of the soak: a run in a random world, with random faults, checked at every step; one seed, one outcome.

A seed draws who drives the server (hostile events in any order, a `Link` on a hostile network, or a simulated fleet), a
strategy, a disk (`tests.support.disk`) and up to three faults that each end the process. After each, the run is opened
again from what is left. `Watched` checks every event, across restarts too: its own books go back to the moment whose
checkpoint was found, and the server's must agree with them. What the run said is saved must still be there.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import exp, log
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

from fairlag.core.server import Server
from fairlag.core.state import State, take
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Ended, Stop
from fairlag.core.vector import Layout
from fairlag.errors import StalledError, StoreError
from fairlag.fleet.clients import Fleet
from fairlag.lab import folder as room
from fairlag.lab import loop, rowfiles, store
from fairlag.lab.evaluations import Evaluations
from fairlag.lab.events import Event, Kept
from fairlag.lab.folder import is_run
from fairlag.lab.loop import RunLoop
from fairlag.lab.orders import Orders
from fairlag.lab.run import Run
from fairlag.lab.store import Store
from fairlag.lab.timeline import Timeline
from fairlag.learn.local import Recipe, schedule
from fairlag.runtime.flower.link import Link, Work
from fairlag.runtime.flower.options import Options
from fairlag.runtime.flower.roster import Roster
from fairlag.runtime.flower.wire import Wire
from fairlag.runtime.virtual import Simulation
from tests.support.disk import FAULTS, FULL, KILL, POWER, Disk, Gone
from tests.support.hostile import HostileEvents, HostileTimeline
from tests.support.network import Network
from tests.support.paying import Paying, any_by_account
from tests.support.resuming import contents
from tests.support.shelf import Shelf
from tests.support.states import plain
from tests.support.watched import Computes, Watched
from tests.support.worlds import any_groups, any_strategy

DRIVERS = "events", "events", "fleet", "link"
_ON_DISK = 0.4
"""The share of the seeds with a disk. The others keep checkpoints in memory, which takes a tenth of the time."""


@dataclass
class Tally:
    """What some seeds met."""

    faults: Counter[str] = field(default_factory=Counter)
    places: set[str] = field(default_factory=set)
    """Which fault hit which step on which kind of file."""
    worlds: Counter[str] = field(default_factory=Counter)
    """How many seeds had each driver and each strategy."""

    def add(self, other: "Tally") -> None:
        self.faults += other.faults
        self.places |= other.places
        self.worlds += other.worlds


class Broken(AssertionError):
    """Something that is always true was not; says what the seed had drawn, and its last events."""


def soak(seed: int, root: Path, tally: Tally) -> None:
    """Runs one seed in a folder of its own, which is removed if nothing is broken."""
    folder = (root / f"seed-{seed}").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    world = _World(seed, folder, tally)
    try:
        world.run()
    except Exception as error:
        raise Broken(f"{type(error).__name__}: {error}\n{world.story()}") from error
    shutil.rmtree(folder, ignore_errors=True)


class _World:
    """What a seed draws, and the lives of its run."""

    def __init__(self, seed: int, folder: Path, tally: Tally) -> None:
        self.chance = chance = Random(seed)
        self.folder, self.tally, self.seed = folder, tally, seed
        self.driver = chance.choice(DRIVERS)
        self.on_disk = chance.random() < _ON_DISK
        self.groups = any_groups(chance)
        self.queued = chance.choice([1, 1, 2]) if self.driver == "link" else 1
        self.clients = sum(each.count for each in self.groups) * self.queued
        self.group_of: list[str] = [each.name for each in self.groups for _ in range(each.count * self.queued)]
        self.strategy = self._strategy()
        shared = 3 if self.strategy.local.shares else 0
        self.layout = Layout(("weight",), ((3,),))
        self.size = 3 + shared
        self.aggregations = chance.randint(3, 10)
        self.keep = chance.choice([1, 2, 5])
        self.big = chance.choice([1, 1, rowfiles.BIG])
        self.faults = [chance.choice(FAULTS) for _ in range(chance.choice([0, 1, 1, 2, 3]))]
        self.moments: list[dict[str, Any]] = []
        """The watcher's books at each state that was taken."""
        self.saved: int | None = None
        """The last of them that the run said is saved."""
        self.trace: list[str] = []
        self.server: Watched | None = None
        self.events: HostileEvents | Network | None = None
        self.network = Network(self.clients // self.queued, chance, tally.faults, self._version)
        tally.worlds[f"driven by {self.driver}{', on a disk' * self.on_disk}"] += 1

    def _strategy(self) -> Strategy:
        made = any_by_account if self.chance.randint(0, 2) == 0 else any_strategy
        while True:
            strategy = made(self.chance, self.clients)
            if self.driver != "link" or strategy.local.direction is None:
                return strategy

    def _version(self) -> int:
        return 0 if self.saved is None else int(self.moments[self.saved]["newest"])

    def story(self) -> str:
        last = [] if self.events is None else [str(each) for each in self.events.trace]
        known = f"seed {self.seed}: {self.strategy}, {self.clients} clients, driven by {self.driver}, keep={self.keep}"
        return "\n".join([known, *self.trace, *last])

    def run(self) -> None:
        whole = None
        if self.driver == "fleet" and self.faults:
            alone = (
                Disk(self.folder / "whole", Random(0), Counter(), set())
                if self.on_disk
                else Shelf(Random(0), Counter())
            )
            self._live(alone)
            whole = self._outcome(alone)
            self.moments.clear()
            self.saved = None
        disk: Disk | Shelf = Shelf(self.chance, self.tally.faults)
        if self.on_disk:
            disk = Disk(self.folder / "0", self.chance, self.tally.faults, self.tally.places)
        for number, fault in enumerate([*self.faults, ""], 1):
            disk.arm(fault, int(exp(self.chance.uniform(0, log(350)))))
            over = self._live(disk)
            self.trace.append(f"life {number}: {disk.dead or (FULL if disk.full else 'no fault')}, {disk.steps} steps")
            if over:
                break
            disk = disk.left(self.folder / str(number))
        assert over, "the run did not end"
        disk.dead = POWER
        self._finished(disk.left(self.folder / "end"), whole)

    def _outcome(self, disk: Disk | Shelf) -> object:
        """Everything that a simulation must give again."""
        if isinstance(disk, Disk):
            return contents(disk.folder)
        assert self.server is not None
        return [plain(each) for each in self.server.log], self.server.versions.newest.tobytes()

    def _live(self, disk: Disk | Shelf) -> bool:
        """One process: begins or continues the run, until its end or a fault. Is the run over?"""
        try:
            with disk.mounted(), self._patched():
                self._process(disk)
        except Gone:
            return False
        except StoreError as error:
            assert disk.full or disk.dead, f"there was no fault, but: {error}"
            _check_sentence(str(error), disk)
            if disk.full and is_run(disk.folder):
                Run(disk.folder)  # it can be read meanwhile
            return False
        except Exception:
            if disk.dead in (KILL, POWER):  # SQLite's own error, as nothing reaches the disk any more
                return False
            raise
        return not disk.dead

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """Inside, time passes as the seed says, and small rows are written as large ones are."""
        clock = _Clock(Random(self.seed))
        with (
            patch.object(loop, "monotonic", clock),
            patch.object(store, "monotonic", clock),
            patch.object(rowfiles, "BIG", self.big),
            self.network.connected(),
        ):
            yield

    def _process(self, disk: Disk | Shelf) -> None:
        folder = disk.folder
        with ExitStack() as held:
            kept: Any = held.enter_context(disk if isinstance(disk, Shelf) else self._opened(folder))
            if kept.meta["status"] == "finished":
                return
            assert kept.checkpoint() is not None or self.saved is None, "what was saved is lost"
            evaluations = Evaluations(kept, None, None, every=1)
            kind = Paying if self.strategy.account is not None else Watched
            self.server = server = kind(
                self.strategy,
                clients=self.clients,
                parameters=np.zeros(3, np.float32),
                layout=self.layout,
                seed=self.seed,
                record=kept.record,
                group_of=self.group_of.__getitem__,
                aggregations=self.aggregations,
                until_time=400.0 if self.driver == "fleet" else None,  # elsewhere, a clock may jump past it
            )
            timeline = _Remembering(self, server, self._timeline(server, held), folder if self.on_disk else None)
            real = self.driver != "fleet"
            try:
                RunLoop(server, timeline, kept, evaluations, self.layout, self._told, real=real).to_the_end()
            except StalledError:
                assert server.barred or server.counts["lost"] + server.counts["refused"] > 1000
                kept.finish({}, "stalled")
            server.agrees()

    def _opened(self, folder: Path) -> Store:
        if is_run(folder):
            return Store.open(folder, self.keep)
        meta = {"experiment": "soak", "label": str(self.strategy), "use": "soak", "seed": 0, "aggregations": None}
        names = sorted(set(self.group_of))
        places = np.array([names.index(each) for each in self.group_of])
        examples = np.ones(self.clients, np.int64)
        made = partial(Store.create, folder, meta, experiment="{}", groups=names, keep=self.keep)
        return made(group_of=places, examples=examples)

    def _timeline(self, server: Watched, held: ExitStack) -> Timeline:
        if self.driver == "events":
            events = HostileEvents(server, self.clients, self.tally.faults)
            self.events = events
            return HostileTimeline(events, self.chance, steps=self.chance.randint(10, 120))
        if self.driver == "fleet":
            return Simulation(server, Fleet(self.groups, seed=self.seed), Computes(0.2))
        return self._link(server, held)

    def _link(self, server: Server, held: ExitStack) -> Timeline:
        options = Options(queued=self.queued, max_clients=self.clients // self.queued, at_least=1)
        orders = Orders(Recipe(steps=2, lr=schedule(0.1)), 0, np.zeros(self.clients, np.int64), 50, options)
        roster = Roster([(each.name, each.count) for each in self.groups], most=options.max_clients)
        self.events = self.network
        self.network.restarted()
        work = Work(orders.asked, orders.report)
        network: Any = self.network
        link = Link(server, network, Wire(self.layout), work, roster, options)
        held.enter_context(closing(link))
        return link

    def _told(self, event: Event) -> None:
        if isinstance(event, Kept):
            self.saved = len(self.moments) - 1

    def _finished(self, disk: Disk | Shelf, whole: object) -> None:
        """Checks what is left of a run that is over, after a last power loss."""
        if whole is not None:
            assert self._outcome(disk) == whole, "the run did not end with the same bytes"
        if isinstance(disk, Disk):
            run = Run(disk.folder)
            assert run.status == "finished"
            run.tensors()
            if self.server is not None:
                check_rows(disk.folder, self.server.remembered())


class _Clock:
    """Seconds that pass as they like between two looks, but never backwards."""

    def __init__(self, chance: Random) -> None:
        self._chance, self._now = chance, 0.0

    def __call__(self) -> float:
        self._now += self._chance.choice([0.0, 0.001, 0.06, 10.0])
        return self._now


class _Remembering:
    """A timeline whose watcher remembers its books whenever the state is taken, and recalls those of a restored one."""

    def __init__(self, world: _World, server: Watched, timeline: Timeline, folder: Path | None) -> None:
        self._world, self._server, self._timeline, self._folder = world, server, timeline, folder
        self._left = 150

    def proceed(self, events: int) -> Stop | None:
        if self._world.driver != "link":
            return self._timeline.proceed(events)
        if not self._left:  # the hostile fleet may never come to an end
            return Stop("enough was tried")
        self._left -= 1
        return self._timeline.proceed(events)

    def state(self) -> State:
        moments = self._world.moments
        moments.append(self._server.remembered())
        return {"timeline": self._timeline.state(), "moment": len(moments) - 1}

    def restore(self, state: State) -> None:
        world, moment = self._world, take(state, "moment", int)
        assert world.saved is None or moment >= world.saved, "what was saved is lost"
        del world.moments[moment + 1 :]
        world.saved = moment
        books = world.moments[moment]
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


def _check_sentence(sentence: str, disk: Disk | Shelf) -> None:
    assert sentence.startswith("cannot write ") and str(disk.folder) in sentence and "\n" not in sentence, sentence
    if disk.full:
        assert "the disk is full; make room" in sentence or "unable to open database file" in sentence, sentence
