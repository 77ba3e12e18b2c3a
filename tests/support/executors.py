"""Tasks and whole runs on any executor, for comparison with the serial one."""

import hashlib
import os
import random
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Dispatch, Row
from fairlag.execute import Learning
from fairlag.execute.pool import Pool
from fairlag.execute.processes import Processes
from fairlag.execute.serial import Serial
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.learn.local import Recipe, schedule
from fairlag.learn.placement import Placement
from fairlag.runtime import virtual
from fairlag.zoo import fairshare, fedavg
from tests.support.learning import blueprint, first, plain
from tests.support.patience import wait_until

PLAN = blueprint(recipe=Recipe(steps=2, batch=8, lr=schedule("step(0.1, every=5)"), momentum=0.5))
FLEET = Fleet([Group("fast", 8, parse("uniform(1, 2)")), Group("slow", 4, parse("uniform(8, 12)"))], seed=0)
PLACES = Placement(np.arange(84), np.arange(0, 85, 7), np.arange(84, 120), np.zeros(12, np.int64))
"""Twelve clients with seven examples each."""


def task(number: int, client: int = 1, version: int = 0) -> Dispatch:
    return Dispatch(number, client, version, number, 0.0)


def expected(serial: Serial, tasks: list[Dispatch], seed: int = 0) -> list[bytes]:
    """The results of the serial executor for these tasks, each from the parameters of its version."""
    serial.begin(seed, PLACES)
    for each in tasks:
        serial.submit(each, version(each.version), 0.0)
    return [serial.result(each).delta.tobytes() for each in tasks]


def version(number: int) -> Any:
    vector = first(PLAN) + np.float32(0.001 * number)
    vector.flags.writeable = False
    return vector


def pids(pool: Processes) -> list[int]:
    return [worker.process.pid or 0 for worker in pool._workers]


def killed(pool: Processes) -> None:
    """Kills its first worker, and waits for the end of it."""
    worker = pool._workers[0]
    worker.process.kill()
    worker.process.wait()


def compute_until(pool: Pool[Any], met: Callable[[], object]) -> None:
    """Lets the workers go on with what they were given, reading no result."""
    wait_until(met, "what the workers were asked for", meanwhile=lambda: pool._pump(0.05))


def settle(pool: Pool[Any]) -> None:
    """Waits until every worker has started."""
    compute_until(pool, lambda: all(worker.ready for worker in pool._workers))


def handed_out(pool: Pool[Any]) -> list[int]:
    """How many jobs each worker was handed and has not answered."""
    return [len(worker.jobs) for worker in pool._workers]


def computed(pool: Pool[Any]) -> set[int]:
    """The tasks whose results are there and were not read."""
    return set(pool._done)


def left(pool: Pool[Any]) -> tuple[object, ...]:
    """What it still holds: tasks and parts of evaluations that were asked for, results and scores that nobody read."""
    return pool._orders, pool._done, pool._scores


NOTHING: tuple[object, ...] = {}, {}, {}


def deaths(pool: Pool[Any]) -> dict[str, int]:
    """How many workers died, at what."""
    return {what: count for (_, what, _), count in pool._deaths.items()}


def is_alive(pid: int) -> bool:
    """Is the process alive? A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def life(
    executor: Learning, strategy: Strategy, seed: int, at: Mapping[int, Callable[[], object]] = MappingProxyType({})
) -> dict[str, Any]:
    """A run in virtual time, with the digest of its bytes; `at` holds what happens at which version."""
    executor.begin(seed, PLACES, strategy.local)
    rows: list[object] = []
    scores: list[tuple[int, list[list[float]]]] = []
    digest = hashlib.sha256()

    def record(row: Row) -> None:
        rows.append(str(row))
        if isinstance(row, Aggregation):
            digest.update(server.versions.newest.tobytes())
            if row.version in at:
                at[row.version]()
            if row.version % 2 == 0:
                executor.evaluate(row.version, server.versions.newest, row.time, 36)
            scores.extend((number, plain(score)) for number, score in executor.evaluated())

    server = Server(strategy, clients=12, parameters=first(PLAN, seed), seed=seed, aggregations=8, record=record)
    stop = virtual.run(server, FLEET, executor)
    while len(scores) < 4:
        scores.extend((number, plain(score)) for number, score in executor.evaluated(1.0))
    outcomes = {name: number for name, number in server.counts.items() if number}
    return {"stop": stop, "digest": digest.hexdigest(), "rows": rows, "scores": scores, "outcomes": outcomes}


OVER = fedavg(cohort=4, over=0.5)
"""Asks six clients for four updates, and cancels the tasks of the other two."""
BY_ACCOUNT = fairshare(buffer=3, estimator="account", cap=2.0, importance="examples", limit=0.3, reward=0.2, most=0.4)
"""Some of whose clients reach the limit."""

TABLES: dict[str, Any] = {
    "name": "digits",
    "aggregations": 6,
    "data": {"use": "digits"},
    "model": {"use": "tests.support.learning:dropping"},
    "local": {"epochs": 1, "batch": 16, "lr": 0.1, "momentum": 0.9},
    "evaluate": {"every": 2, "sample": 100, "clients": 0.1, "personalise": 2},
    "clients": [
        {"group": "fast", "count": 8, "delay": "uniform(1, 2)", "labels": [4, 5, 6, 7, 8, 9]},
        {"group": "slow", "count": 4, "delay": "uniform(8, 12)", "labels": [0, 1, 2, 3]},
    ],
    "strategies": [
        {"use": "fedavg", "cohort": 4, "over": 0.5},
        {"use": "fedbuff", "buffer": 3, "concurrency": 5},
        {"use": "fedstaleweight", "buffer": 3},
    ],
}


def everything(serial: Serial, pool: Any, seed: int, deaths: set[int], pids: Callable[[Any], list[int]] = pids) -> None:
    """Random actions in both executors; at the actions in `deaths`, a worker is killed."""
    chance = random.Random(seed)
    pool.begin(seed, PLACES)
    serial.begin(seed, PLACES)
    running: list[Dispatch] = []
    scores: list[tuple[int, list[list[float]]]] = []
    asked = 0
    for number in range(120):
        if number in deaths:
            os.kill(chance.choice(pids(pool)), signal.SIGKILL)
        match chance.choice(["submit", "submit", "submit", "read", "read", "discard", "evaluate", "look"]):
            case "submit":
                running.append(task(number, chance.randrange(12), chance.randrange(8)))
                for executor in (serial, pool):
                    executor.submit(running[-1], version(running[-1].version), due=chance.random())
            case "read" if running:
                each = running.pop(chance.randrange(len(running)))
                assert pool.result(each).delta.tobytes() == serial.result(each).delta.tobytes()
            case "discard" if running:
                each = running.pop(chance.randrange(len(running)))
                for executor in (serial, pool):
                    executor.discard(each.task)
            case "evaluate":
                asked += 1
                for executor in (serial, pool):
                    executor.evaluate(number % 8, version(number % 8), chance.random(), asked=5)
            case "look":
                scores += [(each, plain(score)) for each, score in pool.evaluated(chance.choice([0.0, 0.01]))]
    for each in running:
        assert pool.result(each).delta.tobytes() == serial.result(each).delta.tobytes()
    while len(scores) < asked:
        scores += [(each, plain(score)) for each, score in pool.evaluated(1.0)]
    assert scores == [(each, plain(score)) for each, score in serial.evaluated()]
    assert left(pool) == NOTHING
