"""Compiling ahead: what takes long is said, once; what is kept is of this source, and what is damaged one sentence."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fairlag import jit
from fairlag.learn import kernel as learning
from fairlag.learn import product
from fairlag.runtime.compiled import kernel as living
from fairlag.runtime.compiled import queue, sums

SCRIPT = """
import numpy as np
from fairlag import jit
from fairlag.errors import FairlagError

try:
    jit.make_ready(jit.subkey, np.uint64(1), np.int64(2))
    print(jit.subkey.stats.cache_path)
except FairlagError as error:
    print(error)
"""


@pytest.fixture(autouse=True)
def unsaid() -> Iterator[None]:
    jit._say.cache_clear()
    yield
    jit._say.cache_clear()


class Fake:
    """A function as numba has it, that does no more than to be compiled."""

    def __init__(self, compile: Callable[[tuple[object, ...]], None]) -> None:
        self.compile = compile


def slow(kinds: tuple[object, ...]) -> None:
    time.sleep(0.2)


@pytest.mark.parametrize(("patience", "times"), [(0.0, 1), (60.0, 0)])
def test_what_takes_long_is_said_once(
    patience: float, times: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jit, "_LONG", patience)
    for _ in range(2):
        jit.make_ready(Fake(slow))  # type: ignore[arg-type]
    assert capsys.readouterr().err.count("compiling loops") == times


def test_what_was_kept_and_is_damaged_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    def answer() -> str:
        return subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout.strip()

    folder = answer()
    (kept,) = Path(folder).glob("jit.subkey*.nbi")
    kept.write_bytes(b"")
    assert answer().startswith(f"cannot read or write numba's cache in {folder} or a neighbouring folder (Ran out")


def test_any_other_mistake_is_not_hidden() -> None:
    def wrong(kinds: tuple[object, ...]) -> None:
        raise TypeError("no")

    with pytest.raises(TypeError):
        jit.make_ready(Fake(wrong))  # type: ignore[arg-type]


# What is kept is never that of another source


COMPILED = [
    part
    for module in (jit, learning, product, living, queue, sums)
    for part in vars(module).values()
    if hasattr(part, "py_func")
]


@pytest.mark.parametrize("function", COMPILED, ids=lambda function: function.__name__)
def test_all_that_a_function_uses_is_in_its_name(function: Any) -> None:
    """It is of its own file, or compiled, or a number, or of another package: a module of ours could change."""
    own, globals_ = function.py_func.__module__, function.py_func.__globals__
    used = [globals_[name] for name in function.py_func.__code__.co_names if name in globals_]
    assert all(
        hasattr(each, "py_func")
        or isinstance(each, int | float | np.generic)
        or (isinstance(each, ModuleType) and not each.__name__.startswith("fairlag"))
        or (own == product.__name__ and type(each).__name__ == "_Intrinsic")
        for each in used
    )


OTHER = """
from fairlag.jit import compiled
MORE = {more}
@compiled
def times(number):
    return number * {factor}
"""
OWN = """
import numpy as np
from fairlag.errors import FairlagError
from fairlag.jit import compiled, make_ready
from other import MORE, times
@compiled
def answer(number):
    return times(number) {sign} MORE
try:
    make_ready(answer, np.int64(1))
    print(answer(np.int64(1)))
except FairlagError:
    print("not written")
"""


def test_a_change_anywhere_is_seen_even_after_a_full_disk(tmp_path: Path) -> None:
    own, other = tmp_path / "own.py", tmp_path / "other.py"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept"), "PYTHONDONTWRITEBYTECODE": "1"}

    def answer(most: int = resource.RLIM_INFINITY, *, more: int = 100, factor: int = 3, sign: str = "+") -> str:
        """Of a process that may write files of at most so many bytes: numba's index is short, what it is of is not."""
        own.write_text(OWN.format(sign=sign))
        other.write_text(OTHER.format(more=more, factor=factor))
        limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (most, most))
        command = [sys.executable, str(own)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, preexec_fn=limit)
        return done.stdout.strip()

    assert answer() == "103"
    assert answer(more=200) == "203"
    assert answer(factor=5) == "105"
    assert answer(4096, sign="-") == "not written"
    assert answer(sign="-") == "-97"
