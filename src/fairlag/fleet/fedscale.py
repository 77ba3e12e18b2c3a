"""FedScale's files `client_device_capacity` and `client_behave_trace`: pickles, of which only plain values are built.

A pickle may name any function and have it called. The unpickler here knows no instruction that does so, and none that
takes more memory than the file: it builds numbers, strings, lists, tuples and dictionaries.
"""

import pickle
from collections.abc import Iterator
from io import BytesIO
from numbers import Real
from typing import Any, ClassVar, NoReturn

from fairlag.errors import InputError
from fairlag.fleet.pattern import Period
from fairlag.fleet.table import Source
from fairlag.limits import TEXT, shown
from fairlag.text.calls import number

# fmt: off
_PLAIN = (
    pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.POP, pickle.POP_MARK, pickle.DUP, pickle.MEMOIZE,
    pickle.PUT, pickle.BINPUT, pickle.LONG_BINPUT, pickle.GET, pickle.BINGET, pickle.LONG_BINGET, pickle.NONE,
    pickle.NEWTRUE, pickle.NEWFALSE, pickle.INT, pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG,
    pickle.LONG1, pickle.LONG4, pickle.FLOAT, pickle.BINFLOAT, pickle.UNICODE, pickle.BINUNICODE,
    pickle.SHORT_BINUNICODE, pickle.BINUNICODE8, pickle.STRING, pickle.BINSTRING, pickle.SHORT_BINSTRING,
    pickle.EMPTY_LIST, pickle.LIST, pickle.APPEND, pickle.APPENDS, pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1,
    pickle.TUPLE2, pickle.TUPLE3, pickle.EMPTY_DICT, pickle.DICT, pickle.SETITEM, pickle.SETITEMS,
)
# fmt: on
"""The instructions that build plain values."""

_LARGE = 1e300


def _refused(_: object) -> NoReturn:
    raise pickle.UnpicklingError("it builds more than numbers, strings, lists and dictionaries: it may name a class")


class _Plain(pickle._Unpickler):
    """The one written in Python: it keeps what it remembers in a dictionary, not in an array of any size."""

    dispatch: ClassVar = {
        code: instruction if bytes([code]) in _PLAIN else _refused
        for code, instruction in pickle._Unpickler.dispatch.items()
    }

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        _refused(self)


def plain(content: bytes) -> object:
    """The value that a pickle holds, if it is plain; raises ValueError otherwise.

    >>> plain(pickle.dumps({1: {"computation": 2.5}}))
    {1: {'computation': 2.5}}
    >>> plain(pickle.dumps(print))
    Traceback (most recent call last):
    ...
    ValueError: it builds more than numbers, strings, lists and dictionaries: it may name a class
    """
    try:
        return _Plain(BytesIO(content)).load()
    except pickle.UnpicklingError as error:
        raise ValueError(str(error)) from None
    except Exception as error:  # a pickle that was cut off or made up fails in many ways
        raise ValueError(f"it is damaged: {type(error).__name__}") from None


def capacity(source: Source) -> Iterator[tuple[str, float, float]]:
    """Each client of `client_device_capacity`: its name, milliseconds per example, and kilobits per second."""
    for name, entry, where in _entries(source, "capacity", ("computation", "communication")):
        long, line = (_number(entry[key], key, where, positive=True) for key in ("computation", "communication"))
        yield name, long, line


def behaviour(source: Source) -> dict[str, tuple[list[Period], float]]:
    """Per client of `client_behave_trace`: when it is active, in seconds, and after how long that repeats."""
    return {
        name: (_active(entry, where), _number(entry["finish_time"], "finish_time", where, positive=True))
        for name, entry, where in _entries(source, "availability", ("active", "inactive", "finish_time"))
    }


def _active(entry: dict[Any, Any], where: str) -> list[Period]:
    """From each moment in `active` to the one in `inactive`; without empty periods, and cut at `finish_time`."""
    edges = [entry["active"], entry["inactive"]]
    if not all(isinstance(each, list) for each in edges) or len(edges[0]) != len(edges[1]):
        raise InputError(f"active and inactive {where} must be lists of equal length")
    end = _number(entry["finish_time"], "finish_time", where, positive=True)
    found = []
    for active, inactive in zip(*edges, strict=True):
        start, until = _number(active, "active", where), _number(inactive, "inactive", where)
        if until < start:
            raise InputError(f"inactive {where} has {until:g} after {start:g} in active, it must not be earlier")
        if start < min(until, end):
            found.append((start, min(until, end)))
    return found


def _entries(source: Source, noun: str, keys: tuple[str, ...]) -> Iterator[tuple[str, dict[Any, Any], str]]:
    """The clients of a file: the name of each, what it has, and how a message calls it."""
    said = f"the {noun} {source.written!r}"
    try:
        with source.path.open("rb") as file:
            content = file.read(TEXT + 1)
        if len(content) > TEXT:
            raise ValueError(f"it has more than {TEXT:,} bytes")
        clients = plain(content)
    except (OSError, ValueError) as error:
        raise InputError(f"{said} cannot be read as a file of FedScale: {error}") from None
    if not isinstance(clients, dict) or not clients:
        raise InputError(f"{said} must hold a dictionary of clients, but holds {_kind(clients)}")
    for name, entry in clients.items():
        where = f"of client {_kind(name)} in {source.written!r}"
        if not isinstance(entry, dict):
            raise InputError(f"the entry {where} is {_kind(entry)}, it must be a dictionary with {', '.join(keys)}")
        if missing := next((key for key in keys if key not in entry), None):
            raise InputError(f"the entry {where} has no {missing!r}, it must have {', '.join(keys)}")
        yield name if isinstance(name, str) else _kind(name), entry, where


def _number(value: Any, key: str, where: str, *, positive: bool = False) -> float:
    if type(value) in (int, float) and 0 < value < _LARGE:  # most are, and there are millions
        return float(value)
    return number(value if isinstance(value, Real) else _kind(value), f"{key} {where}", positive=positive)


def _kind(value: object) -> str:
    """How a message shows a value of a pickle. A list may hold itself, or more than can ever be written."""
    return shown(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"
