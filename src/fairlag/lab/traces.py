"""What an experiment takes from the files of its fleet: groups and their sizes, digests, and the size of the model."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fairlag.errors import InputError
from fairlag.fleet import capacity
from fairlag.fleet.clients import Group
from fairlag.fleet.recorded import Recorded
from fairlag.fleet.table import Source


def with_groups(tables: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """The tables of an experiment, in which every `[[clients]]` table with a capacity has a group and a count.

    A table without a group becomes one table per group that its file names.
    """
    clients = tables.get("clients")
    if not isinstance(clients, list | tuple):
        return dict(tables)
    return {**tables, "clients": [each for table in clients for each in _groups(table, folder)]}


def _groups(table: object, folder: Path | None) -> Iterator[object]:
    if not isinstance(table, dict) or not isinstance(table.get("capacity"), str) or {"group", "count"} <= table.keys():
        yield table
        return
    found = capacity.parse(table["capacity"], folder)
    if "group" in table:
        names = [str(table["group"])]
    elif found.groups:
        names = list(found.groups)
    else:
        raise InputError(f"{found.source.written!r} names no groups: give the [[clients]] table with it a group")
    for name in names:
        counted = len(found.of(name, None).clients)
        yield {"group": name, "count": counted, **table}


def digests(groups: Iterable[Group], known: Mapping[str, str] | None) -> dict[str, str] | None:
    """The digest of every file that recorded fleets are read from, by its path as written; None if there are none.

    Refuses a file whose digest was `known` and is a different one now.
    """
    found = {source.written: source.sha256 for group in groups for source in _sources(group)}
    for path, digest in found.items():
        if known is not None and known.get(path, digest) != digest:
            raise InputError(f"the file {path!r} has changed since the experiment was first read")
    return found or None


def _sources(group: Group) -> Iterator[Source]:
    if group.capacity is not None:
        yield group.capacity.source
    if isinstance(group.availability, Recorded):
        yield group.availability.source
