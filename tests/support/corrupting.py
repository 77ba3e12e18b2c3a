"""Files as a bad disk leaves them: with flipped bits, foreign bytes, lost sectors, or cut off."""

import random
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from fairlag.errors import FairlagError

_SECTOR = 512

Ask = Callable[[Path], object]
"""Reads a folder, which is a damaged copy, and answers; or raises an error of fairlag."""


def corrupted(content: bytes, chance: random.Random) -> tuple[str, bytes]:
    """What was done to a content of at least one byte, and the content afterwards, which differs."""
    spoilt, place = bytearray(content), chance.randrange(len(content))
    how = chance.choice(("bit", "bit", "byte", "sector", "cut"))
    if how == "bit":
        spoilt[place] ^= 1 << chance.randrange(8)
    elif how == "byte":
        spoilt[place] = (spoilt[place] + chance.randrange(1, 256)) % 256
    elif how == "sector":
        place -= place % _SECTOR
        spoilt[place : place + _SECTOR] = bytes(len(spoilt[place : place + _SECTOR]))
    else:
        del spoilt[place:]
    if spoilt == content:  # the sector was empty already
        spoilt[place] ^= 1
    return f"{how} at {place}", bytes(spoilt)


def refused(folder: Path, file: Path, content: bytes, asked: Ask, right: Collection[object], where: str) -> bool:
    """Is a copy of a folder in which a file has another content refused with a sentence?

    If not, its answer must be one of the right ones.
    """
    copy = folder.parent / "damaged" / where  # every copy has its own name: what a process has read, it may remember
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*-shm"))
    (copy / file).write_bytes(content)
    try:
        answer = asked(copy)
        assert answer in right, f"a wrong answer after the damage {where}"
    except FairlagError as error:
        assert str(error)
        return True
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    return False
