"""Compiling ahead: what takes long is said, once, and what cannot be kept or read is one sentence."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

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
    assert answer().startswith(
        f"what numba keeps of fairlag, in {folder} or beside it, cannot be read or written (Ran out"
    )


def test_any_other_mistake_is_not_hidden() -> None:
    def wrong(kinds: tuple[object, ...]) -> None:
        raise TypeError("no")

    with pytest.raises(TypeError):
        jit.make_ready(Fake(wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("module", [learning, living, queue, product, sums], ids=lambda module: module.__name__)
def test_what_calls_into_another_file_has_its_digest_among_its_arguments(module: ModuleType) -> None:
    """Else numba would go on with what it made of that file before it was changed."""
    functions = {name: part for name, part in vars(module).items() if hasattr(part, "py_func")}
    for function in functions.values():
        code = function.py_func.__code__
        called = [functions[name].py_func for name in code.co_names if name in functions]
        if any(each.__module__ != function.py_func.__module__ for each in called):
            assert {"settings", "run", "runs"} & set(code.co_varnames[: code.co_argcount]), function.__name__
