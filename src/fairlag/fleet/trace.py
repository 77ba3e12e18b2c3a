"""Recorded durations: reading them from a CSV file, and drawing from them with replacement."""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import numpy as np

from fairlag.errors import InputError
from fairlag.fleet.distribution import Numbers
from fairlag.text import Written, check_mean, number

_COLUMN = "delay"


@dataclass(frozen=True, slots=True)
class Trace(Written):
    """``trace("file.csv")``: one of n recorded durations, each equally likely.

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
        if isinstance(u, np.ndarray):
            return np.asarray(self.durations)[(u * len(self.durations)).astype(np.intp)]
        return self.durations[int(u * len(self.durations))]


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
