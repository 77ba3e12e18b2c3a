"""Books about a deployment that fairlag has no part in, and the checks of its record against them.

The accounts are paid a second time, by their definition, from the rows.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isclose, isfinite

import numpy as np

from tests.support.deployed import OUTCOMES, Aggregation, Memory, Record, Task

ROUNDING = 1e-9
LIMIT = 5.0
"""The default limit of FairShare's accounts: a client that holds so much earns nothing."""
SHARED = 2.0
"""The most that one version hands out."""


def paid(record: Record) -> tuple[Mapping[int, float], Mapping[int, float]]:
    """What each client earned and spent by the definition, from the rows alone: who was there, and who was merged."""
    there, heard = set[int](), set[int]()
    earned, spent = defaultdict[int, float](float), defaultdict[int, float](float)
    kept, changes = 0.0, list(record.presence)
    merged: dict[int, list[Task]] = {version: [] for version in record.aggregations}
    for task in record.tasks.values():
        if task.aggregation in merged:
            merged[task.aggregation].append(task)
    for version in sorted(merged):
        while changes and changes[0][0] < version:
            _, first, last, present = changes.pop(0)
            (there.update if present else there.difference_update)(range(first, last + 1))
        senders = [task.client for task in merged[version]]
        sharing = [each for each in heard & there if earned[each] - spent[each] < LIMIT]
        new = set(senders) - heard
        kept += 1 - len(new) / max(1, len(senders))
        shared = min(kept, SHARED) if sharing else 0.0
        kept -= shared
        for each in sharing:
            earned[each] += shared / len(sharing)
        for each in new:
            earned[each] += 1 / len(senders)
        heard |= new
        for task in merged[version]:
            spent[task.client] += task.weight or 0.0
    return earned, spent


@dataclass
class Books:
    """What was seen so far, and is never allowed to change."""

    nodes: dict[int, tuple[str, int]]
    """The group and the examples of each node, by its partition, which is the number of its client."""
    quarantined: set[int] = field(default_factory=set)
    """The clients that were ever put into quarantine."""
    aggregations: dict[int, Aggregation] = field(default_factory=dict)
    tasks: dict[int, Task] = field(default_factory=dict)
    clients: dict[int, tuple[str, int]] = field(default_factory=dict)
    memories: dict[int, Memory] = field(default_factory=dict)
    """The server's memory at the versions that were looked at."""
    looks: int = 0

    def look(self, record: Record) -> list[str]:
        """Everything that is wrong with the record, as sentences that begin with the name of the check."""
        found = [f"{name}: {said}" for name, check in CHECKS.items() for said in check(self, record)]
        self.aggregations |= record.aggregations
        self.tasks |= record.tasks
        self.clients |= record.clients
        self.memories[record.memory.version] = record.memory
        self.looks += 1
        return found


def _versions(books: Books, record: Record) -> Iterator[str]:
    """No version is lost, and they are numbered without gaps."""
    if (most := max(books.aggregations, default=0)) > record.version:
        yield f"version {most} was seen, but the newest is now {record.version}"
    if sorted(record.aggregations) != list(range(1, len(record.aggregations) + 1)):
        yield "the versions have gaps"


def _same_rows(books: Books, record: Record) -> Iterator[str]:
    """Rows that were seen are still the same."""
    for version, row in books.aggregations.items():
        if record.aggregations.get(version) != row:
            yield f"version {version} was {row}, and is now {record.aggregations.get(version)}"
    for number, task in books.tasks.items():
        if record.tasks.get(number) != task:
            yield f"task {number} was {task}, and is now {record.tasks.get(number)}"


def _made_of(books: Books, record: Record) -> Iterator[str]:
    """Every version has as many updates as it says, with the weight that it says."""
    merged: dict[int, list[Task]] = {version: [] for version in record.aggregations}
    for number, task in record.tasks.items():
        if (task.outcome == "aggregated") != (task.aggregation in merged):
            yield f"task {number} is {task.outcome}, in version {task.aggregation}"
        elif task.aggregation is not None:
            merged[task.aggregation].append(task)
    for version, row in record.aggregations.items():
        tasks = merged[version]
        weight = sum(task.weight or 0.0 for task in tasks)
        if len(tasks) != row.updates or not isclose(weight, row.weight, abs_tol=ROUNDING):
            yield f"version {version} says {row.updates} updates of {row.weight}, its tasks {len(tasks)} of {weight}"
        if row.refused or row.partial:
            yield f"version {version} was refused or made of too few updates: {row}"


def _staleness(books: Books, record: Record) -> Iterator[str]:
    """Staleness is the version before the new one, minus that of the task, which was the newest at its start."""
    times = np.array([record.aggregations[version].time for version in sorted(record.aggregations)])
    for number, task in record.tasks.items():
        newest = int(np.searchsorted(times, task.dispatched, side="right"))
        if task.version != newest:
            yield f"task {number} began from version {task.version}, when {newest} was the newest"
        if task.aggregation is not None and task.staleness != task.aggregation - 1 - task.version:
            yield f"task {number} of version {task.version} is in {task.aggregation} with staleness {task.staleness}"


