"""Finds runs: those in a folder, or those that a user gives."""

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairlag.errors import InputError, UnreadableError
from fairlag.lab.folder import DATABASE
from fairlag.lab.run import Run

_DEPTH = 2
"""How many levels below a folder to search for runs, as in runs/experiment/strategy-seed."""

Runs = Run | Iterable[Run] | str | Path
"""One run, several, or those in a folder."""


def given(meant: Runs) -> list[Run]:
    """The runs that a user gives, at least one.

    >>> given([])
    Traceback (most recent call last):
    fairlag.errors.InputError: no runs were given
    """
    if isinstance(meant, str | Path):
        if not (found := runs(meant)):
            raise none_in([Path(meant)])
        return found
    found = [meant] if isinstance(meant, Run) else list(meant)
    if not found:
        raise InputError("no runs were given")
    return found


def runs(folder: str | Path) -> list[Run]:
    """The runs in a folder and its folders, sorted by name; those that cannot be read are left out, with a warning.

    >>> import fairlag
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     experiment = fairlag.load("demo").checked(aggregations=5)
    ...     _ = fairlag.simulate(experiment, strategy="fairshare", workers=1, out=Path(folder, "mine"))
    ...     [run.label for run in runs(folder)]
    ['FairShare']
    """
    found = []
    for each in run_folders(folder):
        try:
            found.append(Run(each))
        except UnreadableError as error:
            warnings.warn(f"left out: {error}", stacklevel=2)
    return found


def none_in(folders: Sequence[Path]) -> InputError:
    """The error that there are no runs in these folders; about an unfinished sweep, how far it is."""
    from fairlag.lab.sweep.progress import unfinished  # which reads runs itself

    for folder in folders:
        if why := unfinished(folder):
            return InputError(why)
    return InputError(f"there are no runs in {', '.join(repr(str(folder)) for folder in folders)}")


def run_folders(folder: str | Path) -> list[Path]:
    """The folders of `runs`, whether they can be read or not."""
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"there is no folder {str(root)!r}")
    return sorted({file.parent for depth in range(_DEPTH + 1) for file in root.glob("*/" * depth + DATABASE)})
