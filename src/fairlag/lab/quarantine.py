"""Putting a node of a deployment into quarantine by hand: a request in the run directory, which its app carries out.

Only the app writes the log of decisions about nodes, so a request may be made at any time, also while no app runs.
"""

import getpass
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fairlag.errors import InputError
from fairlag.files import put, remove
from fairlag.lab.folder import explained
from fairlag.lab.nodelog import lines_of
from fairlag.lab.run import Run
from fairlag.limits import json_of, shown, text_of
from fairlag.runtime.decisions import Order, plain

_REQUEST = "quarantine-*.json"
_LONGEST = 500
"""The most characters of a name or a reason."""

_DIGITS, _PREFIX, _KEY, _SHOWN = 10, 6, 32, 5
"""The most digits of a client's number, the fewest characters of a key and all of them, and the most nodes that a
message names."""


def request(run: Run, node: str, why: str, *, release: bool) -> str:
    """Asks the app of a deployment to put a node into quarantine, or to release it; returns the node's name.

    `node` is the number of its client, its name, or the beginning of its key if only one key begins so.
    """
    if not run.deployed:
        raise InputError(
            f"the run in {str(run.folder)!r} is a simulation: only the nodes of a deployment can be excluded"
        )
    if run.status == "finished":
        raise InputError(f"the run in {str(run.folder)!r} is finished: there is nothing to exclude a node from")
    if not why.strip() or len(why) > _LONGEST:
        raise InputError(f"why is {shown(why)}, it must be a text of 1 to {_LONGEST} characters")
    name = _named(run, node)
    file = run.folder / _REQUEST.replace("*", f"{time.time_ns()}-{os.getpid()}")
    said = {"node": name, "why": f"{plain(why)} ({_user()})", "release": release}
    with explained(run.folder, "the request", "ask again"):
        put(file, json.dumps(said).encode())
    return name


def waiting(folder: Path) -> list[Order]:
    """The requests that no app has carried out."""
    return [order for file in _files(folder) if (order := _read(file)) is not None]


def requests(folder: Path, warn: Callable[[str], None]) -> Iterator[Order]:
    """The same, the oldest first; each is removed when the next one is asked for."""
    for file in _files(folder):
        order = _read(file)
        if order is None:
            warn(f"{str(file)!r} is not a request of `fairlag quarantine`: it is removed")
        else:
            yield order
        with explained(folder, "the end of a request", "run the app again"):
            remove(file)  # an older request must not come back alone: it would undo a newer one


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(_REQUEST))


def _read(file: Path) -> Order | None:
    try:
        said = json_of(text_of(file))
    except (OSError, ValueError):
        return None
    if not isinstance(said, dict):
        return None
    node, why, release = (said.get(key) for key in ("node", "why", "release"))
    if not isinstance(node, str) or not isinstance(why, str) or not isinstance(release, bool):
        return None
    return Order(plain(node)[:_LONGEST], plain(why)[: 2 * _LONGEST], release)


def _named(run: Run, node: str) -> str:
    """The name of a node in the log, or one that a node may still come with."""
    meta = run.meta
    lines, _ = lines_of(run.folder, meta)
    clients = {line.client: line.node for line in lines if line.client is not None}
    if node.isascii() and node.isdigit() and len(node) < _DIGITS:
        first = int(node) - int(node) % meta.get("queued", 1)  # a node with several tasks at once is several clients
        if first in clients:
            return clients[first]
    names = dict.fromkeys(line.node for line in lines)
    keys = [name for name in names if len(node) >= _PREFIX and name.startswith(f"key {node.removeprefix('key ')}")]
    if node in names or (not keys and _is_name(node)):
        return node
    if len(keys) == 1:
        return keys[0]
    raise InputError(
        f"{shown(node)} {'means several nodes' if keys else 'is not a node'} of the run in {str(run.folder)!r}: give "
        "the number of its client, or the name of the node, such as 'key …', 'name …' or 'partition …'; known are "
        f"{', '.join(shown(name) for name in [*names][:_SHOWN]) or 'none so far'}"
    )


def _is_name(node: str) -> bool:
    """Is it a name as a roster makes them?"""
    kind, _, rest = node.partition(" ")
    whole = len(rest) == _KEY if kind == "key" else kind in ("name", "partition", "node")
    return whole and 0 < len(rest) <= _LONGEST and plain(node) == node


def _user() -> str:
    try:
        return f"by {getpass.getuser()}"
    except (OSError, KeyError, ImportError):
        return "by an unnamed user"
