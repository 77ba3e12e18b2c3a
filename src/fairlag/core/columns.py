"""What the ledger knows of each client, and how that lies in memory: a row for each client, an array for each fact."""

import numpy as np

from fairlag.core.types import Floats, Integers

_INTEGERS = {
    "task": -1,  # the last task it was given
    "present": -1,  # 1 if it is there now, 0 if it was, -1 if it was never seen
    "dispatched": 0,  # tasks it was ever given
    "contributed": -1,  # the version that its last admitted update was trained from
    "examples": 0,  # the training examples that it has as far as is known, 0 if it was never seen
    "updates": 0,  # its updates that were aggregated
    "staleness": 0,  # the sum of their staleness
    "position": 0,  # which of all the updates that the server ever merged its last one was, counted from 1
}
_REALS = {
    "mean": 0.0,  # the mean staleness of its aggregated updates: kept ready, as it is read at every aggregation
    "weight": 0.0,  # the sum of the weights that its updates got; if updates last, see Ledger.stand
    "part": 0.0,  # its part of each version from now on, in units, if updates last
    "busy": 0.0,  # total duration of its tasks whose updates were aggregated
    "since": np.nan,  # when it was first given a task
    "arrival": np.nan,  # when its last admitted update came in
    "loss": 0.0,  # what it said of its loss with its last admitted update
}
_ROW = (
    *("task", "present", "dispatched", "contributed", "examples", "since", "arrival", "loss"),
    *("updates", "staleness", "position", "mean", "weight", "busy", "part"),
)
"""Their places: what is needed when a client comes, goes, is given a task or sends an update, then what is needed when
that is merged."""
_LINE = 8
"""How many numbers a processor fetches at once: those of one of a million clients are in no cache."""


def lines(rows: int, each: int) -> Integers:
    """Rows of zeros, each of them that many such lines and none of them across more.

    >>> lines(3, 2).shape
    (3, 16)
    """
    width = each * _LINE
    room = np.zeros((rows + 1) * width, np.int64)
    first = -room.ctypes.data // room.itemsize % width
    return room[first : first + rows * width].reshape(rows, width)


def blank(capacity: int) -> Integers:
    """Rows of clients of which nothing is known."""
    block, row = lines(capacity, 2), lines(1, 2)
    for columns, nothing in ((integers(row), _INTEGERS), (reals(row), _REALS)):
        for name, column in columns.items():
            column[:] = nothing[name]
    block[:] = row
    return block


def integers(block: Integers) -> dict[str, Integers]:
    """The columns of such rows that hold whole numbers.

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
