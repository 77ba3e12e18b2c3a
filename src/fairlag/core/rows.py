"""One vector per client, such as its last update: in memory, or in a temporary file if they need too much of it."""

import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from weakref import finalize

import numpy as np

from fairlag.core.state import Stack, State, take
from fairlag.core.types import Integers
from fairlag.core.vector import Vector
from fairlag.errors import InputError, StrategyError

_PART = 0.5
"""The part of the available memory that rows may take; more are kept in a temporary file."""
_CHUNK = 1 << 26
"""About how many bytes the temporary file grows by."""
_TOGETHER = 4096
"""The most rows that it grows by."""


class Rows:
    """A vector per client, until its next one takes its place. Vectors are read-only, so a saved state shares them.

    >>> rows = Rows(2, clients=10, what="the last update")
    >>> rows.keep(7, np.ones(2, np.float32))
    >>> rows.of(7).tolist(), rows.of(8), len(rows)
    ([1.0, 1.0], None, 1)
    """

    def __init__(self, size: int, *, clients: int, what: str) -> None:
        """Vectors of `size` numbers, for about this many clients. Refused if neither memory nor disk has room.

        `what` says in messages what is kept of each client.
        """
        self.size = size
        self._kept: dict[int, Vector] = {}
        self._room = _room(size, clients, what)

    def of(self, client: int) -> Vector | None:
        """The client's vector; None if it has none."""
        return self._kept.get(client)

    def keep(self, client: int, vector: Vector) -> None:
        """Keeps a copy of the client's vector instead of its last one."""
        row = self._room()
        row[:] = vector
        row.flags.writeable = False
        self._kept[client] = row

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Vector]:
        """The vectors, in the order of the clients' first ones."""
        return iter(self._kept.values())

    @property
    def clients(self) -> Integers:
        """The clients that have a vector, in the order of their first ones."""
        return np.fromiter(self._kept, np.int64, len(self._kept))

    def state(self) -> State:
        """The clients and their vectors, without copying them."""
        return {"clients": self.clients, "rows": Stack(tuple(self), self.size)}

    def restore(self, state: State) -> None:
        """Replaces all vectors."""
        clients, saved = take(state, "clients", np.ndarray), state.get("rows")
        if not isinstance(saved, np.ndarray | Stack) or saved.shape != (len(clients), self.size):
            found, shape = getattr(saved, "shape", None), (len(clients), self.size)
            raise InputError(f"the saved rows have shape {found}, they must have shape {shape}")
        self._kept = {}
        for client, row in zip(clients.tolist(), saved, strict=True):
            if isinstance(saved, Stack):
                self._kept[client] = row
            else:
                self.keep(client, row)


def _room(size: int, clients: int, what: str) -> Callable[[], Vector]:
    """Where new vectors are put: in memory, or in a file if all clients' would need too much memory."""
    needed, memory = 4 * size * clients, _available_memory()
    if needed <= _PART * memory:
        return lambda: np.empty(size, np.float32)
    folder = Path(tempfile.gettempdir())
    disk = shutil.disk_usage(folder).free
    if needed > disk:
        raise StrategyError(
            f"keeping {what} of each of {clients:,} clients takes {_bytes(needed)} ({size:,} numbers each), but only "
            f"{_bytes(_PART * memory)} of memory and {_bytes(disk)} in {str(folder)!r} may be used: use a smaller "
            "model, fewer clients, or a larger folder (the environment variable TMPDIR)"
        )
    return _File(size).room


class _File:
    """Room for vectors in a temporary file without a name, which ends with this process, however it ends."""

    def __init__(self, size: int) -> None:
        self._size = size
        with tempfile.TemporaryFile() as file:
            self._file = os.dup(file.fileno())
        finalize(self, os.close, self._file)
        self._count = max(1, min(_CHUNK // (4 * size), _TOGETHER))
        self._free: list[memoryview] = []

    def room(self) -> Vector:
        """A vector in the file. Its place is free again when nobody holds the vector any longer."""
        if not self._free:
            self._grow()
        place = self._free.pop()
        # Made from a memoryview: numpy's views of the vector then hold the vector itself, not the whole chunk.
        vector = np.frombuffer(place, np.float32)
        finalize(vector, self._free.append, place).atexit = False
        return vector

    def _grow(self) -> None:
        length = 4 * self._size
        # A whole number of pages, as a chunk must begin with one.
        begin, more = os.fstat(self._file).st_size, -(-self._count * length // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            if hasattr(os, "posix_fallocate"):  # without it, a full disk would kill the process when a row is written
                os.posix_fallocate(self._file, begin, more)
            else:
                os.ftruncate(self._file, begin + more)
        except OSError as error:
            raise StrategyError(
                f"the temporary file for clients' vectors cannot grow beyond {_bytes(begin)}: {error.strerror}"
            ) from None
        chunk = memoryview(mmap.mmap(self._file, more, offset=begin))
        self._free += [chunk[at : at + length] for at in range(0, self._count * length, length)]


def _available_memory() -> int:
    """The bytes of memory that new data may take without swapping, as far as the system says."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 1 << 32


def _bytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e8 else f"{count / 1e6:,.1f} MB"
