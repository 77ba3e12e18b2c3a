"""Shows every write of SQLite to a disk of its own choice: a VFS that asks before it calls the operating system's.

SQLite does all of its input and output through a VFS, a table of functions. The one here is a copy of the default's,
with five functions replaced: open and delete of the VFS; write, truncate and sync of a file. Reads, locks and the
shared memory of the WAL are SQLite's own. It needs a `_sqlite3` module whose library exports its symbols, as on Debian.
"""

import _sqlite3
import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_int64, c_void_p, cast
from errno import ENOSPC
from typing import Any, Protocol

OK, FULL = 0, 13
IO_WRITE, IO_SYNC, IO_DELETE, CANNOT_OPEN = 778, 1034, 2570, 14
_CREATE = 0x4
_JOURNALS = 0x800 | 0x4000 | 0x80000
"""The flags of rollback journals, super-journals and WALs: SQLite syncs their folder with their first sync."""

_WRITE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_TRUNCATE = ctypes.CFUNCTYPE(c_int, c_void_p, c_int64)
_SYNC = ctypes.CFUNCTYPE(c_int, c_void_p, c_int)
_OPEN = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_DELETE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)


class _Methods(Structure):
    """sqlite3_io_methods, version 3."""

    _fields_ = (
        ("version", c_int),
        ("close", c_void_p),
        ("read", c_void_p),
        ("write", _WRITE),
        ("truncate", _TRUNCATE),
        ("sync", _SYNC),
        *((f"other{number}", c_void_p) for number in range(13)),
    )


class _Vfs(Structure):
    """sqlite3_vfs, version 3."""

    _fields_ = (
        ("version", c_int),
        ("file_size", c_int),
        ("path_size", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", _OPEN),
        ("delete", _DELETE),
        *((f"other{number}", c_void_p) for number in range(13)),
    )


class Disk(Protocol):
    """What is told of every write, before it happens; an OSError is an error of the disk."""

    def covers(self, path: str) -> bool: ...
    def created(self, path: str) -> None: ...
    def wrote(self, path: str, offset: int, content: bytes) -> None: ...
    def truncated(self, path: str, size: int) -> None: ...
    def synced(self, path: str) -> None: ...
    def names_synced(self, folder: str) -> None: ...
    def removed(self, path: str) -> None: ...


def available() -> bool:
    """Can SQLite's library be reached?"""
    return hasattr(_library(), "sqlite3_vfs_find")


def _library() -> Any:
    return ctypes.CDLL(_sqlite3.__file__)


class _Shim:
    """The VFS. There is one per process, because SQLite keeps a pointer to it."""

    def __init__(self) -> None:
        library = _library()
        library.sqlite3_vfs_find.restype = POINTER(_Vfs)
        self._register = library.sqlite3_vfs_register
        self._default = library.sqlite3_vfs_find(None)
        self.disk: Disk | None = None
        self._vfs = _Vfs.from_buffer_copy(self._default.contents)
        self._vfs.name, self._vfs.next = b"watched", None
        self._vfs.open, self._vfs.delete = _OPEN(self._open), _DELETE(self._delete)
        self._methods: dict[int, tuple[_Methods, _Methods]] = {}
        """By the address of an original table of functions: that table, and its copy."""
        self._files: dict[int, tuple[str, _Methods]] = {}
        """By the address of an open file: its path and the original functions."""
        self._journals: set[int] = set()
        """Open journals that are new: their first sync also syncs their name."""

    def register(self, default: bool) -> None:
        if default:
            self._register(byref(self._vfs), 1)
        else:
            self._register(self._default, 1)

    def _open(self, vfs: int, name: int | None, file: int, flags: int, out: int | None) -> int:
        path = _path(name)
        watched = self.disk is not None and self.disk.covers(path)
        is_new = watched and bool(flags & _CREATE) and not os.path.exists(path)
        if is_new and (code := self._asked(CANNOT_OPEN, lambda disk: disk.created(path))):
            return code
        code = int(self._default.contents.open(vfs, name, file, flags, out))
        if code == OK and watched:
            place = cast(file, POINTER(c_void_p))
            address = place.contents.value
            assert address is not None
            if address not in self._methods:
                original = cast(address, POINTER(_Methods)).contents
                copy = _Methods.from_buffer_copy(original)
                copy.write, copy.truncate, copy.sync = _WRITE(self._write), _TRUNCATE(self._truncate), _SYNC(self._sync)
                self._methods[address] = original, copy
            original, copy = self._methods[address]
            place.contents.value = ctypes.addressof(copy)
            self._files[file] = path, original
            self._journals.discard(file)
            if is_new and flags & _JOURNALS:
                self._journals.add(file)
        return code

    def _write(self, file: int, content: int, size: int, offset: int) -> int:
        path, original = self._files[file]
        written = ctypes.string_at(content, size)
        return self._asked(IO_WRITE, lambda disk: disk.wrote(path, offset, written)) or int(
            original.write(file, content, size, offset)
        )

    def _truncate(self, file: int, size: int) -> int:
        path, original = self._files[file]
        return self._asked(IO_WRITE, lambda disk: disk.truncated(path, size)) or int(original.truncate(file, size))

    def _sync(self, file: int, flags: int) -> int:
        path, _ = self._files[file]
        if code := self._asked(IO_SYNC, lambda disk: disk.synced(path)):
            return code
        if file in self._journals:
            self._journals.remove(file)
            return self._asked(IO_SYNC, lambda disk: disk.names_synced(os.path.dirname(path)))
        return OK

    def _delete(self, vfs: int, name: int, sync: int) -> int:
        path = _path(name)
        watched = self.disk is not None and self.disk.covers(path) and os.path.exists(path)
        if watched and (code := self._asked(IO_DELETE, lambda disk: disk.removed(path))):
            return code
        code = int(self._default.contents.delete(vfs, name, sync))
        if watched and code == OK and sync:
            return self._asked(IO_SYNC, lambda disk: disk.names_synced(os.path.dirname(path)))
        return code

    def _asked(self, code: int, act: Callable[[Disk], None]) -> int:
        """Tells the disk; returns the code of an error. An exception must not pass through SQLite."""
        try:
            if self.disk is not None:
                act(self.disk)
        except BaseException as error:
            return FULL if isinstance(error, OSError) and error.errno == ENOSPC and code == IO_WRITE else code
        return OK


def _path(name: int | None) -> str:
    # As an address, because SQLite keeps it: a copy of its text would be gone by the time that it is read.
    return os.fsdecode(ctypes.string_at(name)) if name else ""


_shim: list[_Shim] = []


@contextmanager
def shown_to(disk: Disk) -> Iterator[None]:
    """Inside, every connection that is opened shows its writes to this disk."""
    if not _shim:
        _shim.append(_Shim())
    shim = _shim[0]
    shim.disk = disk
    shim.register(default=True)
    try:
        yield
    finally:
        shim.register(default=False)
        shim.disk = None
