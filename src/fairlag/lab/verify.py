"""`fairlag runs --verify`: checks that everything in a run directory is what was written."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairlag.errors import UnreadableError
from fairlag.lab import checkpoints, digest
from fairlag.lab.folder import DATABASE, check_experiment, check_model, layout_of, meta_of, reading, unreadable
from fairlag.lab.lock import is_locked
from fairlag.lab.nodelog import lines_of


def verified(folder: Path) -> tuple[bool, str]:
    """Is a run intact? And a description of it, or of the damage. Every row and file is checked."""
    whole = [each for each in checkpoints.found(folder) if each.damage is None]
    there = f"{len(whole)} checkpoint{'' if len(whole) == 1 else 's'}"
    if live := is_locked(folder):
        there = "being written, so its checkpoints are not checked"
    try:
        meta, known, version = _database(folder)
        problems = list(_problems(folder, meta, known, live=live))
    except UnreadableError as error:
        versions = ", ".join(str(each.version) for each in whole)
        return False, str(error) + (f" (its checkpoints of versions {versions} are intact)" if whole else "")
    gaps = "".join(f", rows of versions {first} to {last} are missing" for first, last in meta.get("missing", []))
    if problems:
        return False, "; ".join(problems)
    return True, f"{meta['status']}, {version} version{'' if version == 1 else 's'}, {there}{gaps}"


def _database(folder: Path) -> tuple[dict[str, Any], set[str], int]:
    """What a run says about itself, the names of its checkpoints, and its newest version; its rows are checked."""
    with reading(folder, check=False) as database:
        try:
            digest.check(database, layout_of(database, folder))
        except digest.Damage as damage:
            raise unreadable(folder, f"in its {DATABASE}, {damage}") from None
        known = {name for (name,) in database.execute("SELECT file FROM checkpoints")}
        (version,) = database.execute("SELECT COALESCE(MAX(version), 0) FROM aggregations").fetchone()
        return meta_of(database, folder), known, version


def _problems(folder: Path, meta: dict[str, Any], known: set[str], *, live: bool) -> Iterator[str]:
    found = checkpoints.found(folder)
    for check in [check_experiment, lines_of] + [check_model] * (meta["status"] == "finished"):
        try:
            check(folder, meta)
        except UnreadableError as error:
            yield str(error)
    if live:  # they come and go
        return
    yield from (f"{name} is missing" for name in sorted(known - {each.file.name for each in found}))
    yield from (damage for each in found if each.file.name in known and (damage := each.damage))
    newest = max((each.number for each in found if each.file.name in known), default=0)
    if meta["status"] == "finished":  # a process killed at the very end leaves some that are not needed
        return
    if newer := [each.file.name for each in found if each.number > newest + 1]:
        yield f"its {DATABASE} does not know {newer[0]}: rows are missing"
