"""How many threads NumPy's linear algebra uses: one, while small models are computed."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """NumPy multiplies matrices with a single thread meanwhile: bits and speed do not depend on how many there are."""
    libraries = _libraries()
    before = [library.get_num_threads() for library in libraries]
    for library in libraries:
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, threads in zip(libraries, before, strict=True):
            library.set_num_threads(threads)


@cache
def _libraries() -> list[Any]:
    return [each for each in ThreadpoolController().lib_controllers if each.user_api == "blas"]
