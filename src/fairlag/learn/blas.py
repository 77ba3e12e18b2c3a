"""How many threads NumPy's linear algebra uses: one, while small models are computed."""

from functools import cache
from threading import Lock
from types import TracebackType
from typing import Any

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


class _OneThread:
    """Makes NumPy multiply matrices with one thread, so that bits and speed do not depend on the number of cores.

    Code that computes often enters it once around everything: changing the number takes longer than a small product.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._before: list[tuple[Any, int]] = []

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._before = [(library, library.get_num_threads()) for library in _libraries()]
                for library, _ in self._before:
                    library.set_num_threads(1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                for library, threads in self._before:
                    library.set_num_threads(threads)


ONE_THREAD = _OneThread()
"""The only instance, because the number of threads belongs to the process; it is reentrant."""


@cache
def _libraries() -> list[Any]:
    return [each for each in ThreadpoolController().lib_controllers if each.user_api == "blas"]
