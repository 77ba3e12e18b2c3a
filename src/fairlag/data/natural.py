"""Partitions by owner: the data, or a file beside it, says which client holds which example."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fairlag.core.types import Integers
from fairlag.data.columns import located
from fairlag.data.dataset import Dataset
from fairlag.data.distinct import coded
from fairlag.data.shares import Holding
from fairlag.data.sharing import Partition
from fairlag.data.table import trained
from fairlag.data.whole import whole
from fairlag.errors import InputError, nearest
from fairlag.limits import shown, text_of


@dataclass(frozen=True, slots=True)
class ByOwner(Partition):
    """What partitions have in common if the data set says which client holds an example."""

    @property
    def drawn(self) -> int | None:
        """How many of the data's clients there are to be; None for all."""
        return None

    def population(self, data: Dataset) -> int:
        """How many clients the groups must have."""
        if self.drawn is None:
            return len(data.clients)
        if self.drawn > len(data.clients):
            raise InputError(
                f"the partition {self} draws {self.drawn} clients, but {data.name} has {len(data.clients)}"
            )
        return self.drawn

    def bound(self, data: Dataset, train: Integers) -> Partition:
        """The partition of these training examples."""
        if data.owners is None:
            raise InputError(
                f"the partition natural needs data that says which client holds an example, but {data.name} does not: "
                "name the column in `client`, or use another partition, such as iid"
            )
        owners = data.owners[train]
        if (owners < 0).any():
            raise InputError(
                f"example {train[owners < 0][0]} of {data.name} has no client, but each training example needs one"
            )
        return _Owned(data.name, owners, data.clients, self.population(data))

    def _owners(self, labels: Integers, groups: Sequence[Holding], clients: int, rng: np.random.Generator) -> Integers:
        raise InputError(f"the partition {self} cannot be used without a data set")


@dataclass(frozen=True, slots=True)
class Natural(ByOwner):
    """``natural``: the data itself says which client holds which example, such as a file with a `client` column.
    Clients are sorted by name and fill the groups in order. A group with ``names`` takes exactly these clients.
    ``natural(100)`` takes 100 of the clients: those with ``names``, and others drawn by the seed. Nobody trains on the
    examples of the rest.

    >>> data = Dataset("tiny", np.zeros((3, 1), np.uint8), np.zeros(3, np.int64), 1, 3, clients=("ann", "bob"),
    ...                owners=np.array([1, 0, 1]))
    >>> Natural().bound(data, np.arange(3)).share(data.labels, [Holding("all", 2)], seed=0).of(1).tolist()
    [0, 2]
    >>> Natural(1).bound(data, np.arange(3)).share(data.labels, [Holding("one", 1)], seed=0).of(0).tolist()
    [0, 2]
    """

    sample: int | None = None

    def __post_init__(self) -> None:
        """Refuses anything but a number of clients."""
        if self.sample is not None:
            object.__setattr__(self, "sample", whole(self.sample, "sample of natural", 1))

    @property
    def drawn(self) -> int | None:
        """How many of the data's clients there are to be; None for all."""
        return self.sample


@dataclass(frozen=True, slots=True)
class File(ByOwner):
    """``file(map.csv)``: like ``natural``, but a CSV file says which client holds which example. It has the columns
    ``example`` (its place in the data set, from 0) and ``client`` below a header, or one client per line.

    >>> str(File("map.csv"))
    "file('map.csv')"
    """

    path: Path

    def __post_init__(self) -> None:
        """Refuses anything but a file name."""
        if not isinstance(self.path, str | Path):
            raise InputError(f"path of file is {shown(self.path)}, but must be a file name such as 'map.csv'")
        object.__setattr__(self, "path", Path(self.path))

    def owned(self, data: Dataset, folder: Path) -> Dataset:
        """The data set with the owners that the file names."""
        file = located(folder, self.path)
        try:
            rows = list(csv.reader(io.StringIO(text_of(file, "utf-8-sig"), newline="")))
        except OSError as error:
            raise InputError(f"the partition file {str(file)!r} cannot be opened ({error.strerror})") from None
        except (csv.Error, ValueError) as error:
            raise InputError(f"the partition file {str(file)!r} is not a CSV file in UTF-8 ({error})") from None
        while rows and not any(cell.strip() for cell in rows[-1]):
            rows.pop()
        owner_of = dict(_entries(rows, file, data))
        values = np.array(list(owner_of.values()), object)
        if all(_is_number(each) and str(int(each)) == each for each in values):
            values = values.astype(np.int64)  # 9 comes before 10
        names, found = coded(values)
        codes = np.full(len(data), -1)
        codes[list(owner_of)] = found
        clients, owners = trained(names, codes, data.official)
        return replace(data, clients=clients, owners=owners)


