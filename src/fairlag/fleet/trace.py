"""Recorded durations: listed, or read from a CSV file, and drawn with replacement."""

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from os import PathLike
from pathlib import Path

import numpy as np

from fairlag.errors import InputError
from fairlag.fleet.distribution import Numbers
from fairlag.fleet.table import Lines, number_or_text, read_csv
from fairlag.limits import shown
from fairlag.text.calls import Written, check_mean, number, write

_COLUMN = "delay"


@dataclass(frozen=True, slots=True)
class Trace(Written):
    """``trace("file.csv")``: one of n recorded durations, each equally likely.
    The file has one number of seconds per line, or a column ``delay`` below a header.

    quantile(u) = the recorded durations in increasing order, at index ⌊u n⌋. The file is read once, at construction.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "recorded.csv")
    ...     _ = file.write_text("3\\n1\\n2\\n")
    ...     recorded = Trace(file)
    >>> recorded.durations, recorded.mean, recorded.quantile(0.5)
    (array('d', [1.0, 2.0, 3.0]), 2.0, 2.0)
    """

    path: Path
    durations: "array[float]" = field(init=False, repr=False, hash=False)
    """An array of eight bytes each, because there may be many."""
    mean: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Reads the file."""
        if not isinstance(self.path, str | PathLike):
            raise InputError(f"path of trace is {self.path!r}, but must be a file name in quotes")
        object.__setattr__(self, "path", Path(self.path))
        durations = read(self.path)
        np.asarray(durations).sort()  # in place
        object.__setattr__(self, "durations", durations)
        object.__setattr__(self, "mean", math.fsum(self.durations) / len(self.durations))
        check_mean(self.mean, self)

    def quantile(self, u: Numbers) -> Numbers:
        """The duration at u, a number or an array of numbers in (0, 1)."""
        return _at(self.durations, u)


@dataclass(frozen=True, slots=True)
class Empirical(Written):
    """``empirical(duration, duration, …)``: one of the n durations, each equally likely.

    quantile(u) = the durations in increasing order, at index ⌊u n⌋.

    >>> Empirical((3, 1, 2)).quantile(0.5), str(Empirical((3, 1.5)))
    (2.0, 'empirical(1.5, 3)')
    """

    durations: tuple[float, ...]
    mean: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuses an empty list, and anything but a duration."""
        if not self.durations:
            raise InputError("empirical has no durations; write for example empirical(1, 1.5, 4)")
        checked = sorted(number(each, "a duration of empirical") for each in self.durations)
        object.__setattr__(self, "durations", tuple(checked))
        object.__setattr__(self, "mean", math.fsum(checked) / len(checked))
        check_mean(self.mean, self)

    def __str__(self) -> str:
        """The durations in increasing order."""
        return f"empirical({', '.join(write(each) for each in self.durations)})"

    def quantile(self, u: Numbers) -> Numbers:
        """The duration at u, a number or an array of numbers in (0, 1)."""
        return _at(self.durations, u)


def _at(durations: "Sequence[float] | array[float]", u: Numbers) -> Numbers:
    if isinstance(u, np.ndarray):
        return np.asarray(durations)[(u * len(durations)).astype(np.intp)]
    return durations[int(u * len(durations))]


def read(path: str | PathLike[str]) -> "array[float]":
    """The durations in a CSV file, in its order: one number per line, or the column ``delay`` below a header.

    It is read line by line, so it needs no more memory than the durations.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "recorded.csv")
    ...     _ = file.write_text("device,delay\\nphone,3\\nwatch,1.5\\n")
    ...     read(file)
    array('d', [3.0, 1.5])
    """
    durations = read_csv(path, "trace", lambda lines: array("d", _durations(lines, path)))
    if not durations:
        raise InputError(f"the trace {str(path)!r} has no durations; write one number of seconds per line")
    return durations


def _durations(lines: Lines, path: str | PathLike[str]) -> Iterator[float]:
    rows = (row for row in lines if any(cell.strip() for cell in row))
    first = next(rows, [])
    header = [cell.strip() for cell in first]
    column = header.index(_COLUMN) if _COLUMN in header else None
    if header and column is None and isinstance(number_or_text(",".join(header)), str):
        raise InputError(
            f"the trace {str(path)!r} begins with {shown(','.join(header))}, but must begin with a number, "
            f"or with a header that has the column {_COLUMN}"
        )
    for row in rows if column is not None or not first else chain([first], rows):
        cell = ",".join(row) if column is None else ",".join(row[column : column + 1])
        yield number(number_or_text(cell), f"line {lines.line_num} of the trace {str(path)!r}")
