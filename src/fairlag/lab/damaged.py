"""Reads the runs of a folder even if some are damaged, and says in one sentence what is wrong with each of those."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from fairlag.errors import FairlagError, InputError, UnreadableError
from fairlag.lab.folder import damage, unreadable
from fairlag.lab.run import Run
from fairlag.lab.runs import Runs, given, run_folders

Made = TypeVar("Made")

_DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)
"""What a record makes Python raise that is not what it must be, such as a text where a number should be."""


def without_damaged(folders: Sequence[Path], make: Callable[[list[Run]], Made]) -> tuple[Made, dict[Path, str]]:
    """What is made of the runs in these folders that can be read; and why the others cannot, by folder.

    If none can, that is an InputError.
    """
    damaged: dict[Path, str] = {}
    while left := [folder for folder in folders if folder not in damaged]:
        try:
            return make([Run(folder) for folder in left]), damaged
        except UnreadableError as error:
            if error.folder not in left:
                raise
            damaged[error.folder] = str(error)
        except _DAMAGE:
            if not (found := _culprits(left, make)):
                raise  # it is nobody's alone, so it is no damage
            damaged |= found
    raise InputError("; ".join(damaged.values()) or "no runs are given")


def made_of(meant: Runs, make: Callable[[list[Run]], Made]) -> Made:
    """What is made of the runs that a user means in Python; damaged ones in a folder are left out, with a warning."""
    if not isinstance(meant, str | Path):
        return make(given(meant))
    folders = run_folders(meant)
    if not folders:
        raise InputError(f"there are no runs in {str(meant)!r}")
    made, damaged = without_damaged(folders, make)
    for sentence in damaged.values():
        warnings.warn(f"left out: {sentence}", stacklevel=3)
    return made


def _culprits(folders: Sequence[Path], make: Callable[[list[Run]], object]) -> dict[Path, str]:
    """The runs of which nothing can be made even alone."""
    found = {}
    for folder in folders:
        try:
            make([Run(folder)])
        except UnreadableError as error:
            found[folder] = str(error)
        except FairlagError:  # such as too few runs for what is made of them: that is no damage
            continue
        except _DAMAGE as error:
            found[folder] = str(unreadable(folder, damage(error)))
    return found
