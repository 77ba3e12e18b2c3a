"""Compiling by numba, and what compiled functions of several rooms share. Who imports this needs the extra `fast`."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path
from pickle import PickleError
from threading import Timer
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit, typeof
from numpy.typing import NDArray

from fairlag.core.seeds import GOLDEN
from fairlag.errors import WorkerError

_njit: Any = njit  # the options below are not among those that its annotations know, where it has any

_LONG = 2.0
"""Seconds; to load what was compiled before takes less."""

WORKER = "FAIRLAG_WORKER"
"""Set in the environment of processes that fairlag starts."""

_READY: set[tuple[object, ...]] = set()
"""The functions that are ready, and the kinds of arguments that they are for."""

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """The function, compiled when it is first called; what numba makes of it is kept on disk where that is possible."""
    function.__qualname__ += f".{_made_of(function)}"  # by which numba names its files
    # Without counting references, which takes most of the time of functions that hand each other many arrays: so such
    # a function can make no array, and its caller must hold those it is given.
    options = {"error_model": "numpy", "_nrt": False}
    try:
        return cast(Function, _njit(function, cache=True, **options))
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return cast(Function, _njit(function, **options))


def _made_of(function: Callable[..., object]) -> str:
    """A digest of the function's file, and of what it uses of others: compiled functions, and numbers.

    In others numba sees no change. And it writes an index before what that is of: broken off between the two, it would
    find what it had made before of another source.
    """
    used: list[Any] = [function.__globals__.get(name) for name in function.__code__.co_names]
    parts = [each.py_func.__qualname__ for each in used if hasattr(each, "py_func")]
    parts += [repr(each) for each in used if isinstance(each, int | float | np.generic)]
    source = Path(function.__code__.co_filename).read_bytes()
    return blake2b(source + " ".join(parts).encode(), digest_size=8).hexdigest()


def make_ready(function: Callable[..., object], *arguments: np.generic | NDArray[Any]) -> None:
    """Compiles a function for such arguments, or loads what was made of it before; calling it then takes no time.

    It may be asked for often: what numba makes of the arguments is found out once.
    """
    asked = function, *((each.dtype, each.ndim, each.flags.num) for each in arguments)
    if asked in _READY:
        return
    dispatcher: Any = function
    try:
        with _said_if_it_takes_long():
            dispatcher.compile(tuple(map(typeof, arguments)))
    except (OSError, EOFError, PickleError, ValueError, ImportError, AttributeError) as error:
        raise WorkerError(
            f"what numba keeps of fairlag, in {dispatcher.stats.cache_path} or beside it, cannot be read or written "
            f"({error}): remove its files *.nbi and *.nbc, or let NUMBA_CACHE_DIR name another folder"
        ) from error
    _READY.add(asked)


@contextmanager
def _said_if_it_takes_long() -> Iterator[None]:
    """By workers it is not: there may be many, and who engages them has done it before."""
    timer = Timer(_LONG, _say)
    timer.daemon = True
    if WORKER not in os.environ:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@cache
def _say() -> None:
    """Once is enough."""
    print("making compiled loops ready: some twenty seconds, the first time on a machine", file=sys.stderr, flush=True)


@compiled
def subkey(parent: np.uint64, index: int) -> np.uint64:
    """The key that `seeds.subkey` gives."""
    word = parent + np.uint64(index) * np.uint64(GOLDEN)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