def _memory(books: Books, record: Record) -> Iterator[str]:
    """The server's updates and staleness of each client are the sums of the rows; the checkpoint is whole."""
    memory, updates, staleness = record.memory, Counter[int](), Counter[int]()
    for task in record.tasks.values():
        if task.aggregation is not None:
            updates[task.client] += 1
            staleness[task.client] += task.staleness or 0
    if memory.damage:
        yield f"the checkpoint of version {memory.version} is {memory.damage}"
    if memory.version != record.version:
        yield f"the checkpoint is of version {memory.version}, the rows of {record.version}"
    for client, known in enumerate(zip(memory.updates, memory.staleness, strict=True)):
        if known != (updates[client], staleness[client]):
            yield f"client {client} has {known} updates and staleness, its rows {updates[client]}, {staleness[client]}"


def _accounts(books: Books, record: Record) -> Iterator[str]:
    """Accounts are those of the definition, nobody spends more than it earned, and earnings are the versions."""
    memory, allowed = record.memory, ROUNDING * (1 + record.version)
    total = sum(memory.earned) + memory.kept
    if not isclose(total, memory.version, abs_tol=allowed):
        yield f"all earned {total}, for {memory.version} versions"
    for client, held in enumerate(memory.held):
        if not (isfinite(held) and held >= -allowed):
            yield f"client {client} has spent {-held} more than it earned"
    due, used = paid(record)
    for client, (earned, spent) in enumerate(zip(memory.earned, memory.spent, strict=True)):
        if not isclose(earned, due[client], abs_tol=allowed):
            yield f"client {client} has earned {earned}, by the definition {due[client]}"
        if not isclose(spent, used[client], abs_tol=allowed):
            yield f"client {client} has spent {spent}, its rows {used[client]}"


def _kept_accounts(books: Books, record: Record) -> Iterator[str]:
    """A version's accounts never change, and no later one has less."""
    memory = record.memory
    before = books.memories.get(memory.version)
    if before is not None and not _alike(before, memory):
        yield f"version {memory.version} remembers {memory}, and did remember {before}"
    last = books.memories.get(max(books.memories, default=0))
    for what in () if last is None else ("updates", "staleness", "spent", "earned"):
        old, new = getattr(last, what), getattr(memory, what)
        if len(new) < len(old) or any(b < a - ROUNDING * (1 + memory.version) for a, b in zip(old, new, strict=False)):
            yield f"{what} went down from {old} to {new}"


def _alike(one: Memory, other: Memory) -> bool:
    """Are they the same, but for rounding? A client that leaves has its balance written in another way."""
    counts = one.updates == other.updates and one.staleness == other.staleness
    return counts and all(
        isclose(a, b, abs_tol=ROUNDING * (1 + one.version))
        for a, b in zip((*one.spent, *one.held, one.kept), (*other.spent, *other.held, other.kept), strict=True)
    )


def _clients(books: Books, record: Record) -> Iterator[str]:
    """A node is always the same client, and there are no others."""
    for client, row in record.clients.items():
        node = books.nodes.get(client)
        if node is None or row[0] != node[0] or row[1] != node[1]:
            yield f"client {client} is {row}, but its node {node}"
    for number, task in record.tasks.items():
        if task.client not in books.nodes:
            yield f"task {number} is of client {task.client}, which is no node"


def _ordinals(books: Books, record: Record) -> Iterator[str]:
    """No task of a client is counted twice."""
    seen = Counter((task.client, task.ordinal) for task in record.tasks.values())
    for (client, ordinal), times in seen.items():
        if times > 1:
            yield f"client {client} has {times} tasks with the number {ordinal}"


def _counts(books: Books, record: Record) -> Iterator[str]:
    """Each task ends once, and what has ended is in the rows."""
    counts = record.memory.counts
    ended = sum(count for name, count in counts.items() if name != "dispatched")
    if counts["dispatched"] != ended:
        yield f"the counts do not add up: {counts}"
    outcomes = Counter(task.outcome for task in record.tasks.values())
    for outcome in OUTCOMES:
        if outcomes[outcome] != counts[outcome]:
            yield f"{outcomes[outcome]} tasks are {outcome}, the counts say {counts[outcome]}"


def _refused(books: Books, record: Record) -> Iterator[str]:
    """Only nodes in quarantine are refused."""
    for number, task in record.tasks.items():
        if task.outcome == "refused" and not (task.client in books.quarantined and "quarantine" in (task.reason or "")):
            yield f"task {number} of client {task.client} was refused: {task.reason}"


CHECKS: dict[str, Callable[[Books, Record], Iterator[str]]] = {
    "versions": _versions,
    "rows": _same_rows,
    "versions and tasks": _made_of,
    "staleness": _staleness,
    "memory": _memory,
    "accounts": _accounts,
    "accounts kept": _kept_accounts,
    "clients": _clients,
    "ordinals": _ordinals,
    "counts": _counts,
    "refusals": _refused,
}
