"""A store in memory, for seeds that try no disk: it keeps the last state as bytes, and dies at a commit."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from safetensors.numpy import load

from fairlag.core.state import Stack
from fairlag.lab.folder import packed
from tests.support.disk import KILL, Gone


class Shelf:
    """What `Store` is for a run, and what `Disk` is for a seed: a process that dies at a commit, or right after it."""

    def __init__(self, chance: Random, faults: Counter[str]) -> None:
        self.folder = Path()
        self.meta = {"status": "running"}
        self.rows_took = 0.0
        self.steps, self.dead, self.ran_full = 0, "", False
        self._chance, self._faults = chance, faults
        self._at = 0
        self._kept: tuple[bytes, str] | None = None

    # As a disk

    def arm(self, fault: str, at: int) -> None:
        """If there is a fault, whatever it would be on a disk, the process dies at an early commit."""
        self.steps, self.dead, self._at = 0, "", self._chance.randint(1, 6) if fault else 0

    @contextmanager
    def mounted(self) -> Iterator[None]:
        yield

    def left(self, folder: Path) -> "Shelf":
        return self

    # As a store

    def __enter__(self) -> "Shelf":
        return self

    def __exit__(self, *_: object) -> None: ...

    def record(self, row: object) -> None: ...

    def checkpoint(self) -> tuple[dict[str, Any], str] | None:
        return None if self._kept is None else (load(self._kept[0]), self._kept[1])

    def commit(self, state: Mapping[str, Any], text: str, version: int, **_: Any) -> None:
        self.steps += 1
        dies = self.steps == self._at
        if dies:
            self.dead = KILL
            self._faults[KILL] += 1
        if not dies or self._chance.random() < 0.5:
            arrays = {name: each.matrix if isinstance(each, Stack) else each for name, each in state.items()}
            self._kept = packed(arrays, {}), text
        if dies:
            raise Gone

    def finish(self, tensors: Mapping[str, Any], reason: str, **_: Any) -> None:
        self.meta = {"status": "finished"}
