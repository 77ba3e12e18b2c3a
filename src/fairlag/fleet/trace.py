"""Recorded durations: listed, or read from a CSV file, and drawn with replacement."""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import numpy as np

from fairlag.errors import InputError
from fairlag.fleet.distribution import Numbers
from fairlag.text import Written, check_mean, number, write

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
    ((1.0, 2.0, 3.0), 2.0, 2.0)
    """

    path: Path
    durations: tuple[float, ...] = field(init=False, repr=False)
    mean: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the file."""
        if not isinstance(self.path, str | PathLike):
            raise InputError(f"path of trace is {self.path!r}, but must be a file name in quotes")
        object.__setattr__(self, "path", Path(self.path))
        object.__setattr__(self, "durations", tuple(sorted(read(self.path))))
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
        """Refuse an empty list, and what is not a duration."""
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


def _at(durations: tuple[float, ...], u: Numbers) -> Numbers:
    if isinstance(u, np.ndarray):
        return np.asarray(durations)[(u * len(durations)).astype(np.intp)]
    return durations[int(u * len(durations))]


def read(path: str | PathLike[str]) -> list[float]:
    """The durations in a CSV file, in its order: one number per line, or the column ``delay`` below a header.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "recorded.csv")
    ...     _ = file.write_text("device,delay\\nphone,3\\nwatch,1.5\\n")
    ...     read(file)
    [3.0, 1.5]
    """
    try:
        # utf-8-sig, because spreadsheets put a byte-order mark in front.
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file)
            rows = [(lines.line_num, row) for row in lines if any(cell.strip() for cell in row)]
    except OSError as error:
        raise InputError(f"the trace {str(path)!r} cannot be opened ({error.strerror}); name a CSV file") from None
    except (csv.Error, ValueError) as error:
        raise InputError(f"the trace {str(path)!r} is not a CSV file in UTF-8 ({error})") from None
    durations = list(_durations(rows, path))
    if not durations:
        raise InputError(f"the trace {str(path)!r} holds no durations; write one number of seconds per line")
    return durations


def _durations(rows: list[tuple[int, list[str]]], path: str | PathLike[str]) -> Iterator[float]:
    header = [cell.strip() for cell in rows[0][1]] if rows else []
    column = header.index(_COLUMN) if _COLUMN in header else None
    if header and column is None and isinstance(_number_or_text(",".join(header)), str):
        raise InputError(
            f"the trace {str(path)!r} begins with {','.join(header)!r}, but must begin with a number, "
            f"or with a header that has the column {_COLUMN}"
        )
    for line, row in rows if column is None else rows[1:]:
        cell = ",".join(row) if column is None else ",".join(row[column : column + 1])
        yield number(_number_or_text(cell), f"line {line} of the trace {str(path)!r}")


def _number_or_text(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell
