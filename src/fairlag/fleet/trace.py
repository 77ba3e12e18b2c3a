"""Recorded durations: listed, or read from a CSV file, and drawn with replacement."""

import csv
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Protocol

import numpy as np

from fairlag.errors import InputError
from fairlag.fleet.distribution import Numbers
from fairlag.limits import shown
from fairlag.text.calls import Written, check_mean, number, write

_COLUMN = "delay"
_LONGEST = 1_000_000
"""The most characters of a line."""


class Lines(Protocol):
    """A CSV reader: the rows, and the number of lines read so far."""

    line_num: int

    def __iter__(self) -> Iterator[list[str]]: ...


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
    if Path(path).exists() and not Path(path).is_file():
        raise InputError(f"the trace {str(path)!r} is not a regular file; name a CSV file")
    try:
        # utf-8-sig, because spreadsheets write a byte-order mark first.
        with open(path, encoding="utf-8-sig", newline="") as file:
            durations = array("d", _durations(csv.reader(_lines(file)), path))
    except OSError as error:
        raise InputError(f"the trace {str(path)!r} cannot be opened ({error.strerror}); name a CSV file") from None
    except (csv.Error, ValueError) as error:
        raise InputError(f"the trace {str(path)!r} is not a CSV file in UTF-8 ({error})") from None
    if not durations:
        raise InputError(f"the trace {str(path)!r} has no durations; write one number of seconds per line")
    return durations


def _lines(file: Iterable[str]) -> Iterator[str]:
    """The lines of a file, with bounded length: a line is parsed as a whole."""
    for line in file:
        if len(line) > _LONGEST:
            raise ValueError(f"a line has more than {_LONGEST:,} characters")
        yield line


def _durations(lines: Lines, path: str | PathLike[str]) -> Iterator[float]:
    rows = (row for row in lines if any(cell.strip() for cell in row))
    first = next(rows, [])
    header = [cell.strip() for cell in first]
    column = header.index(_COLUMN) if _COLUMN in header else None
    if header and column is None and isinstance(_number_or_text(",".join(header)), str):
        raise InputError(
            f"the trace {str(path)!r} begins with {shown(','.join(header))}, but must begin with a number, "
            f"or with a header that has the column {_COLUMN}"
        )
    for row in rows if column is not None or not first else chain([first], rows):
        cell = ",".join(row) if column is None else ",".join(row[column : column + 1])
        yield number(_number_or_text(cell), f"line {lines.line_num} of the trace {str(path)!r}")


def _number_or_text(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell
