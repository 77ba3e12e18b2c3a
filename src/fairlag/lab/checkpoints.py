"""The checkpoint files of a run: their names, which are kept, and checks for missing or damaged ones."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fairlag.errors import UnreadableError
from fairlag.lab import digest, rowfiles
from fairlag.lab.folder import DATABASE

_NAME = re.compile(r"checkpoint-(\d+)-(\d+)-([0-9a-f]{16})\.safetensors")
_APART = 4


class Checkpoint(NamedTuple):
    """A file with the complete state of a run; its name contains its version and the digest of its bytes."""

    number: int
    version: int
    file: Path

    @property
    def damage(self) -> str | None:
        """What is wrong with it; None if it is intact."""
        try:
            found = digest.of_file(self.file)
        except OSError as error:
            return f"{self.file.name} cannot be read ({error.strerror})"
        named = _NAME.fullmatch(self.file.name)
        if named is None or not found.startswith(named[3]):
            return f"{self.file.name} is not what was written"
        return rowfiles.damage(self.file)


def named(folder: Path, version: int, number: int, content: bytes) -> Checkpoint:
    """The checkpoint with this content."""
    short = hashlib.sha256(content).hexdigest()[:16]
    return Checkpoint(number, version, folder / f"checkpoint-{version}-{number}-{short}.safetensors")


def found(folder: Path) -> list[Checkpoint]:
    """The checkpoints in a folder, the newest first, intact or not."""
    matches = ((file, _NAME.fullmatch(file.name)) for file in folder.glob("checkpoint-*.safetensors"))
    return sorted((Checkpoint(int(name[2]), int(name[1]), file) for file, name in matches if name), reverse=True)


def kept(numbers: Iterable[int], keep: int) -> set[int]:
    """The numbers of the checkpoints to keep: the newest, the one before it, and others at increasing distances.

    The i-th of the others is between about 4^(i−1) and 4^i commits old, or the first of all. A checkpoint that is
    wanted now has been wanted ever since it was made, so a removed one is never needed again.

    >>> sorted(kept(range(1, 101), 5), reverse=True)
    [100, 99, 96, 80, 64]
    """
    there = set(numbers)
    newest = max(there, default=0)
    wanted = {newest, newest - 1} if keep > 1 else {newest}
    least, apart = 2, 1
    for _ in range(keep - 2):
        apart *= _APART
        wanted.add(max(1, (newest - least) // apart * apart))
        least += apart
    return wanted & there


def check_whole(folder: Path, newest: Checkpoint) -> None:
    """Refuses to continue from a checkpoint that is damaged or missing."""
    if (damage := newest.damage) is None:
        return
    others = [each.version for each in found(folder) if each.damage is None]
    how = (
        f"`fairlag rollback {folder} --version {others[0]}` continues from the newest intact checkpoint"
        if others
        else "no other checkpoint is intact: restore it from a backup"
    )
    raise UnreadableError.of(folder, f"the run in {str(folder)!r} cannot be continued: {damage}; {how}")


def check_newest(folder: Path, newest: Checkpoint) -> None:
    """Refuses a run with checkpoints that are newer than its database, because rows are missing.

    A process that was killed right before a commit leaves one newer checkpoint; this is no loss, as it is made again.
    """
    newer = [each for each in found(folder) if each.number > newest.number + 1]
    if not newer:
        return
    last = next((each for each in newer if each.damage is None), None)
    how = (
        f"`fairlag rollback {folder}` lists the versions to continue from"
        if last is None
        else f"`fairlag rollback {folder} --version {last.version}` continues from that one, "
        f"without the rows of versions {newest.version + 1} to {last.version}"
    )
    raise UnreadableError.of(
        folder,
        f"the run in {str(folder)!r} is not complete: its {DATABASE} ends with version {newest.version}, but there is "
        f"a newer checkpoint, {(last or newer[0]).file.name}; perhaps {DATABASE}-wal was not copied with it, "
        f"or is damaged: put it back, or {how}",
    )
