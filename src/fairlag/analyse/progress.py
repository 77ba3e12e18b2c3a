"""How an audit reports its progress."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the part of the audit, the number of its trials that are done, and their total number."""


def teller(progress: Progress | None, part: str) -> Callable[[int, int], None]:
    """Returns a function that reports how many trials of a part are done, and their total number."""

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress(part, done, total)

    return tell


def counter(progress: Progress | None, part: str, total: int) -> Callable[[int], None] | None:
    """Returns a function that adds up the done trials of a part and reports the sum; None without progress."""
    if progress is None:
        return None
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        progress(part, done, total)

    return count
