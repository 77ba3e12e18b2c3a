"""How an audit tells how far it is."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Told the part of the audit, how many trials of it are done, and of how many."""


def teller(progress: Progress | None, part: str) -> Callable[[int, int], None]:
    """Tells how many trials of one part are done, and of how many."""

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress(part, done, total)

    return tell


def counter(progress: Progress | None, part: str, total: int) -> Callable[[int], None] | None:
    """Adds up the trials of a part that are done."""
    if progress is None:
        return None
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        progress(part, done, total)

    return count
