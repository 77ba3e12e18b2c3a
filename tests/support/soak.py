"""One seed of the soak: a run in a random world, with random faults, checked at every step; one seed, one outcome.

A seed draws who drives the server (hostile events in any order, a `Link` on a hostile network, or a simulated fleet), a
strategy, a disk (`tests.support.disk`) and up to three faults that each end the process. After each, the run is opened
again from what is left. `Watched` checks every event, across restarts too: its own books go back to the moment whose
checkpoint was found, and the server's must agree with them. What the run said is saved must still be there.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import exp, log
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

from fairlag.core.types import Record
from fairlag.core.vector import Vector
from fairlag.errors import StalledError, StoreError
from fairlag.fleet.clients import Fleet
from fairlag.lab import loop, rowfiles, store
from fairlag.lab.evaluations import Evaluations
from fairlag.lab.events import Event, Kept
from fairlag.lab.folder import is_run
from fairlag.lab.loop import RunLoop
from fairlag.lab.nodelog import lines_of
from fairlag.lab.run import Run
from fairlag.lab.store import Store
from fairlag.lab.timeline import Timeline
from fairlag.rules.admit import all_of, max_norm
from fairlag.runtime.flower.gate import Strikes
from fairlag.runtime.virtual import Simulation
from tests.support.disk import FAULTS, FULL, KILL, POWER, Disk, Gone
from tests.support.drawn import Masks, Sends, any_drawn
from tests.support.hostile import HostileEvents, HostileTimeline
from tests.support.linking import linked, written
from tests.support.lives import Clock, Moment, Remembering, check_rows, check_sentence
from tests.support.network import Network
from tests.support.resuming import contents
from tests.support.shelf import Shelf
from tests.support.states import plain as compared
from tests.support.watched import Computes, Watched
from tests.support.worlds import any_groups

DRIVERS = "events", "events", "fleet", "link"
_ON_DISK = 0.4
"""The share of the seeds with a disk. The others keep checkpoints in memory, which takes a tenth of the time."""
_ON_REQUEST = 0.3
"""The share of the faults on a network that wait for a person's request, which they would seldom hit by chance."""


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
        self.drawn = any_drawn(chance, self.driver, self.clients, seed)
        self.strategy, self.layout = self.drawn.strategy, self.drawn.layout
        self.aggregations = chance.randint(3, 10) if self.driver != "link" else chance.randint(3, 25)
        self.hostile_for = chance.randint(20, 200)
        self.keep = chance.choice([1, 2, 5])
        self.big = chance.choice([1, 1, rowfiles.BIG])
        self.faults = [chance.choice(FAULTS) for _ in range(chance.choice([0, 1, 1, 2, 3]))]
        self.moments: list[Moment] = []
        """The watcher's books at each state that was taken."""
        self.saved: int | None = None
        """The last of them that the run said is saved."""
        self.trace: list[str] = []
        self.facts: Callable[[], dict[str, object]] = dict
        self.server: Watched | None = None
        self.events: HostileEvents | Network | None = None
        self.network = Network(
            self.clients // self.queued,
            chance,
            tally.faults,
            self._version,
            keyed=chance.random() < 0.5,
            layout=self.layout,
            version=self._parameters,
        )
        self.strikes = chance.choice([None, Strikes(refusals=2, among=4)])
        if self.driver == "link" and chance.random() < 0.3:  # as `deploy` does
            rules = [] if self.strategy.admit is None else [self.strategy.admit]
            self.strategy = replace(self.strategy, admit=all_of(*rules, max_norm(10.0)))
        self.growth = None if self.drawn.privacy is not None else chance.choice([None, 10.0])
        tally.worlds[f"driven by {self.driver}{', on a disk' * self.on_disk}"] += 1
        if self.drawn.name:
            tally.worlds[self.drawn.name] += 1

    def _version(self) -> int:
        return 0 if self.saved is None else int(self.moments[self.saved][0]["newest"])

    def _parameters(self, version: int) -> Vector:
        assert self.server is not None
        return self.server.versions[version]

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
            waits = self.driver == "link" and self.chance.random() < _ON_REQUEST
            disk.arm(fault, 10**9 if waits else int(exp(self.chance.uniform(0, log(350)))))
            over = self._live(disk)
            self.trace.append(
                f"life {number}: {disk.dead or (FULL if disk.ran_full else 'no fault')}, {disk.steps} steps"
            )
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
        return [compared(each) for each in self.server.log], self.server.versions.newest.tobytes()

    def _live(self, disk: Disk | Shelf) -> bool:
        """One process: begins or continues the run, until its end or a fault. Is the run over?"""
        try:
            with disk.mounted(), self._patched():
                self._process(disk)
        except Gone:
            return False
        except StoreError as error:
            assert disk.ran_full or disk.dead, f"there was no fault, but: {error}"
            check_sentence(str(error), disk)
            if disk.ran_full and is_run(disk.folder):
                Run(disk.folder)  # it can be read meanwhile
            return False
        except Exception:
            if disk.dead in (KILL, POWER):  # SQLite's own error, as nothing reaches the disk any more
                return False
            raise
        return not disk.dead

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """Inside, time passes as the seed says, small rows are written as large ones are, and the log has a reader."""
        clock = Clock(Random(self.seed))
        with (
            patch.object(loop, "monotonic", clock),
            patch.object(store, "monotonic", clock),
            patch.object(rowfiles, "BIG", self.big),
            written(self.network.governing),
            self.network.connected(),
        ):
            yield

    def _process(self, disk: Disk | Shelf) -> None:
        with ExitStack() as held:
            kept: Any = held.enter_context(disk if isinstance(disk, Shelf) else self._opened(disk.folder))
            if kept.meta["status"] == "finished":
                return
            if kept.checkpoint() is None:
                assert self.saved is None, "what was saved is lost"
                self.network.clients.clear()
            server, timeline = self._driven(disk, kept, held)
            self.server, real = server, self.driver != "fleet"
            evaluations = Evaluations(kept, None, None, every=1)
            remembering = Remembering(self, server, timeline, disk.folder if isinstance(disk, Disk) else None)
            try:
                RunLoop(
                    server, remembering, kept, evaluations, self.layout, self._told, real=real, facts=self.facts
                ).to_the_end()
            except StalledError:
                assert server.barred or server.counts["lost"] + server.counts["refused"] > 1000
                kept.finish({}, "stalled")
            server.agrees()

    def served(self, record: Record, masks: Masks | None) -> Watched:
        """A new server, which the watcher watches."""
        server = self.drawn.kind(
            self.strategy,
            clients=self.clients,
            parameters=self.drawn.parameters,
            layout=self.layout,
            seed=self.seed,
            record=record,
            group_of=self.group_of.__getitem__,
            aggregations=self.aggregations,
            until_time=400.0 if self.driver == "fleet" else None,  # elsewhere, a clock may jump past it
            max_growth=self.growth,
            privacy=self.drawn.privacy,
            secure=None if masks is None else masks.clients.sum,
        )
        if masks is not None:
            server.unmasked = masks.unmasked
        return server

    def _driven(self, disk: Disk | Shelf, kept: Any, held: ExitStack) -> tuple[Watched, Timeline]:
        """A server, and what drives it."""
        if self.driver == "link":
            return linked(self, disk, kept, held)
        masks = Masks(self.seed, self.drawn) if self.drawn.masked else None
        server = self.served(kept.record, masks)
        if self.driver == "fleet":
            computes = Computes(0.2) if masks is None else Sends(0.2, masks.sent)
            return server, Simulation(server, Fleet(self.groups, seed=self.seed), computes)
        events = HostileEvents(server, self.clients, self.tally.faults)
        if masks is not None:
            events.sent = masks.sent
        self.events = events
        return server, HostileTimeline(events, self.chance, steps=self.chance.randint(10, 120))

    def _opened(self, folder: Path) -> Store:
        if is_run(folder):
            return Store.open(folder, self.keep)
        meta = {"runtime": "flower", "queued": self.queued, "key": f"soak {self.seed}"} if self.driver == "link" else {}
        meta |= {"experiment": "soak", "label": str(self.strategy), "use": "soak", "seed": 0, "aggregations": None}
        names = sorted(set(self.group_of))
        places = np.array([names.index(each) for each in self.group_of])
        examples = np.ones(self.clients, np.int64)
        made = partial(Store.create, folder, meta, experiment="{}", groups=names, keep=self.keep)
        return made(group_of=places, examples=examples)

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
            if self.driver == "link":
                self.network.governing.reopened(lines_of(disk.folder, run.meta)[0])
            if self.server is not None:
                check_rows(disk.folder, self.server.remembered())
