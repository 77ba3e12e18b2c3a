"""What the directory of a deployment says at one moment, read with SQLite alone. Checks are in books.py."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairlag.core.state import State, take, unpack
from fairlag.lab.folder import unpacked

OUTCOMES = ("aggregated", "refused", "lost", "cancelled")


class Task(NamedTuple):
    """A row about a task that has ended."""

    client: int
    version: int
    ordinal: int
    dispatched: float
    ended: float
    outcome: str
    aggregation: int | None
    staleness: int | None
    weight: float | None
    reason: str | None


class Aggregation(NamedTuple):
    """A row about a version."""

    time: float
    updates: int
    weight: float
    partial: int
    refused: str


class Memory(NamedTuple):
    """What the server remembers of its clients, from its newest checkpoint."""

    version: int
    updates: tuple[int, ...]
    staleness: tuple[int, ...]
    spent: tuple[float, ...]
    held: tuple[float, ...]
    kept: float
    """What nobody was there to earn."""
    counts: dict[str, int]
    """How many tasks it gave out, and how they ended; the later entries add up to the first."""
    damage: str
    """What is wrong with the file; empty if it is intact and its model is finite."""

    @property
    def earned(self) -> tuple[float, ...]:
        return tuple(spent + held for spent, held in zip(self.spent, self.held, strict=True))


class Record(NamedTuple):
    """Everything that the directory says, at one moment."""

    aggregations: dict[int, Aggregation]
    tasks: dict[int, Task]
    presence: tuple[tuple[int, int, int, int], ...]
    """Version, first client, last client, present or not."""
    clients: dict[int, tuple[str, int]]
    """The group and the examples of each client."""
    memory: Memory

    @property
    def version(self) -> int:
        return max(self.aggregations, default=0)

    def merged(self, version: int) -> dict[int, Task]:
        """The tasks whose updates made this version."""
        return {number: task for number, task in self.tasks.items() if task.aggregation == version}


def read(folder: Path) -> Record:
    """Reads the directory in one transaction. The checkpoint of the newest commit stays while one more is made."""
    with closing(sqlite3.connect(f"file:{folder / 'run.sqlite'}?mode=ro", uri=True, timeout=30)) as rows:
        rows.execute("BEGIN")
        aggregations = {
            version: Aggregation(*rest)
            for version, *rest in rows.execute(
                "SELECT version, time, updates, weight, partial, refused FROM aggregations"
            )
        }
        tasks = {
            number: Task(*rest)
            for number, *rest in rows.execute(
                "SELECT task, client, version, ordinal, dispatched, ended, outcome, aggregation, staleness, weight, "
                "reason FROM tasks"
            )
        }
        presence = tuple(rows.execute("SELECT version, first, last, present FROM presence ORDER BY number"))
        clients = {client: (group, count) for client, group, count in rows.execute("SELECT * FROM clients")}
        (file,) = rows.execute("SELECT file FROM checkpoints ORDER BY number DESC LIMIT 1").fetchone()
        memory = remembered(folder / file)
    return Record(aggregations, tasks, presence, clients, memory)


def remembered(file: Path) -> Memory:
    """What a checkpoint says. Its name contains the digest of its content."""
    content = file.read_bytes()
    intact = hashlib.sha256(content).hexdigest().startswith(file.stem.rsplit("-", 1)[1])
    arrays, words = unpacked(file)
    state: State = unpack(arrays, words["text"])
    server = take(take(state, "simulation", dict), "server", dict)
    ledger = take(server, "ledger", dict)
    columns, accounts = take(ledger, "columns", dict), take(ledger, "accounts", dict)
    models = [array for path, array in arrays.items() if "/versions/" in f"/{path}" and array.dtype == np.float32]
    finite = bool(models) and all(bool(np.isfinite(array).all()) for array in models)
    damage = "" if intact and finite else "not what was written" if finite else "no finite model"
    count = len(columns["weight"])
    base, balance, earns = (np.asarray(accounts[name])[:count] for name in ("base", "balance", "earns"))
    held = np.where(earns > 0, earns * (accounts["level"] - base), balance)
    return Memory(
        version=int(ledger["version"]),
        updates=tuple(columns["updates"].tolist()),
        staleness=tuple(columns["staleness"].tolist()),
        spent=tuple(columns["weight"].tolist()),
        held=tuple(held.tolist()),
        kept=float(accounts["kept"]),
        counts={
            "dispatched": server["_next_task"],
            **dict(zip(OUTCOMES, server["ended"], strict=True)),
            "running": len(ledger["running"]["task"]),
            "buffered": len(ledger["buffer"]["task"]),
        },
        damage=damage,
    )
