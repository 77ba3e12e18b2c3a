"""Reads the runs of a folder even if some are damaged, and says in one sentence what is wrong with each of them."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from fairlag.errors import FairlagError, InputError, UnreadableError
from fairlag.lab.folder import damage, unreadable
from fairlag.lab.run import Run
from fairlag.lab.runs import Runs, given, none_in, run_folders

Made = TypeVar("Made")

_DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)
"""What Python raises for a record with a wrong value, such as a text instead of a number."""


def without_damaged(folders: Sequence[Path], make: Callable[[list[Run]], Made]) -> tuple[Made, dict[Path, str]]:
    """The result of `make` for the readable runs in these folders; and why the others cannot be read, by folder.

    Raises InputError if none can be read.
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
                raise  # no single run causes it, so it is not damage
            damaged |= found
    raise InputError("; ".join(damaged.values()) or "no runs were given")


def made_of(meant: Runs, make: Callable[[list[Run]], Made]) -> Made:
    """The result of `make` for the runs that a Python user gives; damaged ones of a folder only cause a warning."""
    if not isinstance(meant, str | Path):
        return make(given(meant))
    folders = run_folders(meant)
    if not folders:
        raise none_in([Path(meant)])
    made, damaged = without_damaged(folders, make)
    for sentence in damaged.values():
        warnings.warn(f"left out: {sentence}", stacklevel=3)
    return made


def _culprits(folders: Sequence[Path], make: Callable[[list[Run]], object]) -> dict[Path, str]:
    """The runs for which `make` fails even alone."""
    found = {}
    for folder in folders:
        try:
            make([Run(folder)])
        except UnreadableError as error:
            found[folder] = str(error)
        except FairlagError:  # for example, too few runs: that is not damage
            continue
        except _DAMAGE as error:
            found[folder] = str(unreadable(folder, damage(error)))
    return found
