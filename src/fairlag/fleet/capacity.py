"""How fast each client of a fleet is, from a file: its seconds per local step, and its lines."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fairlag.core.types import Floats
from fairlag.errors import InputError, nearest
from fairlag.fleet import fedscale
from fairlag.fleet.table import Source, opening, rows
from fairlag.limits import json_of, shown, text_of
from fairlag.text.calls import Call, build, number, read, write

_NOUN = "capacity"
_EXAMPLE = 'file("capacity.csv")'
_READ = 8
"""How many files are kept in memory: an experiment is checked again for each of its runs."""


class Client(NamedTuple):
    """A client of a file."""

    name: str
    seconds_per_step: float
    download: float = math.inf
    upload: float = math.inf
    """Megabits per second; infinite if its transfers take no time."""
    group: str | None = None


Clients: TypeAlias = tuple[Client, ...]


@dataclass(frozen=True, slots=True)
class Capacity:
    """The clients of a file, or those of one group.

    >>> all = Capacity("x", Source("x.csv", Path(), ""), (Client("a", 2.0, group="phone"), Client("b", 3.0)))
    >>> all.groups, all.of("phone", None).paces.tolist(), all.has_lines
    (('phone',), [2.0], False)
    """

    text: str
    """How it was written."""
    source: Source
    clients: Clients

    def __str__(self) -> str:
        return self.text

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that the file names, in the order in which they first appear."""
        return tuple(dict.fromkeys(client.group for client in self.clients if client.group))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its clients."""
        return tuple(client.name for client in self.clients)

    @property
    def paces(self) -> Floats:
        """Per client: the seconds per local step."""
        return np.array([client.seconds_per_step for client in self.clients])

    @property
    def has_lines(self) -> bool:
        """Do anybody's transfers take time?"""
        return any(min(client.download, client.upload) < math.inf for client in self.clients)

    def seconds_per_byte(self) -> Floats:
        """Per client: how long one byte takes, downloaded and uploaded."""
        return np.array([8e-6 / client.download + 8e-6 / client.upload for client in self.clients])

    def at(self, places: Iterable[int]) -> "Capacity":
        """With the clients at these places."""
        return Capacity(self.text, self.source, tuple(self.clients[place] for place in places))

    def of(self, group: str, count: int | None) -> "Capacity":
        """With the clients of a group, or of the whole file if it names no groups: all, or the first ones."""
        mine = self.clients
        if self.groups:
            mine = tuple(client for client in mine if client.group == group)
        if not mine:
            raise InputError(f"{self.source.written!r} has no group {group!r}: {nearest(group, self.groups)}")
        if count is not None and count > len(mine):
            raise InputError(
                f"{self.source.written!r} has {len(mine):,} clients of group {group!r}, but count is {count:,}: "
                "give at most as many as the file has, or no count for all of them"
            )
        return Capacity(self.text, self.source, mine[:count])


def file(source: Source) -> Capacity:
    """``file("capacity.csv")``: one client per line.
    The CSV file has the columns client and seconds_per_step, and may have up_mbps, down_mbps and group."""
    return Capacity(f"file({source.written!r})", source, _from_csv(source))


def from_fedscale(source: Source, factor: float = 3.0, *, batch: int) -> Capacity:
    """``fedscale("client_device_capacity", factor)``: FedScale's measured phones.
    A step takes factor × batch × ``computation`` milliseconds; inference was measured, and training takes factor times
    as long. ``communication`` is the speed of both lines in kilobits per second."""
    factor = number(factor, "factor of fedscale", positive=True)
    said = "" if factor == 3 else f", {write(factor)}"
    found = ((name, factor * batch * long / 1000, line / 1000) for name, long, line in _from_fedscale(source))
    clients = tuple(Client(name, long, line, line) for name, long, line in found)
    return Capacity(f"fedscale({source.written!r}{said})", source, clients)


def from_appfl(source: Source, seconds_per_step: float) -> Capacity:
    """``appfl("profiles.json", seconds_per_step)``: the profiles of APPFL's simulator (``--profiles_json``).
    A step takes ``compute_factor`` × seconds_per_step. ``bandwidth`` is the speed of both lines in megabits per
    second."""
    step = number(seconds_per_step, "seconds_per_step of appfl", positive=True)
    found = ((name, factor * step, line) for name, factor, line in _from_appfl(source))
    clients = tuple(Client(name, long, line, line) for name, long, line in found)
    return Capacity(f"appfl({source.written!r}, {write(step)})", source, clients)


@lru_cache(_READ)
def _from_csv(source: Source) -> Clients:
    found: dict[str, Client] = {}
    lines = rows(source, _NOUN, ("client", "seconds_per_step"))
    for row in lines:
        name = row.cells["client"]
        if not name or name in found:
            raise InputError(f"client in {row.where} is {shown(name)}, it must be a name that no other line has")
        down, up = (
            row.number(column, positive=True) if row.cells.get(column) else math.inf
            for column in ("down_mbps", "up_mbps")
        )
        long = row.number("seconds_per_step", positive=True)
        if "group" in row.cells and not row.cells["group"]:
            raise InputError(f"group in {row.where} is empty, it must be a name")
        found[name] = Client(name, long, down, up, row.cells.get("group"))
    if not found:
        raise InputError(f"the capacity {source.written!r} has no clients; write one per line below the header")
    return tuple(found.values())


@lru_cache(_READ)
def _from_fedscale(source: Source) -> tuple[tuple[str, float, float], ...]:
    return tuple(fedscale.capacity(source))


@lru_cache(_READ)
def _from_appfl(source: Source) -> tuple[tuple[str, float, float], ...]:
    try:
        entries = json_of(text_of(source.path))
    except (OSError, ValueError) as error:
        raise InputError(f"the capacity {source.written!r} cannot be read as JSON: {error}") from None
    if not isinstance(entries, dict) or not entries:
        raise InputError(f"the capacity {source.written!r} must be an object with one profile per client")
    return tuple(_profiles(entries.items(), source))


def _profiles(entries: Iterable[tuple[str, Any]], source: Source) -> Iterable[tuple[str, float, float]]:
    for name, entry in entries:
        where = f"of client {shown(name)} in {source.written!r}"
        known = entry if isinstance(entry, dict) else {}
        key = "compute_factor" if "compute_factor" in known else "delay"
        if key not in known or "bandwidth" not in known:
            raise InputError(f"the entry {where} is {shown(entry)}, it must have compute_factor and bandwidth")
        line = number(known["bandwidth"], f"bandwidth {where}")
        yield name, number(known[key], f"{key} {where}", positive=True), line or math.inf


def parse(text: str, folder: Path | None = None, *, batch: int = 1) -> Capacity:
    """The capacity that a text describes; paths are relative to the folder, and `batch` is the examples of a step.

    >>> parse("file(5)")
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: path of capacity is 5, but must be a file name in quotes
    """
    value = read(text, _NOUN, _EXAMPLE)
    if not isinstance(value, Call):
        raise InputError(f"the capacity {shown(text)} cannot be read; write for example {_EXAMPLE}")
    makers = {name: opening(maker, folder, _NOUN, batch=batch) for name, maker in CAPACITIES.items()}
    return build(value, makers, _NOUN, nested=_nothing_nested)


def _nothing_nested(inner: Call) -> object:
    raise InputError(f"{inner.text} in a capacity must be a number or a file name in quotes; write {_EXAMPLE}")


CAPACITIES: Mapping[str, Callable[..., Capacity]] = {
    "file": file,
    "fedscale": from_fedscale,
    "appfl": from_appfl,
}
