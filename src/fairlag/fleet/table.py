"""CSV files and other files that a fleet is read from: opened safely, bad rows named by line."""

import csv
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from fairlag.errors import InputError
from fairlag.limits import shown
from fairlag.text.calls import number

Made = TypeVar("Made")

_LONGEST = 1_000_000
"""The most characters of a line."""


class Lines(Protocol):
    """A CSV reader: the rows, and the number of lines read so far."""

    line_num: int

    def __iter__(self) -> Iterator[list[str]]: ...


class Source(NamedTuple):
    """A file that a part of the fleet is read from."""

    written: str
    """Its path as the user wrote it."""
    path: Path
    sha256: str
    """The digest of its content."""

    @classmethod
    def of(cls, written: object, folder: Path | None, noun: str) -> "Source":
        """The file with this name, in the folder if the name is relative."""
        if not isinstance(written, str | PathLike):
            raise InputError(f"path of {noun} is {shown(written)}, but must be a file name in quotes")
        path = Path(folder or "", written).absolute()
        check_regular(path, noun)
        try:
            with path.open("rb") as file:
                return cls(str(written), path, hashlib.file_digest(file, "sha256").hexdigest())
        except OSError as error:
            raise InputError(f"the {noun} {str(path)!r} cannot be opened ({error.strerror})") from None


class Row(NamedTuple):
    """A row below the header of a CSV file."""

    where: str
    """Its line and file, for messages."""
    cells: Mapping[str, str]

    def number(self, column: str, *, positive: bool = False) -> float:
        """The number in a column, at least 0 or above 0."""
        return number(number_or_text(self.cells[column]), f"{column} in {self.where}", positive=positive)


def opening(maker: Callable[..., Made], folder: Path | None, noun: str, **context: object) -> Callable[..., Made]:
    """A maker that takes the path of a file instead of its source; it is given those of `context` that it asks for."""
    first, *others = inspect.signature(maker).parameters.values()
    given = {each.name: context[each.name] for each in others if each.name in context}

    def opened(path: object, *arguments: object, **keywords: object) -> Made:
        return maker(Source.of(path, folder, noun), *arguments, **keywords, **given)

    written = [first.replace(name="path"), *(each for each in others if each.name not in given)]
    opened.__signature__ = inspect.Signature(written)  # type: ignore[attr-defined]
    return opened


def check_regular(path: str | PathLike[str], noun: str) -> None:
    """Refuses a folder, a pipe or a device."""
    if Path(path).exists() and not Path(path).is_file():
        raise InputError(f"the {noun} {str(path)!r} is not a regular file; name a CSV file")


def read_csv(path: str | PathLike[str], noun: str, make: Callable[[Lines], Made]) -> Made:
    """What a function makes of the lines of a CSV file, which is read line by line."""
    check_regular(path, noun)
    try:
        # utf-8-sig, because spreadsheets write a byte-order mark first.
        with open(path, encoding="utf-8-sig", newline="") as file:
            return make(csv.reader(_lines(file)))
    except OSError as error:
        raise InputError(f"the {noun} {str(path)!r} cannot be opened ({error.strerror}); name a CSV file") from None
    except (csv.Error, ValueError) as error:
        raise InputError(f"the {noun} {str(path)!r} is not a CSV file in UTF-8 ({error})") from None


def rows(source: Source, noun: str, needed: Sequence[str]) -> list[Row]:
    """The rows of a CSV file with a header; refuses one without the needed columns, or a row that is too short.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("client,start\\nphone,5\\n")
    ...     row, = rows(Source.of("a.csv", Path(folder), "availability"), "availability", ["client", "start"])
    >>> row.cells["client"], row.number("start")
    ('phone', 5.0)
    """
    return read_csv(source.path, noun, lambda lines: list(_rows(lines, source, noun, needed)))


def _rows(lines: Lines, source: Source, noun: str, needed: Sequence[str]) -> Iterator[Row]:
    filled = ([cell.strip() for cell in row] for row in lines if any(cell.strip() for cell in row))
    header = next(filled, [])
    for column in needed:
        if column not in header:
            raise InputError(
                f"the {noun} {source.written!r} has no column {column!r}: "
                f"its first line is {shown(','.join(header))}, it must be a header with {','.join(needed)}"
            )
    for cells in filled:
        where = f"line {lines.line_num} of {source.written!r}"
        if len(cells) != len(header):
            raise InputError(f"{where} has {len(cells)} cells, but the header has {len(header)}")
        yield Row(where, dict(zip(header, cells, strict=True)))


def _lines(file: Iterable[str]) -> Iterator[str]:
    """The lines of a file, with bounded length: a line is parsed as a whole."""
    for line in file:
        if len(line) > _LONGEST:
            raise ValueError(f"a line has more than {_LONGEST:,} characters")
        yield line


def number_or_text(cell: str) -> float | str:
    """A number if it is one, else the text, for a message."""
    try:
        return float(cell)
    except ValueError:
        return cell
