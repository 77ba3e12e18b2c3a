"""Where a published data set lies on this machine, and its bytes, which are handed out only when they are right."""

import os
from collections.abc import Mapping
from functools import cache
from hashlib import file_digest, sha256
from os.path import isfile  # unlike the method of a Path, it takes a folder that may not be entered for empty
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairlag.data.formats import Bytes, Parts
from fairlag.data.sources import SOURCES, Form, Source
from fairlag.errors import FairlagError, InputError


class Found(NamedTuple):
    """The files of a data set, the form they have, and the folder in which they lie."""

    folder: Path
    form: Form
    files: list[Path]


def find(source: Source) -> Found | None:
    """The first place that has all files of a data set, in whatever form; they are not read to the end."""
    for folder in source.places:
        for form in source.forms:
            files = [folder / name for name in form.names(source.sums)]
            if all(map(isfile, files)) and not _is_another(source, form, files):
                return Found(folder, form, files)
    return None


def contents(source: Source) -> Mapping[str, Bytes]:
    """The verified bytes of every raw file of a data set."""
    found = find(source)
    if found is None:
        raise InputError(_missing(source))
    advice = f"delete it and get it anew by {', or by '.join(source.ways)}"
    return {
        part: content
        for file in found.files
        for part, content in verified(source, found.form, file, origin=str(file), advice=advice)
    }


def verified(source: Source, form: Form, file: Path, *, origin: str, advice: str) -> Parts:
    """The raw files of a data set that a file carries; what is wrong is said with its origin and an advice."""
    wanted = {part for part in source.sums if Path(form.names([part])[0]).name == file.name}
    try:
        for part, content in form.read(file):
            if part in wanted:
                found = _sum(file, content)
                if found != source.sums[part]:
                    raise InputError(
                        f"{part} from {origin} has the sha256 {found}, but must have {source.sums[part]}: {advice}"
                    )
                wanted.remove(part)
                yield part, content
    except FairlagError:
        raise
    except Exception as error:  # what a damaged file makes a decoder raise can be anything
        raise InputError(f"{origin} cannot be read ({error}): {advice}") from error
    if wanted:
        raise InputError(f"{origin} holds no {min(wanted)}: {advice}")


def is_right(source: Source, file: Path) -> bool:
    """Whether a raw file of that name is there, with the bytes it must have."""
    return isfile(file) and _sum_of_file(file, *_state(file)) == source.sums[file.name]


def _is_another(source: Source, form: Form, files: list[Path]) -> bool:
    """Whether the files are those of another data set, whose raw files have the same names."""
    others = [other.sums for other in SOURCES.values() if other.name != source.name and form in other.forms]
    sums = {sums[part] for sums in others for part in source.sums if part in sums}
    if not sums:
        return False
    smallest = min(files, key=lambda file: file.stat().st_size)
    try:
        return any(_sum(smallest, content) in sums for _, content in form.read(smallest))
    except Exception:  # damaged, so nobody's: reading it in earnest will say what is wrong
        return False


def _sum(file: Path, content: Bytes) -> str:
    # A raw file is read once in a process, however often the data set is loaded.
    return _sum_of_file(file, *_state(file)) if isinstance(content, np.memmap) else sha256(content.data).hexdigest()


def _state(file: Path) -> tuple[int, int]:
    state = file.stat()
    return state.st_size, state.st_mtime_ns


@cache
def _sum_of_file(file: Path, size: int, modified: int) -> str:
    with file.open("rb") as opened:
        return file_digest(opened, "sha256").hexdigest()


def _missing(source: Source) -> str:
    own = [] if os.environ.get("FAIRLAG_DATA") else ["$FAIRLAG_DATA (which is not set)"]
    places = ", ".join([*own, *(_looked_at(source, folder) for folder in source.places)])
    return f"the data set {source.name} is not here: looked in {places}; get it by {', or by '.join(source.ways)}"


def _looked_at(source: Source, folder: Path) -> str:
    """A folder in words; where it has some files but not all, says which it lacks."""
    for form in source.forms:
        names = form.names(source.sums)
        absent = [name for name in names if not isfile(folder / name)]
        if 0 < len(absent) < len(names):
            return f"{folder} (which lacks {', '.join(absent)})"
    return str(folder)
