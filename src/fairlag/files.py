"""Writing files: under its name a file is whole, or as it was before. What is in them is decided elsewhere."""

import os
from contextlib import suppress
from pathlib import Path
from shutil import copymode

from fairlag.errors import InputError

PARTIAL = ".partial"
"""Ends the name of a file that is not whole yet."""


def save(file: Path, content: str | bytes) -> None:
    """Writes a file that a user asked for; if that fails, an error names it, and the file is as it was before.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save(Path(folder, "page.html"), "<p>fair</p>")
    ...     print(Path(folder, "page.html").read_text())
    <p>fair</p>
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if file.exists() and not file.is_file():
            file.write_bytes(data)  # a pipe or a device, such as /dev/stdout: it must not be replaced by a file
        else:
            put(file.resolve(), data)  # a link stays a link
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be written: {error.strerror or error}") from None


def put(file: Path, content: bytes | memoryview) -> None:
    """Writes a file so that under its name it is whole, or as it was before, even after a power cut."""
    # Named after the process: another one may be writing the same file.
    partial = file.with_name(f"{file.name}.{os.getpid()}{PARTIAL}")
    try:
        write_anew(partial, content)
        place(partial, file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_anew(file: Path, content: bytes | memoryview) -> None:
    """Writes a new file in the place of what was there: never through a link that somebody put there.

    Only for a file that does no harm if half of it is there; any other is `put`.
    """
    if file.is_symlink() or file.exists():
        file.unlink()
    with file.open("xb") as stream:
        stream.write(content)


def place(partial: Path, file: Path) -> None:
    """Gives a complete file its name and the mode of the file before it, once its content has reached the disk."""
    _flush(partial)
    with suppress(FileNotFoundError):
        copymode(file, partial)
    partial.replace(file)
    if os.name == "posix":  # elsewhere a folder cannot be opened, and names need no flushing
        _flush(file.parent)


def _flush(path: Path) -> None:
    number = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(number)
    finally:
        os.close(number)
