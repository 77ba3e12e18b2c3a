"""Compiling with numba, and what the compiled functions share. Needs the extra `fast`."""

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

_njit: Any = njit  # its annotations, if it has any, lack the options used below

_LONG = 2.0
"""Seconds; loading from the cache takes less."""

WORKER = "FAIRLAG_WORKER"
"""Set in the environment of processes that fairlag starts."""

_READY: set[tuple[object, ...]] = set()
"""The functions that are ready, with the types of their arguments."""

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """The function, compiled on first call; numba caches it on disk if it can."""
    function.__qualname__ += f".{_made_of(function)}"  # numba names its files after it
    # Without reference counting, which takes most of the time in functions that pass many arrays to each other. So a
    # compiled function cannot create arrays, and its caller must hold those that it passes.
    options = {"error_model": "numpy", "_nrt": False}
    try:
        return cast(Function, _njit(function, cache=True, **options))
    except RuntimeError:  # neither the package's folder nor the user's cache is writable
        return cast(Function, _njit(function, **options))


def _made_of(function: Callable[..., object]) -> str:
    """A digest of the function's file, and of what it uses from other files: compiled functions, and numbers.

    numba does not notice changes in other files. Also, it writes the index before the code: if it is interrupted in
    between, it would load code that was compiled from an older source.
    """
    used: list[Any] = [function.__globals__.get(name) for name in function.__code__.co_names]
    parts = [each.py_func.__qualname__ for each in used if hasattr(each, "py_func")]
    parts += [repr(each) for each in used if isinstance(each, int | float | np.generic)]
    source = Path(function.__code__.co_filename).read_bytes()
    return blake2b(source + " ".join(parts).encode(), digest_size=8).hexdigest()


def make_ready(function: Callable[..., object], *arguments: np.generic | NDArray[Any]) -> None:
    """Compiles a function for arguments of these types, or loads it from the cache, so that calls start at once.

    It may be called often: the types are resolved once.
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
            f"cannot read or write numba's cache in {dispatcher.stats.cache_path} or a neighbouring folder "
            f"({error}): remove its files *.nbi and *.nbc, or set NUMBA_CACHE_DIR to another folder"
        ) from error
    _READY.add(asked)


@contextmanager
def _said_if_it_takes_long() -> Iterator[None]:
    """Not in workers: there may be many, and their parent has compiled before."""
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
    """Prints the message once."""
    print("compiling loops: about twenty seconds, the first time on a machine", file=sys.stderr, flush=True)


@compiled
def subkey(parent: np.uint64, index: int) -> np.uint64:
    """The key of `seeds.subkey`."""
    word = parent + np.uint64(index) * np.uint64(GOLDEN)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
