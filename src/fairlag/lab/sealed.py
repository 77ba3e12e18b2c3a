"""Small JSON files with a digest of their contents: plans, and the results of a sweep."""

import json
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from fairlag.files import put
from fairlag.limits import json_of, shown, text_of

DIGEST = "sha256"
"""The key of the digest of all other keys."""


def write(file: Path, tables: Mapping[str, Any]) -> None:
    """Writes tables with their digest."""
    put(file, json.dumps({**tables, DIGEST: _digest(tables)}).encode() + b"\n")


def read(file: Path, keys: Collection[str]) -> dict[str, Any]:
    """The tables of a file, without the digest. An older fairlag wrote none.

    Raises OSError or ValueError if they cannot be read, differ from the digest, or have a key that is not one of `keys`
    (for example, because a bit of the digest's own key has flipped).
    """
    tables = json_of(text_of(file))
    if not isinstance(tables, dict):
        raise ValueError("it does not hold a table")
    if unknown := tables.keys() - {*keys, DIGEST}:
        raise ValueError(f"it has the key {shown(min(unknown))}, which is never written")
    if DIGEST in tables and tables.pop(DIGEST) != _digest(tables):
        raise ValueError("it is not what was written; restore it, or remove its sha256 if you changed it yourself")
    return tables


def _digest(tables: Mapping[str, Any]) -> str:
    """The same for all ways to write the same contents."""
    return sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()
