"""The log of decisions about nodes in a run directory: lines that are only appended, each with a digest of all before.

A line has the kind of the decision, the node, its client, why, how often it has happened so far, and when. Repeats are
written when their number is a power of two, so that a flood makes few lines. The run's database knows the digest of
the last line at each commit: a line that is changed or removed is found, as is a log that ends too early.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fairlag.errors import UnreadableError
from fairlag.files import put
from fairlag.lab.folder import NODES, damaged, explained
from fairlag.limits import TEXT, json_of, text_of
from fairlag.runtime.decisions import KINDS, QUARANTINED, RELEASED, plain

HEAD = "node_log"
"""The fact about a run that says where its log ended at the last commit."""

_MOST, _MOST_STRANGERS = 50_000, 1_000
"""The most different decisions that are counted one by one, about clients and about nodes that are none; further ones
are counted together, by kind and reason."""

_OTHERS = "other nodes"
_LASTING = (QUARANTINED, RELEASED)
"""The kinds that change a state: each has a line."""

_FULL = TEXT * 3 // 4
"""The most bytes of a log; a longer one gets only lines that change a state, so that it can always be read."""

_LARGEST = 2**53
"""No number in a log is as large."""


class Line(NamedTuple):
    """A line of the log, in the order of its keys."""

    at: str
    """When, on the server's clock, in UTC."""
    kind: str
    node: str
    client: int | None
    why: str
    times: int
    """How often this was decided up to now."""


class Head(NamedTuple):
    """Where a log ends: its number of lines, and the digest of all of them."""

    lines: int
    digest: str


def lines_of(folder: Path, meta: Mapping[str, Any]) -> tuple[list[Line], Head]:
    """The log of a run, checked; empty if the run has none.

    A last line that is incomplete, or that no commit knows and that is not whole, is left out: it was being written.
    """
    file, known = folder / NODES, _known(folder, meta)
    try:
        text = text_of(file) if known.lines or file.exists() else ""
    except (OSError, ValueError) as error:
        raise damaged(folder, f"its {NODES} is missing or unreadable ({error})") from None
    found: list[Line] = []
    digest = _begin(meta)
    digests = [digest]
    *lines, _ = text.split("\n")
    for number, written in enumerate(lines, 1):
        line, _, said = written.rpartition("\t")
        if said != _next(digest, line):
            if number == len(lines) > known.lines:
                break
            raise damaged(folder, f"line {number} of its {NODES}, or one before it, is not what was written")
        digest = said
        digests.append(digest)
        found.append(_parsed(folder, number, line))
    if known.lines and (known.lines >= len(digests) or digests[known.lines] != known.digest):
        raise damaged(folder, f"lines of its {NODES} are missing or changed: the database knows {known.lines}")
    return found, Head(len(found), digest)


def quarantined(lines: Iterable[Line]) -> dict[str, str]:
    """The nodes in quarantine, with the reasons."""
    found: dict[str, str] = {}
    for line in lines:
        if line.kind == QUARANTINED:
            found[line.node] = line.why
        elif line.kind == RELEASED:
            found.pop(line.node, None)
    return found


class Decided(NamedTuple):
    """The lines about the same decision, together."""

    kind: str
    node: str
    client: int | None
    why: str
    times: int
    first: str
    last: str


def decided(lines: Iterable[Line]) -> list[Decided]:
    """The decisions of a log: repeats together, but each quarantine and release for itself.

    >>> decided([Line("Monday", "refused", "key 1", 0, "late", 1), Line("Tuesday", "refused", "key 1", 0, "late", 2)])
    [Decided(kind='refused', node='key 1', client=0, why='late', times=2, first='Monday', last='Tuesday')]
    """
    found: dict[tuple[object, ...], Decided] = {}
    for place, (at, kind, node, client, why, count) in enumerate(lines):
        key = kind, node, why, place if kind in _LASTING else None
        first = found[key].first if key in found else at
        found[key] = Decided(kind, node, client, why, 1 if kind in _LASTING else count, first, at)
    return list(found.values())


class NodeState(NamedTuple):
    """What a log says about one node."""

    node: str
    client: int | None
    counts: Mapping[str, int]
    """By kind: how often it was decided, as far as lines were written."""
    quarantine: str | None
    """Why it is in quarantine; None if it is not."""


