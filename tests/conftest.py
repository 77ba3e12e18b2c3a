"""Fixtures that several tests use."""

import os
import signal
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.support")

from tests.support.clusters import LOOPBACK  # noqa: E402 (helpers are registered first)
from tests.support.command import Call, caller  # noqa: E402 (helpers are registered first)

os.environ.update(LOOPBACK)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command line in this process."""
    return caller(monkeypatch, capsys)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Ctrl-C interrupts, here and in processes that are started, also where the tests themselves run in background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def quick_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid in memory may be asked as often as a test likes, other than a SuperLink."""
    monkeypatch.setattr("fairlag.runtime.flower.courier._MAX_PER_SECOND", 2_000.0)
