"""Where a published data set is on this machine, and its bytes, which are returned only if verified."""

import os
from collections.abc import Mapping
from functools import cache
from hashlib import file_digest, sha256
from os.path import isfile  # unlike Path.is_file, it returns False in a folder without permission
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairlag.data.formats import Bytes, Parts
from fairlag.data.sources import SOURCES, Form, Source
from fairlag.errors import FairlagError, InputError


class Found(NamedTuple):
    """The files of a data set, their form, and their folder."""

    folder: Path
    form: Form
    files: list[Path]


def find(source: Source) -> Found | None:
    """The first place that has all files of a data set, in any form; they are not verified."""
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
    advice = f"delete it and get it again by {', or by '.join(source.ways)}"
    return {
        part: content
        for file in found.files
        for part, content in verified(source, found.form, file, origin=str(file), advice=advice)
    }


def verified(source: Source, form: Form, file: Path, *, origin: str, advice: str) -> Parts:
    """The verified raw files in a file; an error names its origin and gives advice."""
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
    except Exception as error:  # a decoder may raise anything on a damaged file
        raise InputError(f"{origin} cannot be read ({error}): {advice}") from error
    if wanted:
        raise InputError(f"{origin} does not contain {min(wanted)}: {advice}")


def is_right(source: Source, file: Path) -> bool:
    """Whether a raw file exists and has the right bytes."""
    return isfile(file) and _sum_of_file(file, *_state(file)) == source.sums[file.name]


def _is_another(source: Source, form: Form, files: list[Path]) -> bool:
    """Whether the files belong to another data set, whose raw files have the same names."""
    others = [other.sums for other in SOURCES.values() if other.name != source.name and form in other.forms]
    sums = {sums[part] for sums in others for part in source.sums if part in sums}
    if not sums:
        return False
    smallest = min(files, key=lambda file: file.stat().st_size)
    try:
        return any(_sum(smallest, content) in sums for _, content in form.read(smallest))
    except Exception:  # damaged, so it belongs to none: `verified` will say what is wrong
        return False


def _sum(file: Path, content: Bytes) -> str:
    # A raw file is hashed once per process, however often the data set is loaded.
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
    return f"the data set {source.name} was not found in {places}; get it by {', or by '.join(source.ways)}"


def _looked_at(source: Source, folder: Path) -> str:
    """A folder in words; if it has some files but not all, with the missing ones."""
    for form in source.forms:
        names = form.names(source.sums)
        absent = [name for name in names if not isfile(folder / name)]
        if 0 < len(absent) < len(names):
            return f"{folder} (which lacks {', '.join(absent)})"
    return str(folder)
