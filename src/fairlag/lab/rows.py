"""Turns what a server records into rows of the tables of a run's database."""

from collections.abc import Iterable, Iterator, Sequence

from fairlag.core.types import Aggregation, Ended, Outcome, Presence, Row
from fairlag.lab.attendance import ranges


def by_table(rows: Sequence[Row], presence: int) -> list[tuple[str, Iterator[tuple[object, ...]]]]:
    """The new rows of each table, in the order of writing; `presence` is the last number in the table of that name."""
    return [
        ("tasks", _aggregated_tasks(rows)),
        ("tasks", _ended_tasks(rows)),
        ("aggregations", _aggregations(rows)),
        ("parts", _parts(rows)),
        ("units", _units(rows)),
        ("presence", _presence(rows, presence + 1)),
    ]


def tasks(row: Row) -> Iterable[int]:
    """The numbers of the tasks that this record adds to the table of tasks."""
    if isinstance(row, Aggregation):
        return (task.task for task in row.tasks)
    return (row.task.task,) if isinstance(row, Ended) else ()


def number(value: float) -> float | None:
    """A number for SQLite, which can store NaN only as NULL."""
    return float(value) if value == value else None


def _aggregated_tasks(rows: Iterable[Row]) -> Iterator[tuple[object, ...]]:
    merged = Outcome.AGGREGATED.value
    for row in rows:
        if type(row) is Aggregation:
            late, weights = row.staleness.tolist(), row.weights.tolist()
            for task, arrival, versions, weight in zip(row.tasks, row.arrivals, late, weights, strict=True):
                yield (*task, arrival, merged, row.version, versions, number(weight), None)


def _ended_tasks(rows: Iterable[Row]) -> Iterator[tuple[object, ...]]:
    return (
        (*row.task, row.time, row.outcome.value, None, None, None, row.reason) for row in rows if type(row) is Ended
    )


def _aggregations(rows: Iterable[Row]) -> Iterator[tuple[object, ...]]:
    for row in rows:
        if type(row) is Aggregation:
            weight = number(sum(row.weights.tolist()))
            yield row.version, row.time, len(row.tasks), weight, row.partial, row.refused


def _parts(rows: Iterable[Row]) -> Iterator[tuple[object, ...]]:
    for row in rows:
        if type(row) is Aggregation and row.parts is not None:
            for client, change in zip(row.parts.clients.tolist(), row.parts.changes.tolist(), strict=True):
                yield row.version, client, change


def _units(rows: Iterable[Row]) -> Iterator[tuple[object, ...]]:
    return ((row.version, row.acted) for row in rows if type(row) is Aggregation and row.parts is not None)


def _presence(rows: Iterable[Row], number: int) -> Iterator[tuple[object, ...]]:
    for row in rows:
        if type(row) is Presence:
            for first, last in ranges(row.clients):
                yield number, row.time, row.version, first, last, int(row.present)
                number += 1