def _entries(rows: Sequence[Sequence[str]], file: Path, data: Dataset) -> Iterator[tuple[int, str]]:
    """The examples and their clients."""
    header = [cell.strip() for cell in rows[0]] if rows else []
    where, seen = f"of the partition file {str(file)!r}", {}  # type: tuple[str, dict[int, int]]
    if "client" in header and "example" in header:
        places = header.index("example"), header.index("client")
        for line, row in enumerate(rows[1:], 2):
            if len(row) != len(header):
                raise InputError(f"line {line} {where} has {len(row)} cells, but the header has {len(header)}")
            example, client = (row[place].strip() for place in places)
            if not (_is_number(example) and int(example) < len(data)):
                raise InputError(
                    f"line {line} {where} has the example {shown(example)}, but must have a number from 0 to "
                    f"{len(data) - 1}"
                )
            if (before := seen.setdefault(int(example), line)) != line:
                raise InputError(f"line {line} {where} has the example {example} again: it is in line {before}, too")
            yield int(example), _named(client, line, where)
        return
    start = 1 if header == ["client"] else 0
    if (count := len(rows) - start) not in (len(data), data.official):
        raise InputError(
            f"the partition file {str(file)!r} names {count} clients, but {data.name} has {len(data)} examples: write "
            "one client per line, or the header example,client"
        )
    for line, row in enumerate(rows[start:], start + 1):
        if len(row) > 1:
            raise InputError(f"line {line} {where} has {len(row)} cells, but without a header it must be one client")
        yield line - start - 1, _named("".join(row).strip(), line, where)


def _is_number(cell: str) -> bool:
    """Is it a whole number that fits into 64 bits?"""
    return cell.isdecimal() and len(cell) < 19


def _named(client: str, line: int, where: str) -> str:
    if not client:
        raise InputError(f"line {line} {where} names no client")
    return client


@dataclass(frozen=True, slots=True, eq=False)
class _Owned(Partition):
    """A partition of the training examples of one data set, each with its owner."""

    data: str
    owners: Integers
    names: tuple[str, ...]
    population: int

    def _owners(self, labels: Integers, groups: Sequence[Holding], clients: int, rng: np.random.Generator) -> Integers:
        if clients != self.population:
            drawn = f", of which {self.population} are drawn" if self.population < len(self.names) else ""
            fewer = f', or draw some by partition = "natural({clients})"' if clients < len(self.names) else ""
            raise InputError(
                f"{self.data} has {len(self.names)} clients{drawn}, but the groups have {clients}: change a count, or "
                f"leave it out of one group, which then takes the rest{fewer}"
            )
        return placed(self.data, self.names, groups, rng)[self.owners]


def placed(data: str, clients: Sequence[str], groups: Sequence[Holding], rng: np.random.Generator) -> Integers:
    """The number of each of the data's clients in the fleet, whose clients are numbered group by group; −1 if it is not
    among them.

    >>> groups = [Holding("rest", 2), Holding("mine", 1, names=("bob",))]
    >>> placed("mine", ("ann", "bob", "cy"), groups, np.random.default_rng(0)).tolist()
    [0, 2, 1]
    """
    place = {name: number for number, name in enumerate(clients)}
    taken: dict[str, str] = {}
    for group in groups:
        for name in group.names or ():
            if name not in place:
                raise InputError(
                    f"group {group.name!r} names the client {name!r}, but {data} has none of that name: "
                    f"{nearest(name, place)}"
                )
            if name in taken:
                raise InputError(f"groups {taken[name]!r} and {group.name!r} both name the client {name!r}")
            taken[name] = group.name
    others = [number for name, number in place.items() if name not in taken]
    wanted = sum(group.count for group in groups) - len(taken)
    if wanted < len(others):
        others = np.sort(rng.choice(others, wanted, replace=False)).tolist()
    rest = iter(others)
    order = [
        number
        for group in groups
        for number in (
            [place[name] for name in group.names] if group.names else [next(rest) for _ in range(group.count)]
        )
    ]
    numbers = np.full(len(clients), -1)
    numbers[order] = np.arange(len(order))
    return numbers
