"""The ledger's table and its memory layout: one row per client, one column per fact."""

import numpy as np

from fairlag.core.types import Floats, Integers

_INTEGERS = {
    "task": -1,  # its last task
    "present": -1,  # 1 if it is present, 0 if it is away, -1 if it was never seen
    "dispatched": 0,  # the number of its tasks so far
    "contributed": -1,  # the version that its last admitted update was trained from
    "examples": 0,  # its training examples as far as the server knows, 0 if it was never seen
    "updates": 0,  # the number of its aggregated updates
    "staleness": 0,  # the sum of their staleness
    "position": 0,  # the position of its last update among all merged ones, counted from 1
}
_REALS = {
    "mean": 0.0,  # the mean staleness of its aggregated updates: stored, because every aggregation reads it
    "weight": 0.0,  # the sum of its updates' weights; for reductions that keep updates, see Ledger.stand
    "part": 0.0,  # its part of each version from now on, in units, for reductions that keep updates
    "busy": 0.0,  # total duration of its tasks whose updates were aggregated
    "since": np.nan,  # the time of its first task
    "arrival": np.nan,  # when its last admitted update arrived
    "loss": 0.0,  # the loss that it reported with its last admitted update
}
_ROW = (
    *("task", "present", "dispatched", "contributed", "examples", "since", "arrival", "loss"),
    *("updates", "staleness", "position", "mean", "weight", "busy", "part"),
)
"""The order of the columns. First those used when a client joins, leaves, gets a task or sends an update; then those
used when the update is merged."""
_LINE = 8
"""Numbers per cache line: with a million clients, reading a row costs one memory fetch per line."""


def lines(rows: int, each: int) -> Integers:
    """Rows of zeros; each row is `each` cache lines long and starts at the beginning of one.

    >>> lines(3, 2).shape
    (3, 16)
    """
    width = each * _LINE
    room = np.zeros((rows + 1) * width, np.int64)
    first = -room.ctypes.data // room.itemsize % width
    return room[first : first + rows * width].reshape(rows, width)


def blank(capacity: int) -> Integers:
    """Rows for clients that were never seen, each of two cache lines, aligned."""
    block, row = lines(capacity, 2), lines(1, 2)
    for columns, nothing in ((integers(row), _INTEGERS), (reals(row), _REALS)):
        for name, column in columns.items():
            column[:] = nothing[name]
    block[:] = row
    return block


def integers(block: Integers) -> dict[str, Integers]:
    """The columns that hold whole numbers.

    >>> integers(blank(2))["present"].tolist()
    [-1, -1]
    """
    return {name: block[:, _ROW.index(name)] for name in _INTEGERS}


def reals(block: Integers) -> dict[str, Floats]:
    """The other columns.

    >>> reals(blank(1))["since"].tolist()
    [nan]
    """
    return {name: block[:, _ROW.index(name)].view(np.float64) for name in _REALS}
