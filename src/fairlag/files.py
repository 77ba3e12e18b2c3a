"""Atomic writing of files: under its name, a file is either complete or unchanged."""

import os
from contextlib import suppress
from pathlib import Path
from shutil import copymode

from fairlag.errors import InputError

PARTIAL = ".partial"
"""The suffix of a file that is not complete yet."""


def save(file: Path, content: str | bytes) -> None:
    """Writes a file that the user asked for; if that fails, an error names the file, which is unchanged.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save(Path(folder, "page.html"), "<p>fair</p>")
    ...     print(Path(folder, "page.html").read_text())
    <p>fair</p>
    """
    # A path, or a stranger's JSON, may hold half a character.
    data = content.encode(errors="replace") if isinstance(content, str) else content
    try:
        if file.exists() and not file.is_file():
            file.write_bytes(data)  # a pipe or a device, such as /dev/stdout, must not be replaced by a file
        else:
            put(file.resolve(), data)  # a link stays a link
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be written: {error.strerror or error}") from None


def put(file: Path, content: bytes | memoryview) -> None:
    """Writes a file so that under its name it is either complete or unchanged, even after a power cut."""
    # Named after the process, because another one may be writing the same file.
    partial = file.with_name(f"{file.name}.{os.getpid()}{PARTIAL}")
    try:
        write_anew(partial, content)
        place(partial, file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_anew(file: Path, content: bytes | memoryview) -> None:
    """Replaces a file with a new one, and never follows a link that was put in its place.

    Only for a file that does no harm if it is incomplete; use `put` for any other.
    """
    if file.is_symlink() or file.exists():
        file.unlink()
    with file.open("xb") as stream:
        stream.write(content)


def place(partial: Path, file: Path) -> None:
    """Gives a complete file its final name, and the mode of the file that it replaces, after flushing it to disk."""
    _flush(partial)
    with suppress(FileNotFoundError):
        copymode(file, partial)
    partial.replace(file)
    if os.name == "posix":  # other systems cannot open a folder, and need no flushing of names
        _flush(file.parent)


def remove(file: Path) -> None:
    """Removes a file, if it is there, so that it does not come back after a power cut."""
    file.unlink(missing_ok=True)
    if os.name == "posix":
        _flush(file.parent)


def _flush(path: Path) -> None:
    number = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(number)
    finally:
        os.close(number)