def per_node(lines: Iterable[Line]) -> list[NodeState]:
    """What a log says about each node, in the order in which they came.

    >>> seen = [Line("", "admitted", "key 1", 0, "listed", 2), Line("", "refused", "key 1", 0, "not finite", 4)]
    >>> per_node(seen)
    [NodeState(node='key 1', client=0, counts={'admitted': 2, 'refused': 4}, quarantine=None)]
    """
    lines = list(lines)
    clients: dict[str, int | None] = {}
    totals: dict[str, dict[str, int]] = {}
    for each in decided(lines):
        clients[each.node] = clients.get(each.node) if each.client is None else each.client
        mine = totals.setdefault(each.node, {})
        mine[each.kind] = mine.get(each.kind, 0) + each.times
    excluded = quarantined(lines)
    return [NodeState(node, client, totals[node], excluded.get(node)) for node, client in clients.items()]


class NodeLog:
    """Appends to the log of one run, whose lock this process has."""

    def __init__(self, folder: Path, meta: Mapping[str, Any]) -> None:
        lines, head = lines_of(folder, meta)
        self.quarantined = quarantined(lines)
        """The nodes in quarantine when the log was opened, with the reasons."""
        self.clients = {line.node for line in lines if line.client is not None}
        """The nodes that were clients then."""
        self._folder = folder
        self._counts = {(line.kind, line.node, line.why): line.times for line in lines}
        self._strangers = sum(line.client is None and line.times == 1 for line in lines)
        self._lines, self._digest = head
        self.file = file = folder / NODES
        if file.is_symlink():
            raise UnreadableError.of(
                folder, f"{str(file)!r} is a symbolic link: a run is only written to regular files"
            )
        with self._explained():
            if not file.exists():
                put(file, b"")  # with its name on disk: a decision in it must not be lost with the name
            self._stream = file.open("ab")
            content = file.read_bytes()
            self._size = sum(len(line) + 1 for line in content.split(b"\n")[: head.lines])
            self.was_cut = self._size < len(content)
            """Was a last line left out that is not whole?"""
            self._stream.truncate(self._size)  # without a line that was being written when its process was killed

    def note(self, kind: str, node: str, client: int | None, why: str) -> None:
        """Counts a decision, and writes a line about it unless it is one of many that are the same."""
        node, why = plain(node), plain(why)
        lasting = kind in _LASTING
        if (kind, node, why) not in self._counts and not lasting:
            self._strangers += client is None
            if len(self._counts) >= _MOST or (client is None and self._strangers > _MOST_STRANGERS):
                node, client = _OTHERS, None
        count = self._counts[kind, node, why] = self._counts.get((kind, node, why), 0) + 1
        if (count & (count - 1) or self._size > _FULL) and not lasting:
            return
        line = json.dumps(Line(datetime.now(UTC).isoformat(timespec="seconds"), kind, node, client, why, count))
        self._lines, self._digest = self._lines + 1, _next(self._digest, line)
        written = f"{line}\t{self._digest}\n".encode()
        with self._explained():
            self._stream.write(written)
            self._stream.flush()
            os.fsync(self._stream.fileno())  # before the next line, or a power loss could keep that one and not this
        self._size += len(written)

    def head(self) -> dict[str, object]:
        """The fact to note about the run: where the log ends."""
        return {HEAD: Head(self._lines, self._digest)._asdict()}

    def close(self) -> None:
        """Ends writing."""
        with suppress(OSError):  # a line that could not be written has been complained about already
            self._stream.close()

    def _explained(self) -> Any:
        return explained(self._folder, f"its {NODES}", "run the app again")


def _begin(meta: Mapping[str, Any]) -> str:
    """What the first line is chained to: the run, so that no log of another one can take its place."""
    return hashlib.sha256(f"{meta.get('key', '')}".encode()).hexdigest()


def _next(digest: str, line: str) -> str:
    return hashlib.sha256(f"{digest}{line}".encode()).hexdigest()


def _known(folder: Path, meta: Mapping[str, Any]) -> Head:
    """Where the log ended at the last commit."""
    said = meta.get(HEAD, {"lines": 0, "digest": ""})
    if not isinstance(said, dict) or not _is_number(said.get("lines")) or not isinstance(said.get("digest"), str):
        raise damaged(folder, f"its fact {HEAD} is not what was written")
    return Head(said["lines"], said["digest"])


def _parsed(folder: Path, number: int, written: str) -> Line:
    """A line, which may come from anyone: it has the right types, and no control characters."""
    try:
        at, kind, node, client, why, count = json_of(written)
    except (ValueError, TypeError):
        at = kind = node = client = why = count = None
    texts = all(isinstance(each, str) for each in (at, node, why)) and kind in KINDS
    if not texts or not _is_number(count) or not (client is None or _is_number(client)):
        raise damaged(folder, f"line {number} of its {NODES} is not a decision about a node")
    return Line(plain(at), kind, plain(node), client, plain(why), count)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < _LARGEST
