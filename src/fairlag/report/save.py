"""Writing what somebody asked for to a file of theirs: a page, a figure, numbers."""

from pathlib import Path

from fairlag.errors import InputError


def save(file: Path, content: str | bytes) -> None:
    """Writes a file; where that fails, no half of it is left, and the sentence names it."""
    try:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        if file.is_file():
            file.unlink()
        raise InputError(f"{str(file)!r} cannot be written: {error.strerror or error}") from None
