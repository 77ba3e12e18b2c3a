"""Fixtures that several tests use."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.register_assert_rewrite("tests.support")

from tests.support.clusters import CPUS, LOOPBACK, started  # noqa: E402 (helpers are registered first)
from tests.support.command import Call, caller  # noqa: E402
from tests.support.data_files import empty_machine, served  # noqa: E402
from tests.support.experiments import SMALL  # noqa: E402

if TYPE_CHECKING:
    from tests.support.flower_bench import Bench

os.environ.update(LOOPBACK)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command line in this process."""
    return caller(monkeypatch, capsys)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Ctrl-C interrupts this process and those that it starts, even if the tests themselves run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without data sets: the folder in which fairlag searches for them."""
    return empty_machine(tmp_path, monkeypatch)


@pytest.fixture
def server(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a web server from which a machine without data sets downloads them."""
    with served(tmp_path / "served", monkeypatch) as folder:
        yield folder


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two seeds of a strategy in a folder `runs` below this one; nothing was trained."""
    from tests.support.runs import runs_of

    monkeypatch.chdir(tmp_path)
    runs_of(Path("runs"), SMALL, 0, 1)
    return Path("runs")


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """A Ray cluster, which every test leaves idle: to start and end one takes many seconds."""
    with started(CPUS) as address:
        yield address


@pytest.fixture
def quick_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a test ask a Flower grid in memory as often as it likes, unlike a SuperLink."""
    monkeypatch.setattr("fairlag.runtime.flower.courier._MAX_PER_SECOND", 2_000.0)


@pytest.fixture
def bench() -> Iterator[Callable[..., "Bench"]]:
    """Makes servers, each linked to a Flower grid in memory, and closes them afterwards."""
    from tests.support.flower_bench import benches  # imports Flower, which takes seconds

    with benches() as make:
        yield make
